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
ANSWER_SECONDS = 60.0  # to anything but a prompt: some agents load for ten
CANCEL_SECONDS = 3.0  # from asking it to stop to ending it
LAST_WORD_SECONDS = 1.0  # from the end of the process to the last line that it wrote before
# Gemini CLI tells a conversation's past after it said that it was loaded; then it is quiet. At most so long.
QUIET_SECONDS, PAST_SECONDS = 0.3, 10.0
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
    """There was no end of the turn: the process was ``gone``, said ``too much``, or was ``silent`` until its time was
    nearly over, and was ended (``log``: what it wrote of trying again and again, if it did)."""

    how: Literal["gone", "too much", "silent"]
    log: str = ""


@dataclass(slots=True)
class _Ear:
    """What is heard of one turn."""

    session: str
    pieces: list[str] = field(default_factory=list)
    size: int = 0
    told: bool = False  # it does something
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
            self.told = True
            if self.broken and self.pieces:
                self.pieces.append("\n\n")
            self.broken = False
            self.size += len(text.encode("utf-8", "replace"))
            if self.size > ANSWER_BYTES:
                self.full.set()
            else:
                self.pieces.append(text)
        elif kind in ("agent_thought_chunk", "tool_call", "tool_call_update", "plan"):
            self.told = True
            self.broken = self.broken or kind == "tool_call"


