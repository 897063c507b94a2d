"""Hermes' command line: one turn as a child, in the session of Hermes' own relay. For releases with ``--query-file``.

What must stay true:

- The argument list is fixed but for the program, a checked profile and our own name for the conversation; the text
  rides in a file (0600) that is gone when the turn is, whatever way it ends.
- Exit code 0 alone is no answer: Hermes names its session on standard error when a turn was run, and its own error
  texts do not open an answer. What failed is read from both streams, standard output first.
- The child knows who writes, and whether it should take up what an earlier attempt left unanswered; whose session the
  hub itself was started from, it does not know.
"""

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from angelia.model.address import PERSON, RESERVED, parse
from angelia.model.failure import Reason
from angelia.protocol.bot_relay import profile_of
from angelia.protocol.bot_relay_mail import author
from angelia.protocol.json import encode
from angelia.turns.adapters.hermes_api import ERROR_TEXT, typed
from angelia.turns.adapters.port import Answered, Failed, Lost, Outcome, Tools, Turn
from angelia.turns.child import Ended

ROUTE = "command line"
TITLE = "Bot Chat"  # Hermes' own: only there its agents are given `message_agent`
FLAGS = ("--query-file", "--create-if-missing")  # a release without them cannot be handed a text but in an argument
OUTPUT_BYTES = 16 * 1024 * 1024  # far above what a hub stores as one answer
HELP_BYTES = 1024 * 1024
# What names somebody else's session or turn; the hub may have been started from within one.
IDENTITY = (
    "HERMES_TURN_AUTHOR", "HERMES_RESUME_UNANSWERED_TURN", "HERMES_SESSION_KEY", "HERMES_SESSION_ID",
    "HERMES_SESSION_PROFILE", "HERMES_UI_SESSION_ID",
)  # fmt: skip
_SESSION = re.compile(r"^session_id: (\S+)", re.MULTILINE)
_REFUSAL = re.compile(r"^hermes-refusal-reason: *(\S+)", re.MULTILINE)
_LIVE = "already has a live owner"  # releases before the marker


async def run(program: str, profile: str, home: str | None, turn: Turn, tools: Tools, title: str) -> Outcome:
    """Run ``turn`` by ``program`` in the session called ``title`` of ``profile``; ``home``: the root of Hermes' files,
    where it is not what the environment says."""
    with _text_file(tools.private, turn.stamped) as path:
        argv = [program, "-p", profile, "chat", "--in", "~", "-c", title, "--create-if-missing", "-Q"]
        try:
            ended = await tools.children.run(
                [*argv, "--query-file", path],
                environment=environment(turn, tools, home),
                folder=tools.home,
                limit_bytes=OUTPUT_BYTES,
                note=turn.key,
            )
        except OSError as error:
            text = f"Hermes cannot be started: {error.strerror or 'its program is not there'}."
            return Failed(text, ROUTE, Reason.MISSING_CONFIG, began=False)
    return _outcome(ended, turn)


def environment(turn: Turn, tools: Tools, home: str | None) -> dict[str, str]:
    """Variables of the child."""
    variables = {**_plain(tools.environment, home), **turn.environment}
    if turn.again:
        variables["HERMES_RESUME_UNANSWERED_TURN"] = "1"
    writer = _author(turn)
    if writer is not None:
        variables["HERMES_TURN_AUTHOR"] = encode(writer).decode()
    return variables


def _author(turn: Turn) -> dict[str, object] | None:
    """Who writes, as Hermes labels it in its memory; None for a person and for the hub, who are no bots."""
    sender = parse(turn.message.sender)
    if sender.name.lower() == PERSON or (sender.is_local and sender.name.lower() in RESERVED):
        return None
    profile = profile_of(sender.name)
    return author(profile, sender.name, sender.connection)


def _outcome(ended: Ended, turn: Turn) -> Outcome:
    reply = ended.stdout.decode("utf-8", "replace").strip()
    errors = ended.stderr.decode("utf-8", "replace")
    session = _SESSION.search(errors)
    if session is not None:
        turn.begun(session[1])
    if ended.cut:
        return Failed("Hermes' answer is too long to be kept.", ROUTE, Reason.TOO_LARGE)
    if ended.code < 0:
        return Lost(f"Hermes was ended by signal {-ended.code} while its turn ran.", ROUTE)
    if ended.code == 0 and session is not None and not ERROR_TEXT.match(reply):
        return Answered(reply, ROUTE)
    refusal = _REFUSAL.search(errors)
    if refusal[1] == "SESSION_NOT_OWNED" if refusal else _LIVE in errors:
        return Failed("Hermes' chat is in use.", ROUTE, Reason.TARGET_SESSION_LIVE, began=False)
    output = "\n".join(filter(None, (reply, errors.strip())))
    return Failed(f"Hermes ended with exit code {ended.code}.", ROUTE, typed(reply), output)


async def takes_files(program: str, tools: Tools, home: str | None) -> bool:
    """Whether this release can be handed a text in a file: told by its help, for its number says nothing."""
    shown = await _asked([program, "chat", "--help"], tools, home)
    return all(flag in shown for flag in FLAGS)


async def version(program: str, tools: Tools, home: str | None) -> str | None:
    """The first line of what it says of itself; None where it says nothing."""
    return next(iter((await _asked([program, "--version"], tools, home)).splitlines()), None)


async def _asked(argv: list[str], tools: Tools, home: str | None) -> str:
    try:
        ended = await tools.children.run(
            argv, environment=_plain(tools.environment, home), folder=tools.home, limit_bytes=HELP_BYTES
        )
    except OSError:
        return ""
    return ended.stdout.decode("utf-8", "replace") if ended.code == 0 else ""


def _plain(environment: Mapping[str, str], home: str | None) -> dict[str, str]:
    """``environment`` without what names somebody's session, and with Hermes' home where it is another."""
    own = {} if home is None else {"HERMES_HOME": home}
    return {name: value for name, value in environment.items() if name not in IDENTITY} | own


@contextmanager
def _text_file(folder: str, text: str) -> Iterator[str]:
    handle, path = tempfile.mkstemp(prefix="hermes-relay-dm-", suffix=".txt", dir=folder)
    try:
        with open(handle, "wb") as file:
            file.write(text.encode("utf-8", "replace"))
        yield path
    finally:
        os.unlink(path)
