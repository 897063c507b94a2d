"""How ``angelia join`` is told to have an agent woken: options of the command line as the adapter that the hub keeps.

What must stay true: a command is split as a POSIX shell would and never run by one; its program and its folder become
whole paths here, where whoever types knows what they mean. What does not go together is wrong usage, before any hub is
asked.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from argparse import ArgumentParser, ArgumentTypeError, Namespace

from angelia.cli import parse
from angelia.cli.exits import UsageError
from angelia.client.calls import ABSENT

KINDS = ("command", "webhook", "hermes", "openclaw", "claude_code", "codex", "opencode", "acp")
CONVERSATIONS = ("agent", "thread")
# Which way each option belongs to.
_OF_COMMAND = ("prompt", "field", "folder")
_OF_WEBHOOK = ("secret_file", "allow_private")
_OF_ALL = ("conversation", "timeout")


def add_arguments(made: ArgumentParser) -> None:
    """The arguments that ``read`` reads."""
    made.add_argument("--command", metavar="COMMAND",
                      help="wake it by this program: the message on its stdin, its stdout is the answer")  # fmt: skip
    made.add_argument("--prompt", action="store_true",
                      help="with --command: the program is a model, which is told who writes, too")  # fmt: skip
    made.add_argument("--field", metavar="FIELD",
                      help="with --command: it prints JSON, and this field is the answer, as result.text")  # fmt: skip
    made.add_argument("--folder", metavar="DIR", help="with --command: where it runs (here)")
    made.add_argument("--webhook", metavar="URL", help="wake it by a signed POST to this address")
    made.add_argument(
        "--secret-file", metavar="F", help="with --webhook: the file (0600) that holds the secret, whsec_…"
    )
    made.add_argument("--allow-private", action="store_true",
                      help="with --webhook: the address may be of this machine or its networks")  # fmt: skip
    made.add_argument(
        "--adapter", metavar="KIND", choices=KINDS, help=f"wake it as an agent of this kind: {', '.join(KINDS)}"
    )
    made.add_argument("--option", metavar="NAME=VALUE", type=_option, action="append", default=[],
                      help="with --adapter: an option of its kind; JSON, or else text; as often as needed")  # fmt: skip
    made.add_argument("--conversation", metavar="WHAT", choices=CONVERSATIONS,
                      help="one conversation for all its mail (agent), or one for each thread")  # fmt: skip
    made.add_argument("--timeout", metavar="TIME", type=parse.seconds, help="how long one turn may take (10m)")
    made.add_argument("--no-adapter", action="store_true", help="nothing wakes it any more")


def read(given: Namespace) -> object:
    """The adapter: an object, None where it is to be taken away, ``ABSENT`` where nothing is said of it."""
    ways = [name for name in ("command", "webhook", "adapter") if getattr(given, name) is not None]
    ways += ["no_adapter"] if given.no_adapter else []
    if len(ways) > 1:
        raise UsageError(f"give one of {' and '.join(_flag(name) for name in ways)}")
    way = ways[0] if ways else None
    for needed, names in (("command", _OF_COMMAND), ("webhook", _OF_WEBHOOK), ("adapter", ("option",))):
        for name in names:
            if _is_given(getattr(given, name)) and way != needed:
                raise UsageError(f"{_flag(name)} goes with {_flag(needed)}")
    if way in (None, "no_adapter"):
        for name in _OF_ALL:
            if _is_given(getattr(given, name)):
                raise UsageError(f"{_flag(name)} goes with --command, --webhook or --adapter")
        return ABSENT if way is None else None
    made = {"command": _command, "webhook": _webhook, "adapter": _of_a_kind}[str(way)](given)
    if given.conversation:
        made["conversation"] = given.conversation
    if given.timeout is not None:
        if not given.timeout:
            raise UsageError("--timeout has to be more than 0")
        made["timeout_seconds"] = given.timeout
    return made


def _command(given: Namespace) -> dict[str, object]:
    try:
        words = shlex.split(given.command)
    except ValueError as error:
        raise UsageError(f"--command cannot be split into words: {error}") from None
    if not words:
        raise UsageError("--command is empty: name a program")
    program = shutil.which(os.path.expanduser(words[0]))
    if program is None:
        raise UsageError(f"there is no program '{words[0]}' here, or it may not be run")
    folder = os.path.abspath(os.path.expanduser(given.folder or "."))
    if not os.path.isdir(folder):
        raise UsageError(f"there is no folder {folder}")
    made: dict[str, object] = {"kind": "command", "argv": [os.path.abspath(program), *words[1:]], "folder": folder}
    if given.prompt:
        made["reads"] = "prompt"
    if given.field:
        made["field"] = given.field
    return made


def _webhook(given: Namespace) -> dict[str, object]:
    if not given.secret_file:
        raise UsageError("--webhook takes --secret-file: what is posted is signed")
    path = os.path.abspath(os.path.expanduser(given.secret_file))
    if not os.path.isfile(path):
        raise UsageError(f"there is no file {path}")
    made: dict[str, object] = {"kind": "webhook", "url": given.webhook, "secret_file": path}
    return {**made, "allow_private": True} if given.allow_private else made


def _of_a_kind(given: Namespace) -> dict[str, object]:
    made: dict[str, object] = {"kind": given.adapter}
    for name, value in given.option:
        if name in made:
            raise UsageError(f"the option {name} is there twice")
        made[name] = value
    return made


def _option(word: str) -> tuple[str, object]:
    name, equals, value = word.partition("=")
    if not equals or not name.isidentifier() or name == "kind":
        raise ArgumentTypeError(f"'{word}' is no option: write NAME=VALUE")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value


def _is_given(value: object) -> bool:
    """Nothing, no and an empty list are what an option is that nobody wrote; 0 somebody wrote."""
    return value is not None and value is not False and value != []


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
