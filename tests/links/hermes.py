"""A stand-in of a Hermes gateway as a process of its own, and what its agents and its files do, for tests of links.

What must stay true: it is started and stopped here and by nobody else. A message is put into its outbox, and an answer
waited for, as Hermes' ``message_agent`` and its waiter do it: by files alone.
"""

import asyncio
import json
import os
import signal
import sys
import time
import uuid
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).parent / "stand_ins" / "hermes_gateway.py"
SECONDS = 10.0  # no wait of these tests needs as much
LOOK_SECONDS = 0.01
Json = dict[str, Any]


async def until(look: Callable[[], Any], seconds: float = SECONDS, what: str = "") -> Any:
    """Look again and again until it is true; what it was then."""
    ends = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < ends, f"not within {seconds:g} s: {what or look} (last: {found!r})"
        await asyncio.sleep(LOOK_SECONDS)
    return found


class Gateway:
    """One gateway over ``home``. ``settings``: what ``hermes_gateway.DEFAULTS`` names."""

    def __init__(self, home: Path, **settings: Any) -> None:
        self.home, self.relay = home, home / "bot_relay"
        self.settings: Json = {"tick": 0.05, **settings}
        self.port = 0
        self._process: Process | None = None

    # ------------------------------------------------------------------------------------------------------ process

    async def start(self) -> None:
        """Start it; on the port that it had."""
        self.home.mkdir(parents=True, exist_ok=True)
        self.set()
        command = (sys.executable, str(PROGRAM), str(self.home), str(self.port))
        self._process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
        assert self._process.stdout is not None
        word, port = (await self._process.stdout.readline()).split()
        assert word == b"ready"
        self.port = int(port)

    async def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it, politely or not."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(how)
            async with asyncio.timeout(SECONDS):
                await self._process.wait()

    def freeze(self, frozen: bool) -> None:
        """It hangs, or goes on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)

    def set(self, **settings: Any) -> None:
        """Change what it does from now on."""
        self.settings |= settings
        part = self.home / "stand_in.part"
        part.write_text(json.dumps(self.settings), encoding="utf-8")
        part.replace(self.home / "stand_in.json")

    def go(self, name: str) -> None:
        """Let what is held under a name go on."""
        (self.home / "go").mkdir(exist_ok=True)
        (self.home / "go" / name).touch()

    @property
    def url(self) -> str:
        """Where its WebSocket is, with the token of one that is not gated."""
        return f"ws://127.0.0.1:{self.port}/api/ws?token={self.settings.get('token', 'secret')}"

    # --------------------------------------------------------------------------------------------------------- log

    def events(self, event: str, method: str | None = None) -> list[Json]:
        """What it noted: of calls that came (call), are at work (work), run a turn (turn) or ended (end)."""
        path = self.home / "calls.jsonl"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        lines = text[: text.rfind("\n") + 1].splitlines()  # the last one may be half written
        found = [json.loads(line) for line in lines]
        return [each for each in found if each["event"] == event and method in (None, each.get("method"))]

    def calls(self, method: str) -> list[Json]:
        """The parameters of all calls of a method, in their order."""
        return [each["params"] for each in self.events("call", method)]

    @property
    def signals(self) -> int:
        """How often it has said that there is mail."""
        return len(self.events("signal"))

    def turns(self, profile: str | None = None) -> list[str]:
        """The texts that its agents read, in their order."""
        return [each["text"] for each in self.events("turn") if profile in (None, each["profile"])]

    # -------------------------------------------------------------------------------------------------- its own agents

    @property
    def roster(self) -> list[Json]:
        """Whom its agents see on other connections."""
        path = self.relay / "roster.json"
        agents: list[Json] = json.loads(path.read_text(encoding="utf-8"))["agents"] if path.exists() else []
        return agents

    def enqueue(
        self, target: str, text: str, *, sender: str = "default", name: str | None = None, **fields: Any
    ) -> str:
        """What ``message_agent`` of a profile leaves behind: an envelope to ``profile@connection``. Its id."""
        profile, _, connection = target.partition("@")
        handle = "hermes" if sender == "default" else sender
        envelope = {
            "id": uuid.uuid4().hex,
            "created_at": int(time.time()),
            "from_profile": sender,
            "from_handle": handle,
            "target_connection": connection,
            "target_profile": profile,
            "target_handle": "hermes" if profile == "default" else profile,
            "message": f"Message from \N{ROBOT FACE} {handle} (@{handle}): {text}",
            **fields,
        }
        outbox = self.relay / "outbox"
        outbox.mkdir(parents=True, exist_ok=True)
        part = outbox / f".env-{uuid.uuid4().hex}.tmp"
        part.write_text(json.dumps(envelope, ensure_ascii=False), encoding="utf-8")
        now = time.time_ns()  # the file system's own clock ticks too slowly to tell which is the older one
        os.utime(part, ns=(now, now))
        part.replace(outbox / f"{name or envelope['id']}.json")
        return str(envelope["id"])

    def answer(self, id: str) -> Json | None:
        """The reply file of an envelope."""
        path = self.relay / "replies" / f"{id}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    async def answered(self, id: str, seconds: float = SECONDS) -> Json:
        """Wait for it, as Hermes' waiter does."""
        found: Json = await until(lambda: self.answer(id), seconds, f"an answer to {id}")
        return found


@asynccontextmanager
async def a_gateway(home: Path, **settings: Any) -> AsyncIterator[Gateway]:
    """One that runs."""
    gateway = Gateway(home, **settings)
    await gateway.start()
    try:
        yield gateway
    finally:
        if gateway._process is not None and gateway._process.returncode is None:
            gateway.freeze(frozen=False)
        await gateway.stop(signal.SIGKILL)
