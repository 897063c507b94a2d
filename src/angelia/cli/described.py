"""What each command takes, read from the command's own parser: the one source of help, the manual and completion.

What must stay true: nothing that a command takes is said a second time. What may stand at a place follows from its
choices, else from the word that its help shows for it (``VALUES``), so a new command is completed without more ado.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from importlib import import_module
from typing import NamedTuple

from angelia.cli import parse
from angelia.cli.main import COMMANDS
from angelia.model.delivery import State
from angelia.settings import LEVELS, load

# What a word in capitals stands for: agents' names, files, folders, programs.
NAMES, FILES, FOLDERS, PROGRAMS = "names", "files", "folders", "programs"
VALUES = {"NAME": NAMES, "TO": NAMES, "F": FILES, "FILE": FILES, "PATH": FILES, "DIR": FOLDERS, "COMMAND": PROGRAMS}
_WORDS: dict[str, tuple[str, ...]] = {"LEVEL": LEVELS, "STATE": tuple(state.word for state in State)}


class Slot(NamedTuple):
    """An option (``flags``) or a place. ``value`` is its word in the help, "" for a switch."""

    flags: tuple[str, ...]
    value: str
    choices: tuple[str, ...]
    words: str
    needed: bool = False
    many: bool = False

    @property
    def kind(self) -> str:
        """What may stand there, where ``choices`` do not say: one of ``VALUES``, or ""."""
        return "" if self.choices else VALUES.get(self.value, "")

    @property
    def shown(self) -> str:
        """As it stands in a usage: ``--file F``, ``TO``, ``[TEXT]``."""
        value = self.value if self.value or not self.choices else "|".join(self.choices)
        if self.flags:
            return " ".join([", ".join(self.flags), value]).strip()
        return (value if self.needed else f"[{value}]") + ("..." if self.many else "")


class Command(NamedTuple):
    """A command: its summary of a few words, what it does, its options and places, and examples that work."""

    name: str
    summary: str
    text: str
    options: tuple[Slot, ...]
    places: tuple[Slot, ...]
    examples: tuple[str, ...]

    @property
    def usage(self) -> str:
        """How it is called."""
        return " ".join(
            ["angelia", self.name, *(["[OPTIONS]"] if self.options else []), *(p.shown for p in self.places)]
        )


def parser_of(name: str) -> parse.CommandParser:
    """The parser of a command."""
    try:
        # No setting matters to a command that is not run, and a wrong one must not keep anybody from the help.
        import_module(COMMANDS[name][0]).run(parse.DESCRIBE, load({}, {"HOME": "/nonexistent"}))
    except parse.Described as described:
        return described.parser
    raise AssertionError(f"angelia {name} does something before it reads its arguments")


def command(name: str) -> Command:
    """A command, described."""
    made = parser_of(name)
    slots = [_slot(action) for action in made._actions if action.help != argparse.SUPPRESS]
    return Command(
        name,
        COMMANDS[name][1],
        made.description or "",
        tuple(slot for slot in slots if slot.flags and slot.flags != ("-h", "--help")),
        tuple(slot for slot in slots if not slot.flags),
        tuple(made.examples.splitlines()),
    )


def commands() -> list[Command]:
    """All of them, in the table's order."""
    return [command(name) for name in COMMANDS]


def everywhere() -> list[Slot]:
    """The options that every command has."""
    return [Slot((flag,), value, _WORDS.get(value, ()), words) for flag, value, words in parse.EVERYWHERE]


def _slot(action: argparse.Action) -> Slot:
    value = "" if action.nargs == 0 else str(action.metavar or (action.dest.upper() if not action.choices else ""))
    choices = tuple(str(word) for word in action.choices or ()) or _WORDS.get(value, ())
    optional = action.nargs in ("?", "*")
    return Slot(
        tuple(action.option_strings), value, choices, action.help or "", not optional, action.nargs in ("*", "+")
    )


def valued(slots: Iterable[Slot]) -> list[str]:
    """The flags that a value follows."""
    return [flag for slot in slots if slot.value or slot.choices for flag in slot.flags]
