"""Talks to one process that speaks the Agent Client Protocol over its standard input and output. Loaded where such an
agent is used: it needs the package ``agent-client-protocol``.

What must stay true:

- Whoever hands over a prompt is told whether the process can have had it: ``NeverHeard`` says that it cannot.
- An answer is what the agent says between a prompt and its end, in that session, and nothing else: what it tells of a
  conversation's past when that is loaded, also when it comes late, is not part of it.
- What the agent asks leave for is answered at once; nothing of ours (files, terminals) is lent to it.
- A line and an answer are bounded. What is no JSON is passed over, whoever printed it.
"""

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from acp import PROTOCOL_VERSION, RequestError
from acp.connection import Connection
from acp.meta import AGENT_METHODS, CLIENT_METHODS

from angelia.model.limits import Limits
from angelia.turns.child import Running

ANSWER_BYTES = Limits().reply_bytes
LINE_BYTES = 16 * 1024 * 1024  # a tool's output, or a file that was edited, stands in one line
CANCEL_SECONDS = 3.0  # from asking it to stop to ending it
LAST_WORD_SECONDS = 1.0  # from the end of the process to the last line that it wrote before
# Gemini CLI tells a conversation's past after it said that it was loaded; then it is quiet. At most so long.
QUIET_SECONDS, PAST_SECONDS = 0.3, 10.0
PATIENCE = 0.8  # of a turn's time: from then on an agent that only tries again is ended, with the reason it logged
_TRIES_AGAIN = re.compile(r"^.*(?:retrying|retry in|will retry).*$", re.IGNORECASE | re.MULTILINE)


class NeverHeard(Exception):
    """The process ended, or its pipe was shut, before it can have had the prompt."""


@dataclass(frozen=True, slots=True)
class Said:
    """The agent ended the turn by itself. ``result``: its answer to ``session/prompt``; ``text``: what it said."""

    result: dict[str, Any]
    text: str


@dataclass(frozen=True, slots=True)
class Refused:
    """It answered with a JSON-RPC error."""

    code: int
    message: str
    data: Any


@dataclass(frozen=True, slots=True)
class Ended:
    """There was no end of the turn: the process was ``gone``, said ``too much``, or did ``nothing but try again`` and
    was stopped (``log``: what it wrote of that)."""

    how: Literal["gone", "too much", "nothing but try again"]
    log: str = ""


@dataclass(slots=True)
class _Ear:
    """What is heard of one turn."""

    session: str
    pieces: list[str] = field(default_factory=list)
    size: int = 0
    broken: bool = False  # something came between: what follows is a paragraph of its own
    full: asyncio.Event = field(default_factory=asyncio.Event)

    def hear(self, update: dict[str, Any]) -> None:
        kind = update.get("sessionUpdate")
        if kind == "user_message_chunk":  # the past, late; or the prompt's own echo
            self.pieces.clear()
            self.size = 0
        elif kind == "agent_message_chunk":
            content = update.get("content")
            text = content.get("text") if isinstance(content, dict) else None
            if not isinstance(text, str) or not text:
                return
            if self.broken and self.pieces:
                self.pieces.append("\n\n")
            self.broken = False
            self.size += len(text.encode("utf-8", "replace"))
            if self.size > ANSWER_BYTES:
                self.full.set()
            else:
                self.pieces.append(text)
        elif kind in ("tool_call", "plan"):
            self.broken = True


