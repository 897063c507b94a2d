"""Writes the tables of these pages, and the man page, anew, out of the code: `python docs/tables.py`.

What must stay true: between `<!-- table: NAME -->` and `<!-- end -->` a page holds what the function NAME here returns,
and nothing by hand. tests/docs compares the two, so a page cannot tell of a state, a code or a limit that is not there.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from inspect import cleandoc, getmembers, isfunction, signature, unwrap
from pathlib import Path

from angelia.bus.caller import MAY, Rank
from angelia.cli import exits, manual
from angelia.cli.log_line import event_of
from angelia.cli.main import COMMANDS
from angelia.client.client import Client
from angelia.doors.http.routes import ROUTES
from angelia.model import errors, limits
from angelia.model.delivery import REASON_OF, TABLE, State
from angelia.model.failure import Reason, on_hermes_wire, prose
from angelia.settings import FIELDS, LEVELS, called

ROOT = Path(__file__).resolve().parent.parent
MAN_PAGE = ROOT / "docs/man/angelia.1"  # the wheel installs it
SECTION = re.compile(r"(<!-- table: ([a-z_]+) -->\n).*?(<!-- end -->)", re.DOTALL)
# Branches of the tree of errors that are only there to be caught; nothing raises them.
BRANCHES = (errors.AngeliaError, errors.CallerError, errors.HubError, errors.Conflict, errors.Forbidden)


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [headers, ["---"] * len(headers), *rows]
    return "".join(f"| {' | '.join(_cell(text) for text in line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("``", "`").replace("|", "\\|").split())


def states() -> str:
    """Every arrow of a delivery's life."""
    arrows = sorted(TABLE.items(), key=lambda arrow: (arrow[0][0], arrow[1]))
    rows = [
        (f"`{old.word}`", event.value, f"`{new.word}`", f"`{REASON_OF[event]}`" if event in REASON_OF else "")
        for (old, event), new in arrows
    ]
    return table(("from", "event", "to", "reason that it sets"), rows)


def picture() -> str:
    """The same as a drawing, which code hosts show."""
    joined: dict[tuple[State, State], list[str]] = {}
    for (old, event), new in TABLE.items():
        joined.setdefault((old, new), []).append(event.value)
    arrows = [f"    {old.word} --> {new.word}: {', '.join(events)}" for (old, new), events in sorted(joined.items())]
    starts = [f"    [*] --> {state.word}: accept" for state in (State.QUEUED, State.LEASED, State.HELD)]
    return "\n".join(["```mermaid", "stateDiagram-v2", *starts, *arrows, "```", ""])


def codes() -> str:
    """Every error code."""
    kinds = {kind.code: kind for kind in _kinds(errors.AngeliaError) if kind not in BRANCHES}
    ordered = sorted(kinds.values(), key=lambda kind: (kind.status, kind.code))
    rows = [
        (str(kind.status), f"`{kind.code}`", kind.title, cleandoc(kind.__doc__ or ""), "yes" if kind.retry else "no")
        for kind in ordered
    ]
    return table(("status", "code", "title", "when", "does asking again help?"), rows)


def _kinds(kind: type[errors.AngeliaError]) -> list[type[errors.AngeliaError]]:
    own = [child for child in kind.__subclasses__() if child.__module__ == kind.__module__]
    return [kind, *(deeper for child in own for deeper in _kinds(child))]


def reasons() -> str:
    """Why a delivery failed."""
    rows = [(f"`{reason.value}`", prose(reason), f"`{on_hermes_wire(reason)}`") for reason in Reason]
    return table(("reason", "in words", "Hermes' word"), rows)


def bounds() -> str:
    """Every limit, its default, and the reason that stands beside it in the code."""
    source = Path(limits.__file__).read_text(encoding="utf-8")
    why = dict(re.findall(r"^    (\w+): (?:int|float) = [^#\n]+#\s*(.+)$", source, re.MULTILINE))
    values = limits.Limits()
    rows = [(f"`{name}`", _amount(name, getattr(values, name)), why.get(name, "")) for name in values.__slots__]
    return table(("limit", "default", "why"), rows)


