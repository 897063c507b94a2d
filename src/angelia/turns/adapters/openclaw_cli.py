"""OpenClaw's command line: one turn as a child, where its gateway lets in only programs that it was paired with.

What must stay true: the text rides in a file (0600) that is gone when the turn is; the argument list is fixed but for
the program, a checked agent and our own name for the conversation. Exit code 0 is no answer: the JSON on standard
output is read as the gateway's own. A turn that the program ran by itself, because it did not reach the gateway, is no
turn of that conversation, and one whose connection was lost is one that nobody knows of.
"""

import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from angelia.model.failure import Reason
from angelia.protocol.foreign_json import Malformed, read
from angelia.turns.adapters import openclaw_answers
from angelia.turns.adapters.openclaw_gateway import FRAME_BYTES, FRAME_DEPTH, mapping
from angelia.turns.adapters.port import Failed, Lost, Outcome, Tools, Turn
from angelia.turns.child import Ended

ROUTE = "command line"
FILE_BYTES = 4 * 1024 * 1024  # OpenClaw's own bound for a text in a file
ASK_BYTES = 64 * 1024
_UNKNOWN = "outcome is unknown"  # what it says when its connection broke after the turn was asked for
_BY_ITSELF = "EMBEDDED FALLBACK"  # older releases, on standard error
_NOBODY = "gateway connect failed"


async def run(program: str, agent: str, session: str, turn: Turn, tools: Tools) -> Outcome:
    """Run ``turn`` by ``program`` as ``agent`` in the session with the key ``session``."""
    text = turn.prompt.encode("utf-8", "replace")
    if len(text) > FILE_BYTES:
        return Failed("OpenClaw takes 4 MiB of text.", ROUTE, Reason.TOO_LARGE, began=False)
    with _text_file(tools.private, text) as path:
        argv = [program, "agent", "--agent", agent, "--session-key", session, "--message-file", path, "--json"]
        try:
            ended = await tools.children.run(
                [*argv, "--timeout", str(math.ceil(turn.seconds))],
                environment={**tools.environment, **turn.environment},
                folder=tools.home,
                limit_bytes=FRAME_BYTES,
                note=turn.key,
            )
        except OSError as error:
            why = f"OpenClaw cannot be started: {error.strerror or 'its program is not there'}."
            return Failed(why, ROUTE, Reason.MISSING_CONFIG, began=False)
    return _outcome(ended)


def _outcome(ended: Ended) -> Outcome:
    errors = ended.stderr.decode("utf-8", "replace")
    said = ended.stdout.decode("utf-8", "replace")
    if ended.cut:
        return Failed("OpenClaw's answer is too long to be kept.", ROUTE, Reason.TOO_LARGE)
    if ended.code < 0 or _UNKNOWN in said or _UNKNOWN in errors:
        return Lost("The connection to OpenClaw's gateway was lost while the turn ran.", ROUTE)
    if _BY_ITSELF in errors:
        return Failed("OpenClaw did not reach its gateway and ran the turn outside of its conversation.", ROUTE)
    try:
        answer = mapping(read(ended.stdout, FRAME_DEPTH))
    except Malformed:
        answer = {}
    if ended.code == 0 and answer:
        return openclaw_answers.outcome(answer, ROUTE)
    told = str(mapping(answer.get("error")).get("message") or "") or "\n".join((said, errors)).strip()
    if _NOBODY in told or "ECONNREFUSED" in told:
        return Failed("OpenClaw's gateway does not run.", ROUTE, Reason.RUNTIME_OFFLINE, told, began=False)
    if answer.get("status") is not None:
        return openclaw_answers.outcome(answer, ROUTE)
    return openclaw_answers.failed(told, ROUTE)


async def version(program: str, tools: Tools) -> str | None:
    """The first line of what it says of itself; None where it says nothing."""
    try:
        ended = await tools.children.run(
            [program, "--version"], environment=tools.environment, folder=tools.home, limit_bytes=ASK_BYTES
        )
    except OSError:
        return None
    return next(iter(ended.stdout.decode("utf-8", "replace").splitlines()), None) if ended.code == 0 else None


@contextmanager
def _text_file(folder: str, text: bytes) -> Iterator[str]:
    handle, path = tempfile.mkstemp(prefix="openclaw-", suffix=".txt", dir=folder)
    try:
        with open(handle, "wb") as file:
            file.write(text)
        yield path
    finally:
        os.unlink(path)
