"""Both clients, driven by the same test: ``Client`` as it is, and ``AsyncClient`` on a loop in a thread of its own.

What must stay true: nothing here repeats, waits for or mends anything, so that a test sees what the client does. The
loop runs all the time, as a program's would. Leaving the context ends it, and fails when a task was left.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Protocol

import uvloop

from angelia.client.aio.client import AsyncClient
from angelia.client.aio.stream import AsyncStream
from angelia.client.client import Client
from angelia.client.core.following import Following
from angelia.client.core.keeping import Held
from angelia.client.stream import Stream

END_SECONDS = 20.0
Body = Callable[[Held, dict[str, Any]], object]


class Reading(Protocol):
    """A stream, whichever driver reads it."""

    @property
    def last_event_id(self) -> str: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __next__(self) -> Any: ...
    def close(self) -> None: ...


class Driver(Protocol):
    """What a test may do with either client; every other call is the client's own."""

    def __enter__(self) -> "Driver": ...
    def __exit__(self, *_: object) -> None: ...
    def __getattr__(self, name: str) -> Any: ...
    def read(self, following: Following[Any]) -> Reading: ...
    def work(self, body: Body, **how: Any) -> None: ...


class Blocking:
    """``Client``."""

    def __init__(self, *given: Any, **more: Any) -> None:
        self.client = Client(*given, **more)

    def __enter__(self) -> "Blocking":
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    def read(self, following: Following[Any]) -> Reading:
        """Read a stream of one's own making."""
        return Stream(following, self.client._connect(), self.client._carry_out)

    def work(self, body: Body, **how: Any) -> None:
        """Do ``body`` for each claim."""
        for claim in self.client.claims(**how):
            with claim as message:
                body(claim, message)


class OnALoop:
    """``AsyncClient``, made and called on a loop of its own."""

    def __init__(self, *given: Any, **more: Any) -> None:
        pause = more.pop("pause", None)
        if pause is not None:

            async def paused(seconds: float) -> None:
                pause(seconds)

            more["pause"] = paused
        self._loop = self.new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        try:
            self.client = AsyncClient(*given, **more)
        except BaseException:
            self._stop()
            raise

    @staticmethod
    def new_loop() -> asyncio.AbstractEventLoop:
        return asyncio.new_event_loop()

    def __enter__(self) -> "OnALoop":
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        try:
            self._do(self.client.close())
            self._do(self._loop.shutdown_asyncgens())
            left = self._do(self._tasks())
            assert kind is not None or not left, f"left behind: {left}"
        finally:
            self._stop()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.client, name)
        if name in ("follow", "stream", "messages"):
            return lambda *given, **more: _Reading(self, found(*given, **more))
        return (lambda *given, **more: self._do(found(*given, **more))) if callable(found) else found

    def read(self, following: Following[Any]) -> Reading:
        """Read a stream of one's own making."""
        return _Reading(self, AsyncStream(following, self.client._connect(), self.client._carry_out))

    def work(self, body: Body, **how: Any) -> None:
        """Do ``body``, which may block, for each claim."""

        async def all_of_it() -> None:
            async for claim in self.client.claims(**how):
                async with claim as message:
                    await asyncio.to_thread(body, claim, message)

        self._do(all_of_it())

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _tasks(self) -> list[str]:
        await asyncio.sleep(0)
        return [repr(task) for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    def _stop(self) -> None:
        self._do(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(END_SECONDS)
        assert not self._thread.is_alive()
        self._loop.close()


class _Reading:
    def __init__(self, driver: OnALoop, stream: AsyncStream[Any]) -> None:
        self._driver = driver
        self._stream = stream

    @property
    def last_event_id(self) -> str:
        return self._stream.last_event_id

    def __enter__(self) -> "_Reading":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        async def following() -> list[Any]:
            return [item async for item in _first(self._stream)]

        found = self._driver._do(following())
        if not found:
            raise StopIteration
        return found[0]

    def close(self) -> None:
        self._driver._do(self._stream.close())


async def _first(stream: AsyncStream[Any]) -> Any:
    try:
        yield await anext(stream)
    except StopAsyncIteration:
        return


class OnUvloop(OnALoop):
    """The same on the loop that the hub runs on."""

    @staticmethod
    def new_loop() -> asyncio.AbstractEventLoop:
        return uvloop.new_event_loop()


DRIVERS: dict[str, Any] = {"blocking": Blocking, "asyncio": OnALoop}
EVERY_LOOP: dict[str, Any] = {**DRIVERS, "uvloop": OnUvloop}
