"""Any program as an agent: the message on its standard input, the answer on its standard output.

What must stay true: the message is data. It goes in by standard input alone, unchanged; what else is known stands in
variables that the hub names. Exit code 0 is the program's own word that it answered, and a field of its output that was
asked for must be there, too; everything else failed, and its output says why.
"""

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from errno import EACCES, EAGAIN, EMFILE, ENFILE, ENOENT, ENOEXEC, ENOMEM, ENOSPC, ENOTDIR
from typing import Any, Literal

import msgspec

from angelia.model.failure import Reason
from angelia.model.limits import Limits
from angelia.turns.adapters.port import Answered, Failed, Found, Kind, Lost, Options, Outcome, Tools, Turn
from angelia.turns.adapters.program import wrong_variables
from angelia.turns.child import Ended

ROUTE = "program"
# What others send; a program that crashes gets another one, and has failed.
_FROM_OTHERS = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL, signal.SIGTERM}
_NO_ROOM = {EAGAIN, EMFILE, ENFILE, ENOMEM, ENOSPC}  # of the machine: it passes, and the message waits for that
_LIMIT_BYTES = Limits().reply_bytes
_MENDED_BY_HAND = {
    ENOENT: "is not there",
    ENOTDIR: "is not there",
    EACCES: "may not be run",
    ENOEXEC: "is no program of this machine, and its first line names none that could run it (#!)",
}


class CommandOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """``argv``: the program, by its whole path, and its arguments. ``folder``: where it runs; None is the home.

    ``reads``: the sender's ``text``, or the ``prompt`` that says who writes and fences the text. ``field``: which field
    of its output, which is JSON then, holds the answer (``result.0.text``); None: all of it, less a newline at the end.
    ``environment``: more variables.
    """

    argv: list[str]
    folder: str | None = None
    reads: Literal["text", "prompt"] = "text"
    field: str | None = None
    environment: dict[str, str] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Command:
    """One program."""

    options: CommandOptions
    tools: Tools

    async def run(self, turn: Turn) -> Outcome:
        """Run it once; see ``Adapter``."""
        options = self.options
        try:
            ended = await self.tools.children.run(
                options.argv,
                stdin=(turn.prompt if options.reads == "prompt" else turn.text).encode(),
                environment=self._environment(turn),
                folder=options.folder or self.tools.home,
                limit_bytes=_LIMIT_BYTES,
                note=turn.key,
            )
        except OSError as error:
            return _not_started(error, options.folder or self.tools.home)
        return self._outcome(ended)

    def _environment(self, turn: Turn) -> Mapping[str, str]:
        told = {"ANGELIA_CONVERSATION": turn.conversation, **turn.environment}
        return {**self.tools.environment, **self.options.environment, **told}

    def _outcome(self, ended: Ended) -> Outcome:
        stdout = ended.stdout.decode("utf-8", "replace")
        output = stdout + ended.stderr.decode("utf-8", "replace")
        if ended.cut:
            text = f"Its program printed more than {_LIMIT_BYTES} bytes and was ended."
            return Failed(text, ROUTE, reason=Reason.TOO_LARGE)
        if -ended.code in _FROM_OTHERS:
            return Lost(f"Its program was ended by {_signal(-ended.code)}, and not by this hub.", ROUTE)
        if ended.code < 0:
            return Failed(f"Its program was ended by {_signal(-ended.code)}.", ROUTE, output=output)
        if ended.code > 0:
            return Failed(f"Its program ended with exit code {ended.code}.", ROUTE, output=output)
        if self.options.field is None:
            return Answered(stdout.removesuffix("\n"), ROUTE)
        answer = field_of(stdout, self.options.field)
        if answer is None:
            return Failed(
                f"Its program ended well, without '{self.options.field}' in its output.", ROUTE, output=output
            )
        return Answered(answer, ROUTE)

    async def recall(self, turn: Turn) -> Outcome | None:
        """A program keeps no history that we know of."""
        return None

    async def close(self) -> None:
        """Nothing is warm."""


def field_of(text: str, path: str) -> str | None:
    """The value at a dotted path in JSON: a string as it is, anything else as JSON; None where there is none."""
    try:
        value: Any = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
    for name in path.split("."):
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value if isinstance(value, str) or value is None else msgspec.json.encode(value).decode()


def _not_started(error: OSError, folder: str) -> Failed:
    """Why it could not be started: what somebody has to mend, or what may have passed next time."""
    wrong = "runs in a folder that is not there" if not os.path.isdir(folder) else _MENDED_BY_HAND.get(error.errno or 0)
    if wrong is None and error.errno in _NO_ROOM:
        text = f"This machine has no room for its program now: {error.strerror}."
        return Failed(text, ROUTE, reason=Reason.TARGET_BUSY, began=False)
    if wrong is None:
        text = f"Its program could not be started: {error.strerror or error}."
        return Failed(text, ROUTE, reason=Reason.RUNTIME_OFFLINE, began=False)
    text = f"Its program {wrong}; whoever runs this agent has to mend that, or to join it anew."
    return Failed(text, ROUTE, reason=Reason.MISSING_CONFIG, began=False)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def check(options: CommandOptions, tools: Tools) -> str | None:
    """What is wrong with the options; whether the program is there is found out by ``detect``, and by each turn."""
    if not options.argv or not os.path.isabs(options.argv[0]):
        return "argv begins with the whole path of a program, such as /usr/bin/cat."
    if options.folder is not None and not os.path.isabs(options.folder):
        return "folder is a whole path."
    if options.field is not None and "" in options.field.split("."):
        return "field is a name, or several with dots in between: result.0.text"
    if any("\0" in word for word in [*options.argv, options.folder or ""]):
        return "argv and folder hold no NUL."
    return wrong_variables(options.environment)


async def detect(options: CommandOptions, tools: Tools) -> Found:
    """Look whether the program can be run; it is not run."""
    problem = _problem(options.argv[0], options.folder or tools.home)
    return Found(options.argv[0], ways=() if problem else (ROUTE,), problem=problem)


def _problem(program: str, folder: str) -> str | None:
    if not os.path.isfile(program):
        return f"{program} is not there; join the agent anew with the program's right path."
    if not os.access(program, os.X_OK):
        return f"{program} may not be run: chmod +x {program}"
    if not os.path.isdir(folder):
        return f"The folder {folder} is not there: mkdir -p {folder}"
    return None


KIND = Kind(
    name="command",
    title="any program",
    options=CommandOptions,
    make=Command,
    detect=detect,
    check=check,
    resumes=False,
)