def _amount(name: str, value: float) -> str:
    if "_bytes" in name:  # of a sender, too
        return f"{value / limits.MIB:g} MiB" if value >= limits.MIB else f"{value / limits.KIB:g} KiB"
    if not name.endswith("_seconds"):
        return f"{value:,} ms" if name.endswith("_milliseconds") else f"{value:,}"
    units = (("d", limits.DAY), ("h", limits.HOUR), ("min", 2 * limits.MINUTE), ("s", 0))
    unit = next(unit for unit, least in units if value >= least and (not least or value % 60 == 0))
    size = {"d": limits.DAY, "h": limits.HOUR, "min": limits.MINUTE, "s": 1}[unit]
    return f"{value / size:g} {unit}"


def settings() -> str:
    """Every setting."""
    rows = [
        (f"`{name}`", f"`{called(name)[1]}`", _default(field.default), field.allowed, field.purpose)
        for name, field in FIELDS.items()
    ]
    return table(("in the file", "variable", "default", "allowed", "what it is"), rows)


def _default(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(f"`{part}`" for part in value) or "none"
    return "none" if value is None else f"`{str(value).lower()}`"


def ends() -> str:
    """Every exit code of a command."""
    return table(("exit code", "meaning"), [(str(code), words) for code, words in exits.MEANING.items()])


def commands() -> str:
    """Every command."""
    return table(("command", "does"), [(f"[`{name}`](#{name})", words) for name, (_, words) in COMMANDS.items()])


def events() -> str:
    """Every event that the hub may log."""
    rows = set()
    for path in sorted((ROOT / "src/angelia").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and (found := _logged(node)):
                rows.add(found)
    return table(("event", "level", "in words"), sorted(rows))


def _logged(call: ast.Call) -> tuple[str, str, str] | None:
    """``log.warning("…", …)``, or what ``angelia up`` says while there is no log: event, level and words."""
    words = [arg.value for arg in call.args[:2] if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    if isinstance(call.func, ast.Name) and call.func.id == "_tell" and words:
        return f"`{words[0]}`", "error", "the hub does not start, or not again: the text says why"
    if not (isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and words):
        return None
    level = {"exception": "error"}.get(call.func.attr, call.func.attr)
    if call.func.value.id not in ("log", "_log") or level not in (*LEVELS, "critical"):
        return None
    return f"`{event_of(words[0])}`", level, re.sub(r"%[a-z]", "…", words[0])


def routes() -> str:
    """Every route of the HTTP door."""
    rows = [
        (f"`{route.method} {route.path}`", route.summary, ", ".join(f"`{name}`" for name in route.arguments))
        for route in ROUTES
    ]
    return table(("call", "does", "after the `?`"), rows)


def verbs() -> str:
    """Who may do what."""
    ranks = list(Rank)
    rows = [[f"`{verb}`", *("yes" if rank in allowed else "" for rank in ranks)] for verb, allowed in MAY.items()]
    return table(["verb", *(rank.name.lower() for rank in ranks)], rows)


def calls() -> str:
    """Every call of the Python client, in the order in which its file has them."""
    own = [(name, call) for name, call in getmembers(Client, isfunction) if not name.startswith("_")]
    own.sort(key=lambda found: (found[1].__module__, unwrap(found[1]).__code__.co_firstlineno))
    rows = [(f"`{name}({_arguments(call)})`", (call.__doc__ or "").strip().split("\n")[0]) for name, call in own]
    return table(("call", "does"), rows)


def _arguments(call: Callable[..., object]) -> str:
    return ", ".join(name for name in signature(call).parameters if name != "self")


TABLES: dict[str, Callable[[], str]] = {
    made.__name__: made
    for made in (states, picture, codes, reasons, bounds, settings, ends, commands, events, routes, verbs, calls)
}  # fmt: skip


def fresh(page: str) -> str:
    """A page with every table as the code has it now. Raises KeyError for a table that nothing here makes."""
    return SECTION.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n{found[3]}", page)


def pages() -> list[Path]:
    """Every page that may hold a table."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def main() -> int:
    """Write what has changed; say which pages those are."""
    for path in pages():
        old = path.read_text(encoding="utf-8")
        if (new := fresh(old)) != old:
            path.write_text(new, encoding="utf-8")
            print(path.relative_to(ROOT))
    MAN_PAGE.write_text(manual.man_page(), encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main())