class _Pipes:
    """The package's transport over a child's pipes, bounded, and deaf to what is no message."""

    def __init__(self, child: Running) -> None:
        self._child = child
        self.sent: str | None = None  # the method of what went out last
        self.too_long = False  # a line was

    def forget(self) -> None:
        """Nothing has been sent."""
        self.sent = None

    async def send(self, message: dict[str, Any]) -> None:
        self._child.stdin.write(msgspec.json.encode(message) + b"\n")
        await self._child.stdin.drain()  # raises where the end of the line did not get out
        self.sent = message.get("method")

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None at the end, or at a line that is too long to be one."""
        while True:
            try:
                line = await self._child.stdout.readline()
            except ValueError:
                self.too_long = True
                return None
            except OSError:
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
        self._pipes = _Pipes(child)
        self._connection = Connection(self._answer, self._pipes)
        self._ear: _Ear | None = None
        self._told = asyncio.Event()
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

    @property
    def resumes(self) -> bool:
        """Whether it can go on in a session of an earlier process."""
        return self._has_resume or self._can.get("loadSession") is True

    @property
    def _has_resume(self) -> bool:
        return _dict(self._can.get("sessionCapabilities")).get("resume") is not None

    async def _load(self, session: str, where: dict[str, Any]) -> bool:
        """Open a session of an earlier process, by the way that does not tell its past where there is one."""
        if not self.resumes:
            return False
        way = "session_resume" if self._has_resume else "session_load"
        try:
            await self._ask(way, {"sessionId": session, **where})
        except RequestError:
            return False
        self.open.add(session)
        await self._until_quiet()
        return True

    async def _until_quiet(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(PAST_SECONDS):
                while True:
                    self._told.clear()
                    async with asyncio.timeout(QUIET_SECONDS):
                        await self._told.wait()

    async def prompt(self, session: str, text: str, patience: float) -> Said | Refused | Ended:
        """Run a turn in an open session; ``patience``: for how many seconds it may be silent. Raises ``NeverHeard``.
        Cancelled, it asks the agent to stop first; ``sound`` then says whether it did."""
        self.sound = False
        async with asyncio.TaskGroup() as tasks:
            over = tasks.create_task(self._child.wait())
            await asyncio.sleep(0)  # an end that is known already is heard of here
            self._ear = ear = _Ear(session)
            asked = tasks.create_task(_nothing() if over.done() else self._prompt(ear, text))
            full = tasks.create_task(ear.full.wait())
            try:
                end = await self._hear_out(ear, asked, over, full, patience)
            except asyncio.CancelledError:
                self.sound = await self._call_off(session, asked)
                raise
            finally:
                self._ear = None
                for task in (asked, over, full):
                    task.cancel()
        if end is None:
            raise NeverHeard("It had ended.")
        return end

    async def _hear_out(
        self,
        ear: _Ear,
        asked: "asyncio.Task[Said | Refused | Ended | None]",
        over: "asyncio.Task[int]",
        full: "asyncio.Task[bool]",
        patience: float,
    ) -> Said | Refused | Ended | None:
        mark = self._child.last_words()
        either = {asked, over, full}
        if not (await asyncio.wait(either, timeout=patience, return_when=asyncio.FIRST_COMPLETED))[0]:
            if not ear.told:
                await self._call_off(ear.session, asked)
                await self.end()
                if ear.pieces and asked.done():
                    return asked.result()  # it answered at that very moment
                return Ended("silent", _tries_again(mark, self._child.last_words()))
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if ear.full.is_set():
            self.sound = await self._call_off(ear.session, asked)
            return Ended("too much")
        done, _ = await asyncio.wait({asked}, timeout=LAST_WORD_SECONDS)
        end = asked.result() if done else Ended("gone")
        self.sound = isinstance(end, Said | Refused) and not over.done()
        return end

    async def _prompt(self, ear: _Ear, text: str) -> Said | Refused | Ended | None:
        """None where the process cannot have had it."""
        method = AGENT_METHODS["session_prompt"]
        wish = {"sessionId": ear.session, "prompt": [{"type": "text", "text": text}]}
        self._pipes.forget()
        try:
            result = await self._connection.send_request(method, wish)
        except RequestError as error:
            return Refused(error.code, str(error), error.data)
        except OSError:
            if self._pipes.too_long:
                return Ended("too much")
            return Ended("gone") if self._pipes.sent == method else None
        return Said(_dict(result), "".join(ear.pieces))

    async def _call_off(self, session: str, asked: "asyncio.Task[Said | Refused | Ended | None]") -> bool:
        """Ask it to stop what it does; whether it has within a few seconds."""
        try:
            async with asyncio.timeout(CANCEL_SECONDS):
                await self._connection.send_notification(AGENT_METHODS["session_cancel"], {"sessionId": session})
                await asyncio.wait({asked})
        except (TimeoutError, OSError):
            return False
        return isinstance(asked.result(), Said | Refused)

    async def end(self) -> None:
        """End the process."""
        self.sound = False
        try:
            await self._connection.close()
        finally:
            await self._child.end()

    def last_words(self) -> str:
        """The end of what it wrote to standard error."""
        return self._child.last_words()

    async def _ask(self, method: str, wish: dict[str, Any]) -> dict[str, Any]:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return _dict(await self._connection.send_request(AGENT_METHODS[method], wish))
        except TimeoutError:
            raise NeverHeard(f"It did not answer {AGENT_METHODS[method]} within {ANSWER_SECONDS:g} s.") from None
        except OSError:
            raise NeverHeard("It ended before it was given anything.") from None

    async def _answer(self, method: str, params: Any, is_notification: bool) -> Any:
        """What the agent asks of us, or tells us."""
        params = _dict(params)
        if method == CLIENT_METHODS["session_update"]:
            self._told.set()
            if self._ear is not None and params.get("sessionId") == self._ear.session:
                self._ear.hear(_dict(params.get("update")))
            return None
        if method == CLIENT_METHODS["session_request_permission"]:
            return {"outcome": _outcome(params.get("options"), allow=self._allow)}
        if is_notification:
            return None
        raise RequestError.method_not_found(method)


async def _nothing() -> None:
    """What is asked of a process that has ended."""


def _outcome(options: Any, *, allow: bool) -> dict[str, Any]:
    """The answer to a question for leave: for this once, where that is offered; nothing is chosen against the rule."""
    wanted = ("allow_once", "allow_always") if allow else ("reject_once", "reject_always")
    offered = [option for option in (options if isinstance(options, list) else ()) if isinstance(option, dict)]
    for kind in wanted:
        for option in offered:
            if option.get("kind") == kind and isinstance(option.get("optionId"), str):
                return {"outcome": "selected", "optionId": option["optionId"]}
    return {"outcome": "cancelled"}


def _tries_again(before: str, log: str) -> str:
    """The last line that speaks of another try, where it was written since ``before``; with what follows it."""
    found = list(_TRIES_AGAIN.finditer(log))
    if not found or found[-1][0] in before:
        return ""
    return log[found[-1].start() :]


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
