"""The results: a table for the terminal, and the same with its context for ``results.md`` and ``results.json``."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.figures import Bench, Figure, Measured


def verdict(found: Measured) -> str:
    """One word on a figure."""
    figure = found.figure
    return "aim" if figure.holds(found.value, figure.aim) else "ok" if figure.holds(found.value, figure.must) else "NO"


def line(found: Measured) -> str:
    """One row of the terminal's table."""
    figure = found.figure
    shown, must, aim = figure.shown(found.value), figure.bound(figure.must), figure.bound(figure.aim)
    return f"{figure.name:10} {shown:>14} {must:>14} {aim:>14}  {verdict(found):3}  {found.told}"


HEADER = f"{'figure':10} {'measured':>14} {'must':>14} {'aim':>14}"


_HELD = {"aim": "yes, and what is aimed at", "ok": "yes", "NO": "no"}


def peers(bench: Bench) -> list[str]:
    """The hub and what it stands beside, a row each; of a peer that is not there it is said why."""
    columns = list(dict.fromkeys(column for values in bench.beside.values() for column in values))
    rows = [f"| {' | '.join([' ', *columns])} |", "|---" * (len(columns) + 1) + "|"]
    rows += [f"| {' | '.join([name, *(v.get(c, '') for c in columns)])} |" for name, v in bench.beside.items()]
    return [*rows, *(f"| {name} | {why} |" for name, why in bench.absent.items())]


def write(
    folder: Path,
    facts: Mapping[str, str],
    found: Sequence[Measured],
    missing: Mapping[str, str],
    beside: Sequence[str],
) -> None:
    """Both files, anew."""
    _write_json(folder / "results.json", facts, found, missing)
    (folder / "results.md").write_text("\n".join(_markdown(facts, found, missing, beside)) + "\n")


def _markdown(
    facts: Mapping[str, str], found: Sequence[Measured], missing: Mapping[str, str], beside: Sequence[str]
) -> list[str]:
    lines = [
        "# Measurements",
        "",
        "Written by `make bench`; medians, rounds taken in turn, everything on loopback. What was tried, and what each",
        "figure is made of: [notes.md](notes.md).",
        "",
    ]
    lines += [f"- {name}: {fact}" for name, fact in facts.items()]
    lines += ["", "| figure | measured | must | aim | held | behind it |", "|---|---|---|---|---|---|"]
    for each in found:
        figure = each.figure
        cells = [figure.title, figure.shown(each.value), figure.bound(figure.must), figure.bound(figure.aim)]
        lines.append(f"| {' | '.join([*cells, _HELD[verdict(each)], each.told])} |")
    lines += ["", "## Beside others", "", *beside, "", "The seed's server has nothing on disk.", ""]
    lines += ["## What limits each", ""]
    lines += [f"- **{each.figure.title}**: {each.figure.limits}" for each in found]
    busy = max((each.busy_before for each in found), default=0.0)
    lines += ["", f"Before the figures others used at most {busy:.0%} of the machine."]
    if missing:
        lines += ["", "## Not measured", "", *(f"- {name}: {why}" for name, why in missing.items())]
    return lines


def _write_json(path: Path, facts: Mapping[str, str], found: Sequence[Measured], missing: Mapping[str, str]) -> None:
    figures = {each.figure.name: _as_dict(each.figure, each) for each in found}
    content = {"facts": facts, "figures": figures, "missing": missing}
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _as_dict(figure: Figure, each: Measured) -> dict[str, object]:
    return {
        "title": figure.title,
        "value": each.value,
        "unit": figure.unit,
        "must": figure.must,
        "aim": figure.aim,
        "verdict": verdict(each),
        "told": each.told,
        "rounds": each.rounds,
        "busy_before": each.busy_before,
    }
