"""OpenClaw's gateway: its frames over a WebSocket, as one connection with questions and answers. Protocols 3 and 4.

What must stay true:

- Whoever asks can tell a gateway that is not there (``Unreachable``), one that said no (``Refused``), and one whose
  answer was lost (``Broken``): only after the last can something have happened that nobody knows of.
- A gateway that is still starting says so and is asked again, as soon as it says, within the caller's time.
- Frames are read to a bound; what was not asked for is passed over.

It comes in as OpenClaw's own local clients do, by the shared token and without a device, which the gateway grants to a
direct connection on loopback alone. What a method means is ``openclaw.py``'s part.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

from angelia import __version__
from angelia.protocol.foreign_json import Malformed, read, write

PROTOCOLS = (3, 4)
OPEN_SECONDS = 10.0
ANSWER_SECONDS = 30.0  # for anything but a run: its own work is done in milliseconds, its start blocks it for seconds
PING_SECONDS = 60.0  # it does not read while it loads a plugin or a long history
FRAME_BYTES = 32 * 1024 * 1024  # above its own bound of 25 MiB
FRAME_DEPTH = 64  # an answer carries reports of what was in the prompt, nested deeper than our own messages
RETRY_SECONDS = 0.5  # where it does not say when to come back
MOST_RETRY_SECONDS = 5.0
SCOPES = ("operator.read", "operator.write")


class Unreachable(Exception):
    """Nobody is there, so nothing was said to anyone."""


class Broken(Exception):
    """The connection ended, or what came is no frame, after something was asked."""


class Refused(Exception):
    """It said no. ``code``: its word for why; ``payload``: what else the answer holds."""

    def __init__(self, error: Mapping[str, Any], payload: Mapping[str, Any]) -> None:
        """Takes the two parts of its answer."""
        super().__init__(str(error.get("message") or "it does not say why"))
        details = error.get("details")
        detail = details.get("code") if isinstance(details, dict) else None
        self.code = str(error.get("code") or "")
        self.detail = str(detail or "")
        self.payload = payload
        self.retryable = error.get("retryable") is True
        after = error.get("retryAfterMs")
        self.wait_seconds = min(after / 1000, MOST_RETRY_SECONDS) if isinstance(after, int | float) else RETRY_SECONDS


class Gateway:
    """One open connection. One task's at a time."""

    def __init__(self, socket: ClientConnection) -> None:
        """Takes a connection whose first frame, the challenge, has not been read."""
        self._socket = socket
        self._numbers = itertools.count(1)

    async def ask(self, method: str, params: Mapping[str, Any], seconds: float = ANSWER_SECONDS) -> Mapping[str, Any]:
        """The payload of one answer. Raises ``Refused``, ``Broken``, or ``TimeoutError``."""
        async with asyncio.timeout(seconds):
            return await self.hear(await self.put(method, params))

    async def put(self, method: str, params: Mapping[str, Any]) -> str:
        """Ask without waiting. Out: what ``hear`` knows the answer by. Raises ``Broken``."""
        number = f"angelia-{next(self._numbers)}"
        try:
            await self._socket.send(write({"type": "req", "id": number, "method": method, "params": params}).decode())
        except ConnectionClosed as error:
            raise Broken("the gateway hung up") from error
        return number

    async def hear(self, number: str) -> Mapping[str, Any]:
        """The payload of the next answer to ``number``. Raises ``Refused`` or ``Broken``."""
        while True:
            frame = await self._frame()
            if frame.get("type") == "res" and frame.get("id") == number:
                payload = mapping(frame.get("payload"))
                if frame.get("ok") is not True:
                    raise Refused(mapping(frame.get("error")), payload)
                return payload

    async def greet(self, token: str | None) -> Mapping[str, Any]:
        """Introduce ourselves. Out: what the gateway says of itself. Raises as ``ask``."""
        async with asyncio.timeout(ANSWER_SECONDS):
            while (await self._frame()).get("event") != "connect.challenge":
                pass
        about = {"id": "gateway-client", "version": __version__, "platform": "python", "mode": "backend"}
        auth = {"auth": {"token": token}} if token else {}
        lowest, highest = PROTOCOLS
        offer = {"minProtocol": lowest, "maxProtocol": highest, "client": about, "role": "operator", "caps": []}
        return await self.ask("connect", {**offer, "scopes": list(SCOPES), **auth})

    async def _frame(self) -> Mapping[str, Any]:
        try:
            data = await self._socket.recv(decode=False)
            return mapping(read(data, FRAME_DEPTH))
        except ConnectionClosed as error:
            raise Broken("the gateway hung up") from error
        except Malformed as error:
            raise Broken(f"what came is no frame: {error}") from error


@asynccontextmanager
async def connected(url: str, token: str | None, seconds: float) -> AsyncIterator[Gateway]:
    """A connection that was let in; one that is starting is waited for, up to ``seconds``. Ends with the block.

    Raises ``Unreachable`` or ``Refused``.
    """
    ends = asyncio.get_running_loop().time() + seconds
    while True:
        socket = await _opened(url)
        try:
            gateway = Gateway(socket)
            try:
                await gateway.greet(token)
            except (Broken, TimeoutError) as error:
                raise Unreachable("the gateway does not let anybody in") from error
            except Refused as error:
                if not error.retryable or asyncio.get_running_loop().time() + error.wait_seconds >= ends:
                    raise
                await asyncio.sleep(error.wait_seconds)
                continue
            yield gateway
            return
        finally:
            await socket.close()


async def _opened(url: str) -> ClientConnection:
    try:
        return await connect(
            url,
            compression=None,
            proxy=None,
            max_size=FRAME_BYTES,
            open_timeout=OPEN_SECONDS,
            close_timeout=1,
            ping_interval=PING_SECONDS,
            ping_timeout=PING_SECONDS,
            user_agent_header=None,
        )
    except (OSError, TimeoutError, InvalidHandshake, InvalidURI, ConnectionClosed) as error:
        raise Unreachable("nobody answers there as an OpenClaw gateway does") from error


def mapping(value: object) -> Mapping[str, Any]:
    """``value`` where it is an object; an empty one else."""
    return value if isinstance(value, dict) else {}


def listed(value: object) -> list[Mapping[str, Any]]:
    """The objects in ``value`` where it is a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
