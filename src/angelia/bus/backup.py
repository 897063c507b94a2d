"""A verified copy of everything, while mail goes on.

What must stay true: it is told as done only when the copy was looked through. Nothing that was there is gone by one
that failed.
"""

from angelia.bus.core import Bus
from angelia.bus.events import What
from angelia.bus.ports import Archive, Copy
from angelia.model.errors import BadRequest, NotFound

PATH_LETTERS = 4096  # no path that the system takes is longer


async def back_up(bus: Bus, file: str | None) -> Copy:
    """Copy the store to ``file``, or to the data folder's own place for copies, where the newest three are kept."""
    bus.check_running()
    if file is not None and (not file.startswith("/") or "\0" in file or len(file) > PATH_LETTERS):
        raise BadRequest(f"'{file[:80]}' is no absolute path. Nothing was changed.")
    if not isinstance(bus.store, Archive):
        raise NotFound("This hub's store cannot be copied: it is kept nowhere.")
    copy = await bus.store.back_up(file, bus.clock.now())
    bus.events.note(What.BACKED_UP, bus.clock.now(), None, f"{copy.messages} messages in {copy.file}")
    return copy