class _Pipes:
    """The package's transport over a child's pipes, bounded, and deaf to what is no message."""

    def __init__(self, child: Running) -> None:
        self._child = child

    async def send(self, message: dict[str, Any]) -> None:
        self._child.stdin.write(msgspec.json.encode(message) + b"\n")
        await self._child.stdin.drain()

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None at the end, or at a line that is too long to be one."""
        while True:
            try:
                line = await self._child.stdout.readline()
            except (ValueError, OSError):
                return None
            if not line:
                return None
            with suppress(msgspec.MsgspecError, RecursionError):
                message = msgspec.json.decode(line)
                if isinstance(message, dict):
                    return message

    async def close(self) -> None:
        self._child.stdin.close()


class Peer:
    """A warm process. ``name``: what it calls itself; ``open``: its sessions that were opened; ``sound``: it can be
    given another turn."""

    def __init__(self, child: Running, *, allow: bool) -> None:
        """``allow``: what it asks leave for is granted."""
        self._child, self._allow = child, allow
        self._connection = Connection(self._answer, _Pipes(child))
        self._ear: _Ear | None = None
        self._heard_at = 0.0
        self._can: dict[str, Any] = {}
        self.name = self.version = ""
        self.open: set[str] = set()
        self.sound = True

    async def begin(self) -> None:
        """Agree on the protocol. Raises ``RequestError``, or ``NeverHeard`` when it ends instead."""
        wish = {
            "protocolVersion": PROTOCOL_VERSION,
            "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
            "clientInfo": {"name": "angelia", "version": "1"},
        }
        said = await self._ask("initialize", wish)
        about = _dict(said.get("agentInfo"))
        self.name, self.version = str(about.get("name") or ""), str(about.get("version") or "")
        self._can = _dict(said.get("agentCapabilities"))

    async def enter(self, session: str | None, folder: str) -> tuple[str, str]:
        """The session to go on in, and a word about it. Raises as ``begin``."""
        where = {"cwd": folder, "mcpServers": []}
        note = ""
        if session is not None:
            if session in self.open or await self._load(session, where):
                return session, note
            note = "a new session (the old one could not be loaded)"
        made = (await self._ask("session_new", where)).get("sessionId")
        if not isinstance(made, str) or not made:
            raise RequestError(-32603, "session/new gave no session")
        self.open.add(made)
        return made, note

    async def _load(self, session: str, where: dict[str, Any]) -> bool:
        """Open a session of an earlier process, by the way that does not tell its past where there is one."""
        if "resume" in _dict(self._can.get("sessionCapabilities")):
            way = "session_resume"
        elif self._can.get("loadSession") is True:
            way = "session_load"
        else:
            return False
        try:
            await self._ask(way, {"sessionId": session, **where})
        except RequestError:
            return False
        self.open.add(session)
        await self._until_quiet()
        return True

    async def _until_quiet(self) -> None:
        loop = asyncio.get_running_loop()
        begun = self._heard_at = loop.time()
        while (left := self._heard_at + QUIET_SECONDS - loop.time()) > 0 and loop.time() < begun + PAST_SECONDS:
            await asyncio.sleep(left)

    async def prompt(self, session: str, text: str, seconds: float) -> Said | Refused | Ended:
        """Run a turn in an open session. Raises ``NeverHeard``. Cancelled, it asks the agent to stop first; ``sound``
        then says whether it did."""
        self._ear = ear = _Ear(session)
        self.sound = False
        mark = self._child.last_words()
        async with asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(self._prompt(ear, text))
            over = tasks.create_task(self._child.wait())
            full = tasks.create_task(ear.full.wait())
            try:
                await asyncio.wait({asked, over, full}, timeout=seconds * PATIENCE, return_when=asyncio.FIRST_COMPLETED)
                log = self._in_vain(mark)
                if not log:
                    await asyncio.wait({asked, over, full}, return_when=asyncio.FIRST_COMPLETED)
                if over.done():
                    await asyncio.wait({asked}, timeout=LAST_WORD_SECONDS)
                if full.done() or not (asked.done() or over.done()):
                    await self._call_off(session, asked)
            except asyncio.CancelledError:
                await self._call_off(session, asked)
                raise
            finally:
                self._ear = None
                for task in (asked, over, full):
                    task.cancel()
        if full.done() and not full.cancelled():
            return Ended("too much")
        if asked.done() and not asked.cancelled():
            end = asked.result()
            if isinstance(end, NeverHeard):
                raise end
            self.sound = not isinstance(end, Ended) and not over_was(over)
            return end
        return Ended("gone") if over_was(over) else Ended("nothing but try again", log)
