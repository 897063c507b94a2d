"""Where hubs of a rig stand, how they are joined, and how a line between them is cut.

What must stay true: whatever was made here is gone afterwards; addresses are those of namespaces that were made here,
or of the loopback range. A cut takes effect without any hub being told, and ends the same way.
"""

import asyncio
import os
import random
import shutil
import socket
import struct
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

BLOCK = 65536
COMMAND_SECONDS = 20
Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Cut:
    """A line that can be cut: its name; the hubs by number of which all must be on a message's way for it to matter."""

    name: str
    hubs: tuple[int, ...]
    begin: Callable[[], Awaitable[None]]
    end: Callable[[], Awaitable[None]]


class Ground(Protocol):
    """``prefix``: what is put before a hub's command. ``args``, ``env``: of the hub itself. ``target``: where one hub
    finds another one, given that one's port. ``needs_code``: hubs are strangers until they are paired. ``weathers``:
    what makes a line bad, where it can be made so, and not only cut."""

    needs_code: bool

    def prefix(self, number: int) -> tuple[str, ...]: ...
    def args(self, number: int) -> tuple[str, ...]: ...
    def env(self, number: int) -> dict[str, str]: ...
    async def target(self, dialler: int, number: int, port: int) -> str: ...
    def cuts(self) -> Sequence[Cut]: ...
    def weathers(self) -> Sequence[Cut]: ...
    async def close(self) -> None: ...


def why_no_namespaces() -> str | None:
    """Why network namespaces cannot be made here; None where they can."""
    if os.geteuid() != 0:
        return "network namespaces take root"
    if shutil.which("ip") is None:
        return "network namespaces take the command ip"
    name = f"ang{os.getpid()}-try"
    try:
        _ip("netns", "add", name)
        _ip("-n", name, "link", "add", "bridge0", "type", "bridge")
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        return f"network namespaces cannot be made here: {error}"
    finally:
        with suppress(subprocess.CalledProcessError):
            _ip("netns", "del", name)
    return None


class Namespaces:
    """A network namespace for each hub, and a bridge in one more that joins them.

    A cut takes a hub's port off the bridge: frames vanish, and nobody is told.
    """

    needs_code = True

    def __init__(self, count: int) -> None:
        self._bridge = f"ang{os.getpid()}-net"
        self._names = [f"ang{os.getpid()}-{number}" for number in range(count)]
        try:
            self._make()
        except BaseException:
            self._remove()
            raise

    def _make(self) -> None:
        _ip("netns", "add", self._bridge)
        _ip("-n", self._bridge, "link", "add", "bridge0", "type", "bridge", "forward_delay", "0")
        _ip("-n", self._bridge, "link", "set", "bridge0", "up")
        for number, name in enumerate(self._names):
            port = f"port{number}"
            _ip("netns", "add", name)
            _ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", self._bridge)
            _ip("-n", self._bridge, "link", "set", port, "master", "bridge0", "up")
            _ip("-n", name, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def address(self, number: int) -> str:
        return f"10.77.0.{number + 1}"

    def prefix(self, number: int) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self._names[number])

    def args(self, number: int) -> tuple[str, ...]:
        return ("--host", "127.0.0.1", "--host", self.address(number), "--behind-proxy")

    def env(self, number: int) -> dict[str, str]:
        return {"ANGELIA_ALLOWED_HOSTS": self.address(number)}

    async def target(self, dialler: int, number: int, port: int) -> str:
        return f"ws://{self.address(number)}:{port}"

    def cuts(self) -> Sequence[Cut]:
        return [
            Cut(f"unplug {number}", (number,), self._plug(number, "down"), self._plug(number, "up"))
            for number in range(len(self._names))
        ]

    def weathers(self) -> Sequence[Cut]:
        return ()

    def _plug(self, number: int, how: str) -> Callable[[], Awaitable[None]]:
        async def plug() -> None:
            await asyncio.to_thread(_ip, "-n", self._bridge, "link", "set", f"port{number}", how)

        return plug

    async def close(self) -> None:
        self._remove()

    def _remove(self) -> None:
        for name in (*self._names, self._bridge):
            if Path("/run/netns", name).exists():
                _ip("netns", "del", name)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=COMMAND_SECONDS)


