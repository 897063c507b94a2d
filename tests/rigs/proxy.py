"""A network that is bad in every way that networks are, between a client and a hub, or between two hubs.

What must stay true: bytes that are carried are carried in order and unchanged; how bad it is may change at any moment,
and is then so for what is open, too. Nobody is told.
"""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from tests.rigs.ground import Cut, Gate, Loopback

HOST = "127.0.0.77"
BLOCK = 65536


@dataclass(frozen=True, slots=True)
class Weather:
    """How bad it is. ``delay``: seconds for each piece; ``piece``: bytes at a time; ``cut_after``: so many bytes of
    answers, and then a reset; ``asks``, ``answers``: whether what goes to the hub, and what comes from it, arrives at
    all (neither: a black hole; no answers: half open, and every answer is lost behind its commit). ``turned``: what is
    said of the one direction holds for the other (between two hubs both ask, on one connection)."""

    name: str
    delay: float = 0.0
    piece: int = BLOCK
    cut_after: int | None = None
    asks: bool = True
    answers: bool = True
    turned: bool = False


FAIR = Weather("fair")
LATE = Weather("late", delay=0.05)
BYTES = Weather("bytes", piece=1)
BLACK_HOLE = Weather("black hole", asks=False, answers=False)
HALF_OPEN = Weather("half open", answers=False)
CUTS = tuple(Weather(f"cut after {size}", cut_after=size) for size in (0, 1, 17, 120, 1000, 10_000))
ALL = (LATE, BYTES, BLACK_HOLE, HALF_OPEN, *CUTS)


class Proxy(Gate):
    """Carries connections on to a hub, through ``weather``, and can be shut as any gate can."""

    def __init__(self, port: int, host: str = HOST) -> None:
        super().__init__(host, port)
        self.weather = FAIR
        self.carried = 0  # connections so far

    def turn(self, weather: Weather) -> None:
        """It is like this from now on. Connections that lost bytes are reset when bytes are carried again."""
        lost = not (self.weather.asks and self.weather.answers)
        self.weather = weather
        if lost:
            self.reset()

    def reset(self) -> None:
        """Reset every connection that is open."""
        self._reset()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_hub = writer.get_extra_info("peername")[1] == self.port
        self.carried += to_hub
        sent = 0
        with suppress(OSError):
            while data := await reader.read(BLOCK):
                while data:
                    lets_by, weather = await self._lets_by(), self.weather
                    asks = to_hub is not weather.turned
                    piece, data = data[: weather.piece], data[weather.piece :]
                    if weather.delay:
                        await asyncio.sleep(weather.delay)
                    if not (lets_by and (weather.asks if asks else weather.answers)):
                        continue
                    cut_after = None if asks else weather.cut_after
                    if cut_after is not None:
                        piece = piece[: max(cut_after - sent, 0)]
                    writer.write(piece)
                    await writer.drain()
                    sent += len(piece)
                    if cut_after is not None and sent >= cut_after:
                        await asyncio.sleep(0.01)  # until what was carried has arrived: a reset would take it back
                        self._cut(writer)
                        return
        self._drop(writer)

    def _cut(self, writer: asyncio.StreamWriter) -> None:
        raw = writer.get_extra_info("socket")
        with suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._carried.discard(writer)
        writer.transport.abort()


class Weathered(Loopback):
    """Hubs on loopback with such a proxy on each way, where it is bad in one direction or in the other."""

    def _gate(self, host: str, port: int) -> Proxy:
        return Proxy(port, host)

    def weathers(self) -> Sequence[Cut]:
        return [
            Cut(f"weather {dialler}-{number}", (dialler, number), self._turn(gate), self._clear(gate))
            for (dialler, number), gate in self._gates.items()
            if isinstance(gate, Proxy)
        ]

    def _turn(self, proxy: Proxy) -> Callable[[], Awaitable[None]]:
        async def turn() -> None:
            proxy.turn(replace(self._dice.choice(ALL), turned=self._dice.random() < 0.5))

        return turn

    def _clear(self, proxy: Proxy) -> Callable[[], Awaitable[None]]:
        async def clear() -> None:
            proxy.turn(FAIR)

        return clear
