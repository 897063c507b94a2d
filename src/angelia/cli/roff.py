"""The manual as a man page, in the macros of man(7), which every ``man`` understands.

What must stay true: it is made of the same tables as the help, and nothing else is said here but what a manual says
beside its commands. Plain ASCII, so that no ``man`` has to guess an encoding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from angelia import __version__
from angelia.cli import described, exits
from angelia.cli.described import Command, Slot
from angelia.settings import FIELDS, NOT_SETTINGS, called

_ABOUT = (
    "Angelia is a message bus for AI agents on one machine. Every agent finds every other and sends it messages; what "
    "the hub has accepted is on its disk, is handed over at least once, and its sender can learn what became of it.",
    "A hub serves one data folder. A command finds the hub of the data folder by itself; it acts as the hub's owner "
    "(human) unless --as names an agent.",
)
_FILES = (
    ("~/.config/angelia/angelia.toml", "the settings; on macOS in ~/Library/Application Support/angelia"),
    ("~/.local/share/angelia", "the data folder; on macOS ~/Library/Application Support/angelia"),
    ("hub.log", "in the data folder: the log of a hub without a terminal"),
    ("tokens/NAME", "in the data folder: the token that angelia join made"),
)
_ASCII = {"…": "...", "’": "'", "×": "x", "–": "-", "→": "->"}


def page(groups: Mapping[str, Sequence[str]], steps: Iterable[tuple[str, str]]) -> str:
    """The whole page."""
    known = {command.name: command for command in described.commands()}
    lines = [
        '.\\" Made by: angelia help --man',
        f'.TH ANGELIA 1 "" "Angelia {__version__}" "Angelia"',
        ".nh",
        *_section("NAME", r"angelia \- a durable message bus for AI agents"),
        *_section("SYNOPSIS", r"\fBangelia\fR [\fIOPTIONS\fR] \fICOMMAND\fR ..."),
        *_section("DESCRIPTION", *_paragraphs(_ABOUT)),
        *_section("FIRST STEPS", *(line for row in steps for line in _item(_bold(row[0]), row[1]))),
        ".SH COMMANDS",
    ]
    for names in groups.values():
        for name in names:
            if name in known:
                lines += _command(known[name])
    codes = [line for code, words in exits.MEANING.items() for line in _item(_bold(str(code)), words)]
    files = [line for path, words in _FILES for line in _item(f"\\fI{_text(path)}\\fR", words)]
    lines += [
        *_section("OPTIONS", "These stand before or after any command.", *_slots(described.everywhere())),
        *_section("EXIT STATUS", *codes),
        *_section("ENVIRONMENT", *_variables()),
        *_section("FILES", *files),
        *_section("SEE ALSO", r"\fBangelia help\fR \fICOMMAND\fR, \fBcurl\fR(1), \fBmkfifo\fR(1), \fBjq\fR(1)"),
    ]
    return "\n".join(lines) + "\n"


def _section(title: str, *lines: str) -> list[str]:
    return [f".SH {title}", *lines]


def _paragraphs(texts: Iterable[str]) -> list[str]:
    return [line for text in texts for line in (".PP", _text(text))]


def _item(title: str, words: str) -> list[str]:
    return [".TP", title, _text(words)]


def _command(command: Command) -> list[str]:
    examples = [".EX", *(_text(f"    {line}") for line in command.examples), ".EE"]
    text = " ".join(command.text.split())
    return [f".SS {command.usage}", _text(text), *_slots([*command.places, *command.options]), ".PP", *examples]


def _slots(slots: Iterable[Slot]) -> list[str]:
    lines: list[str] = []
    for slot in slots:
        flags = ", ".join(_bold(flag) for flag in slot.flags)
        value = slot.value or "|".join(slot.choices)
        lines += _item(f"{flags} \\fI{_text(value)}\\fR".strip() if value else flags, slot.words)
    return lines


def _variables() -> list[str]:
    lines: list[str] = []
    for name, field in FIELDS.items():
        lines += _item(_bold(called(name)[1]), f"{field.purpose}: {field.allowed}.")
    for variable, words in NOT_SETTINGS.items():
        lines += _item(_bold(variable), f"{words}.")
    return lines


def _bold(text: str) -> str:
    return f"\\fB{_text(text)}\\fR"


def _text(text: str) -> str:
    """As it stands, whatever is in it."""
    for sign, plain in _ASCII.items():
        text = text.replace(sign, plain)
    shown = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return f"\\&{shown}" if shown.startswith(".") else shown
