"""Give streams what is leased to them: at once, past their tasks, where their doors wait for it.

What must stay true: what reaches a stream at all reaches it in the order in which it was pushed. What is written is
told only after it was. A fault with one stream ends that stream, and stops no other.
"""

from collections.abc import Iterable, Sequence

from angelia.bus.core import Bus, log
from angelia.bus.leases import Lease
from angelia.bus.ports import Parcel
from angelia.bus.streams import Door, Stream
from angelia.model.delivery import Hand

# A message to everybody goes on step by step for so many streams: their bytes are made, then written, then noted. One
# stream after the other through all steps takes a tenth more; more at once would keep more copies in memory.
TOGETHER = 64
_Whom = tuple[Stream, Door, Parcel | None]


def push(bus: Bus, handed: Sequence[tuple[Stream, Parcel]]) -> None:
    """Deliveries that are leased to these streams, no two to one. A stream that has ended meanwhile gives its own back
    when it detaches."""
    for start in range(0, len(handed), TOGETHER):
        at_once: list[_Whom] = []
        for stream, parcel in handed[start : start + TOGETHER]:
            if (door := stream.waits()) is not None:
                _hold(bus, stream, parcel)
                at_once.append((stream, door, parcel))
            else:
                keep(bus, stream, (parcel,))
        _write(at_once)


def keep(bus: Bus, stream: Stream, parcels: Iterable[Parcel]) -> None:
    """The same for one stream, which writes them in its turn."""
    for parcel in parcels:
        _hold(bus, stream, parcel)
        stream.buffer.append(parcel)
    stream.wake()


def keep_alive(stream: Stream) -> None:
    """Write that nothing happens; where its door does not wait, that does it."""
    if (door := stream.waits()) is not None:
        _write([(stream, door, None)])
    else:
        stream.keepalive_due = True
        stream.wake()


def _write(whom: Sequence[_Whom]) -> None:
    framed: list[tuple[_Whom, bytes]] = []
    written: list[tuple[_Whom, bytes]] = []
    for each in whom:
        stream, door, parcel = each
        try:
            framed.append((each, door.frame(parcel)))
        except Exception:  # noqa: BLE001  (a fault of ours, which stops no other)
            log.exception("what was to be written to a stream could not be made")
            stream.end("gone")  # no task would end it, and what it was given has to go back
    for each, data in framed:
        stream, door, _ = each
        try:
            door.write(data)
            written.append((each, data))
        except Exception:  # noqa: BLE001  (the same)
            log.exception("a stream could not be written to")
            stream.end("gone")
    for (_, door, parcel), data in written:
        door.wrote(parcel, len(data))


def _hold(bus: Bus, stream: Stream, parcel: Parcel) -> None:
    if stream.hand is Hand.MANUAL:
        now = bus.clock.now()
        bus.leases.add(
            Lease(parcel.delivery, Hand.MANUAL, since=now, ends=None, deadline=None, cap=None, stream=stream)
        )
