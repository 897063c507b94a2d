"""The reading threads: each has a connection of its own, and takes one read at a time.

What must stay true: a read sees one picture, of everything whose future was done before it began; its transaction ends
with its function. A picture may be taken back by the writer; the function is then run again on a newer one.
"""

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any

import apsw

from angelia.model.errors import Unwell
from angelia.storage.sqlite.connect import ReadingDesk, as_model_error
from angelia.storage.sqlite.view import UNKNOWN, SqliteView

TRIES = 4  # a read that loses its picture as often is too slow for the load; it is told so (an interrupt may cost two)

Job = tuple[Callable[[Any], Any], "asyncio.Future[Any]"]


class Readers:
    """Some threads on one queue. ``damaged`` is told, in a reading thread, of a row that must be set aside; of
    ``UNKNOWN`` where there is one that could not be read."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        desks: list[ReadingDesk],
        damaged: Callable[[int, str], None],
        view: type[SqliteView] = SqliteView,
    ) -> None:
        self._loop, self._desks, self._damaged, self._view = loop, desks, damaged, view
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._threads = [
            Thread(target=self._serve, args=(desk,), name=f"angelia-read-{number}", daemon=True)
            for number, desk in enumerate(desks)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[[Any], Any]) -> "asyncio.Future[Any]":
        """Queue a read; ``work`` gets a view of the kind that was chosen."""
        future = self._loop.create_future()
        self._queue.put((work, future))
        return future

    def revoke(self) -> None:
        """Take back every picture that is held now. Called by the writer."""
        for desk in self._desks:
            desk.revoke()

    def stop(self) -> None:
        """Finish what is queued, then end; blocks until then."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        for desk in self._desks:
            desk.close()

    def _serve(self, desk: ReadingDesk) -> None:
        while (job := self._queue.get()) is not None:
            work, future = job
            if future.cancelled():
                continue
            result, error = self._read(desk, work)
            if not answer(self._loop, future, result, error):
                return

    def _read(self, desk: ReadingDesk, work: Callable[[Any], Any]) -> tuple[Any, BaseException | None]:
        for _ in range(TRIES):
            try:
                desk.begin()
                return work(self._view(desk, self._damaged)), None
            except BaseException as error:  # noqa: BLE001  (it goes to whoever asked)
                if not (desk.lost or isinstance(error, apsw.InterruptError)):
                    if isinstance(error, apsw.CorruptError):
                        self._damaged(*UNKNOWN)
                    return None, as_model_error(error)
            finally:
                desk.end()
        return None, Unwell("The read took so long that its picture was given up; ask for less, or again later.")


def answer(
    loop: asyncio.AbstractEventLoop, future: "asyncio.Future[Any]", result: object, error: BaseException | None
) -> bool:
    """Settle a future from another thread; False where the loop is gone, and with it whoever asked."""
    try:
        loop.call_soon_threadsafe(_settle, future, result, error)
    except RuntimeError:
        return False
    return True


def _settle(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
