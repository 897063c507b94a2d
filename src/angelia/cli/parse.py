"""A command's own arguments: argparse, set up the same way for every command.

What must stay true: options and words may be mixed in any order; no option can be shortened, so that a later one
cannot change what an old script means. No value is empty but that of an option with ``type=str``: a name or a path that
is nothing was a variable that nobody had set. A word that begins with a dash and holds a space or a line end is a text,
such as a Markdown list, and no option; for any other there is ``--``.
"""

from __future__ import annotations

import argparse
import os

from angelia.cli.exits import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_WIDTH_LEAST, _WIDTH_USUAL = 40, 80

# What every command takes, before and after its name: the option, its value, what it is for.
EVERYWHERE = (
    ("--as", "NAME", "act as this agent (ANGELIA_AGENT); else as human, its owner"),
    ("--hub", "URL", "the hub to call (ANGELIA_URL); else the one of the data folder"),
    ("--data-dir", "DIR", "the data folder (ANGELIA_DATA_DIR)"),
    ("--json", "", "answer in JSON"),
)
GLOBAL = "everywhere:\n" + "\n".join(f"  {f'{option} {value}':<14}  {words}" for option, value, words in EVERYWHERE)
# In place of arguments: nothing is read or run, and ``Described`` is raised with the parser.
DESCRIBE = ["\0describe"]


class Described(Exception):
    """What a command takes, for those who show it and do not run it: help, the manual, completion."""

    def __init__(self, made: CommandParser) -> None:
        super().__init__()
        self.parser = made


class CommandParser(argparse.ArgumentParser):
    """A command's parser, with the examples that its help shows."""

    examples = ""
    as_json = False

    def error(self, message: str) -> NoReturn:
        """What is wrong with the arguments: with the usage beside it, or for programs as any other error."""
        from angelia.cli.show import visible  # noqa: PLC0415 - for those commands alone that fail
        from angelia.model.tokens import masked  # noqa: PLC0415 - the same

        if self.as_json:
            raise UsageError(message)
        super().error(visible(masked(message), multiline=False))


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal. argparse makes one for every argument, and looks the width up by way of shutil."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=max(_WIDTH_LEAST, _columns() - 2))


def _columns() -> int:
    try:
        return os.get_terminal_size().columns
    except OSError:  # stdout is no terminal, or none at all
        return _WIDTH_USUAL


def parser(command: str, summary: str, example: str) -> CommandParser:
    """A parser for ``command``. ``example`` is a line or more that work as they stand."""
    shown = "\n".join(f"  {line}" for line in example.strip().splitlines())
    made = CommandParser(
        prog=f"angelia {command}",
        description=summary,
        epilog=f"{GLOBAL}\n\nexample:\n{shown}",
        formatter_class=_Help,
        allow_abbrev=False,
    )
    made.examples = example.strip()
    made.register("type", None, _filled)
    made.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    return made


def _filled(word: str) -> str:
    if not word:
        raise argparse.ArgumentTypeError("it is empty")
    return word


def parse(made: argparse.ArgumentParser, argv: list[str]) -> argparse.Namespace:
    """Read the arguments; argparse itself says what is wrong, and ends with 2."""
    if argv is DESCRIBE and isinstance(made, CommandParser):
        raise Described(made)
    if isinstance(made, CommandParser):
        made.as_json = "--json" in (argv[: argv.index("--")] if "--" in argv else argv)
    words = {f"\0{place}": word for place, word in enumerate(argv) if _is_text(word) or _is_second(place, argv)}
    shielded = [sign if (sign := f"\0{place}") in words else word for place, word in enumerate(argv)]
    found, left = made.parse_known_args(shielded)
    if left:  # words that stand apart, or too many of them; this way takes longer
        found = made.parse_intermixed_args(shielded)
    for name, value in vars(found).items():
        if isinstance(value, str):
            setattr(found, name, words.get(value, value))
        elif isinstance(value, list):
            setattr(found, name, [words.get(each, each) if isinstance(each, str) else each for each in value])
    return found


def _is_text(word: str) -> bool:
    return word.startswith("-") and any(sign.isspace() for sign in word.partition("=")[0])


def _is_second(place: int, argv: list[str]) -> bool:
    """Whether it is a ``--`` behind another: a word like any there, of which argparse makes nothing."""
    return argv[place] == "--" and "--" in argv[:place]


def seconds(word: str) -> float:
    """A time such as ``90``, ``15m``, ``2h`` or ``7d``, in seconds."""
    unit = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(word[-1:], 0)
    number = word[:-1] if unit else word
    if not number.replace(".", "", 1).isdigit() or not number.isascii():
        raise argparse.ArgumentTypeError(f"'{word}' is no time: write seconds, or 15m, 2h, 7d")
    return float(number) * (unit or 1)


def count(word: str) -> int:
    """A whole number above nothing."""
    if not (word.isascii() and word.isdigit()) or int(word) < 1:
        raise argparse.ArgumentTypeError(f"'{word}' is no number above 0")
    return int(word)


def message_id(word: str) -> str:
    """A message's id."""
    if len(word) != 32 or set(word) - set("0123456789abcdef"):
        raise argparse.ArgumentTypeError(f"'{word}' is no message id: it has 32 lowercase hex digits")
    return word