class Loopback:
    """All hubs on loopback, and a gate of ours on each way from a dialler to another hub.

    A gate has an address of its own (127.0.0.11 and so on) and the hub's port, so that a Host header fits. A cut is one
    of three kinds, drawn anew each time: the connections are reset and new ones refused; or nothing is carried any
    more, and nobody is told; or the bytes that come in vanish.
    """

    needs_code = False

    def __init__(self, count: int, dice: random.Random) -> None:
        self._count, self._dice = count, dice
        self._gates: dict[Pair, Gate] = {}

    def prefix(self, number: int) -> tuple[str, ...]:
        return ()

    def args(self, number: int) -> tuple[str, ...]:
        return ()

    def env(self, number: int) -> dict[str, str]:
        diallers = (other for other in range(self._count) if other != number)
        return {"ANGELIA_ALLOWED_HOSTS": ",".join(_gate_host(dialler, number) for dialler in diallers)}

    async def target(self, dialler: int, number: int, port: int) -> str:
        gate = self._gates[dialler, number] = self._gate(_gate_host(dialler, number), port)
        await gate.open()
        return f"ws://{gate.host}:{port}"

    def _gate(self, host: str, port: int) -> "Gate":
        return Gate(host, port)

    def weathers(self) -> Sequence[Cut]:
        return ()

    def cuts(self) -> Sequence[Cut]:
        return [
            Cut(f"cut {dialler}-{number}", (dialler, number), self._shut(gate), gate.heal)
            for (dialler, number), gate in self._gates.items()
        ]

    def _shut(self, gate: "Gate") -> Callable[[], Awaitable[None]]:
        async def shut() -> None:
            await gate.shut(self._dice.choice(Gate.WAYS))

        return shut

    async def close(self) -> None:
        for gate in self._gates.values():
            await gate.close()


def _gate_host(dialler: int, number: int) -> str:
    return f"127.0.0.{10 * (dialler + 1) + number + 1}"


class Gate:
    """Carries TCP connections on from an address of its own to 127.0.0.1, while it is open."""

    WAYS = ("reset", "hold", "swallow")

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self._server: asyncio.Server | None = None
        self._way = ""
        self._flows = asyncio.Event()
        self._flows.set()
        self._carried: set[asyncio.StreamWriter] = set()
        self._carriers: set[asyncio.Task[object]] = set()

    async def open(self) -> None:
        """Take connections."""
        self._server = await asyncio.start_server(self._carry, self.host, self.port)

    async def shut(self, way: str) -> None:
        """Cut every connection, in one of ``WAYS``."""
        self._way = way
        self._flows.clear()
        if way == "reset":
            self._refuse()
            self._reset()

    async def heal(self) -> None:
        """Carry on. Connections that lost bytes are reset, as they would be by a timeout some time."""
        if self._way != "hold":
            self._reset()
        self._way = ""
        self._flows.set()
        if self._server is None:
            await self.open()

    async def close(self) -> None:
        """Refuse new connections, reset those that are there, and wait until nothing of it is left."""
        self._refuse()
        self._reset()
        self._flows.set()
        if self._carriers:
            await asyncio.wait(self._carriers)

    def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _reset(self) -> None:
        for writer in self._carried:
            raw = writer.get_extra_info("socket")
            with suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        self._carried.clear()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._carriers.add(task)
        task.add_done_callback(self._carriers.discard)
        self._carried.add(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            self._drop(writer)
            return
        self._carried.add(far_writer)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pump(reader, far_writer))
                tasks.create_task(self._pump(far_reader, writer))
        finally:
            self._drop(writer)
            self._drop(far_writer)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await reader.read(BLOCK):
                if await self._lets_by():
                    writer.write(piece)
                    await writer.drain()
        self._drop(writer)

    async def _lets_by(self) -> bool:
        """Whether bytes that have come in are carried on, once that is known; else they vanish."""
        if self._way == "swallow":
            return False
        await self._flows.wait()
        return True

    def _drop(self, writer: asyncio.StreamWriter) -> None:
        self._carried.discard(writer)
        writer.close()
