"""``angelia help``: a screen to begin with, a command in full, and the whole manual as a man page (``--man``).

What must stay true: it needs no hub and no valid setting. Everything but the groups and the first steps is taken from
the table of commands, their parsers, the table of settings and the table of exit codes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from angelia.cli import described, exits, parse, roff
from angelia.cli.main import COMMANDS, unknown
from angelia.settings import FIELDS, NOT_SETTINGS, called

# Every command stands in one of them, which a test holds; one that does not is shown at the end all the same.
GROUPS: dict[str, tuple[str, ...]] = {
    "the hub": ("up", "down", "status", "doctor", "service", "backup", "restore"),
    "mail": ("send", "ask", "reply", "inbox", "listen", "message", "dead", "search", "tail", "thread", "threads"),
    "agents": ("agents", "join", "leave", "wake", "turns", "briefing", "message-agent", "gateway"),
    "elsewhere": ("connect", "connections", "disconnect", "pair", "desktop"),
    "the shell": ("completion",),
}
STEPS = (
    ("angelia up --detach", "start the hub, without a terminal"),
    ("angelia join scout", "make a name an agent's own"),
    ("angelia listen --as scout", "receive its mail, in a second terminal"),
    ("angelia send scout 'good morning'", "send it something, in a third"),
    ("angelia status", "what is wrong, who is here, what waits"),
)
# What a hub is told; every other setting is for whoever calls one.
_OF_CALLERS = ("data_dir", "hub_url", "agent", "token")
_OF_HUBS = ("up", "service")


def run(words: list[str], *, asked: bool) -> int:
    """Show help. ``asked``: somebody wants it; else there was no command, and it goes to stderr with 2."""
    if "--man" in words:
        print(man_page(), end="")
    elif words and words[0] not in ("help", "--help", "-h"):
        if words[0] not in COMMANDS:
            raise exits.UsageError(unknown(words[0]))
        print(_in_full(words[0]), end="")
    else:
        print(_screen(), file=sys.stdout if asked else sys.stderr)
    return exits.DONE if asked else exits.USAGE


def man_page() -> str:
    """The whole manual, for ``man``."""
    return roff.page(_groups(), STEPS)


def _groups() -> dict[str, tuple[str, ...]]:
    grouped = {name for names in GROUPS.values() for name in names}
    others = tuple(name for name in COMMANDS if name not in grouped)
    return {**GROUPS, "more": others} if others else GROUPS


def _screen() -> str:
    rows: list[str] = []
    for group, names in _groups().items():
        for place, name in enumerate(name for name in names if name in COMMANDS):
            rows.append(f"  {group if not place else '':<11}{name:<11} {COMMANDS[name][1]}")
    steps = "\n".join(f"  {line:<35}{words}" for line, words in STEPS)
    return f"""\
Angelia, a durable message bus for AI agents.

usage: angelia [OPTIONS] COMMAND ...

commands:
{chr(10).join(rows)}

the first steps:
{steps}

{parse.GLOBAL}

angelia help COMMAND: a command in full. angelia help --man: the manual.
angelia --version: the version."""


def _in_full(name: str) -> str:
    return "\n".join(
        [
            described.parser_of(name).format_help(),
            "ends with:",
            *_rows((str(code), meaning) for code, meaning in exits.MEANING.items()),
            "",
            "environment:",
            *_rows(variables(_OF_CALLERS if name not in _OF_HUBS else tuple(FIELDS))),
            "",
        ]
    )


def variables(names: Iterable[str] = tuple(FIELDS)) -> list[tuple[str, str]]:
    """The variables of some settings, and those that are none, with what they are for."""
    found = [(called(name)[1], f"{FIELDS[name].purpose}: {FIELDS[name].allowed}") for name in names]
    return [*found, *NOT_SETTINGS.items()]


def _rows(pairs: Iterable[tuple[str, str]]) -> list[str]:
    shown = list(pairs)
    width = max(len(first) for first, _ in shown)
    return [f"  {first:<{width}}  {second}" for first, second in shown]
