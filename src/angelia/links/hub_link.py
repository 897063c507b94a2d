"""The life of one link between two hubs, once both have said hello: from then on the two sides are equal.

What must stay true:

- Mail goes in the order in which commits lease it to this link (``bus/carriers.py``), in batches, a few of them on
  their way at once; it is *forwarded* once the other side has stored it. What had no answer when the line broke goes
  back into its place, and goes again: its id absorbs a repeat.
- What came by this link and has an outcome is told until the other side has that, too.
- Rosters are told at the start, within a second of a change, and each minute; one that did not change is told in short.
  A side that removes the connection tells an empty one first.
- What the other side cannot take for now (its disk is full) waits, and the line stays.
- A line that does not answer is ended here: pings find it where nothing else is said.
"""

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from typing import Any

from angelia.bus.arrive import arrive
from angelia.bus.backpressure import first_again, passed, put_off
from angelia.bus.beat import PING_SECONDS, to_beat
from angelia.bus.carriers import Carrier
from angelia.bus.carry import detach, fill, forwarded, given_back, refused
from angelia.bus.core import Bus
from angelia.bus.jams import Behind
from angelia.bus.moves import backoff, owed_key
from angelia.bus.neighbours import place_id
from angelia.bus.outcomes import far_outcomes, outcome_of, owed, told
from angelia.bus.ports import Parcel
from angelia.bus.rosters import ROSTERS, changes, rows_for_hub
from angelia.links.channel import Channel, Refused
from angelia.links.port import FAREWELL_SECONDS, LineLost
from angelia.model.connection import Connection
from angelia.model.envelope import Envelope
from angelia.model.errors import BadRequest, DiskFull
from angelia.model.failure import Reason
from angelia.protocol import hub as shapes
from angelia.protocol.foreign_json import write
from angelia.protocol.gateway import Refusal
from angelia.protocol.hub import AGAIN, GARBLED, Item, Spot, Stored
from angelia.protocol.jsonrpc import UNKNOWN_METHOD, Request

log = logging.getLogger("angelia.links")
BATCH = 100  # in one call: as many as one claim gives
ON_THEIR_WAY = 2  # batches: one is stored there while the next is written here
HELD = 3  # batches: those, and one that is ready to go when the first of them has been stored
CALL_SECONDS = 10.0  # a commit there, with much before it; beyond that the other side hangs
ROSTER_SECONDS = 60.0
GATHER_SECONDS = 0.02  # outcomes that are told together
LATER_SECONDS = 2.0  # until outcomes are told again to a side that could not take them
AROUND_BYTES = 4096  # of a frame, around what it carries
HEAD_BYTES = 2048  # of a message without its text and body: the longest names, and eight hubs that it has passed


class HubLink:
    """One link. Requests of the other side come to ``handle``."""

    def __init__(self, bus: Bus, connection: Connection, *, pings: bool = True) -> None:
        """``pings``: whether the line has to be asked whether it lives; a WebSocket does that itself."""
        self._bus, self._link, self._pings = bus, connection, pings
        self._slots = asyncio.Semaphore(ON_THEIR_WAY)
        self._carrier = Carrier(connection.id, HELD * BATCH, HELD * bus.limits.claim_bytes)
        self._behind = Behind()
        self._told: str | None = None  # the digest of the roster that was told last
        self._heard: str | None = None  # and of the one that came last
        self._channel: Channel | None = None
        self._leaves = False

    async def run(self, channel: Channel) -> None:
        """Over a channel that runs, until it ends; raises ``LineLost`` (in a group)."""
        self._channel = channel
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(fill(self._bus, self._carrier))
                tasks.create_task(self._tell_roster(channel))
                tasks.create_task(self._send_mail(channel, tasks))
                tasks.create_task(self._tell_outcomes(channel))
                if self._pings:
                    tasks.create_task(self._ping(channel))
        finally:
            detach(self._bus, self._carrier)

    async def handle(self, request: Request) -> object:
        """Answer a call of the other side."""
        match request.method:
            case "hub.send":
                return shapes.plain(await arrive(self._bus, self._link, _list(request, "messages"), self._behind))
            case "hub.settle":
                outcomes = (shapes.read_outcome_or_none(each) for each in _list(request, "outcomes"))
                await far_outcomes(self._bus, self._link.id, [each for each in outcomes if each is not None])
                return {"ok": True}
            case "hub.roster":
                return await self._take_roster(request)
            case "hub.ping":
                return {"ok": True}
        raise Refusal(UNKNOWN_METHOD, f"There is no method '{request.method[:80]}' between hubs.")

    # --------------------------------------------------------------------------------------------------------- mail

    async def _send_mail(self, channel: Channel, tasks: asyncio.TaskGroup) -> None:
        while True:
            async with self._slots:  # what comes until then goes together
                pass
            for part in self._frames(await self._carrier.next(BATCH)):
                await self._slots.acquire()
                tasks.create_task(self._send(channel, part))

    async def _send(self, channel: Channel, part: Sequence[tuple[Parcel, Item]]) -> None:
        """Hand over what goes in one frame. What fails goes back in its place, with all that came after."""
        items = [item for _, item in part]
        try:
            answer = await channel.call("hub.send", {"messages": shapes.plain(items)}, CALL_SECONDS)
            answers = shapes.read_stored(answer, len(part))
        except Refused as error:
            if not _is_full(error):
                raise LineLost(f"the other side does not take mail: {error}") from None
            answers = [Stored(stored=False, code=DiskFull.code)] * len(part)
        except BadRequest as error:
            raise LineLost(f"the other side does not take mail: {error}") from None
        except TimeoutError:
            raise LineLost(f"no answer within {CALL_SECONDS:g} s") from None
        self._settle([parcel for parcel, _ in part], answers)
        self._slots.release()

    def _frames(self, parcels: Sequence[Parcel]) -> list[list[tuple[Parcel, Item]]]:
        """What goes there, in parts that fit into a frame; what cannot go ends here."""
        most = self._bus.limits.frame_bytes - AROUND_BYTES
        parts: list[list[tuple[Parcel, Item]]] = [[]]
        weight = 0
        for parcel in parcels:
            item = self._item(parcel)
            # JSON takes six bytes for one at most; only what could fill a frame so is worth counting.
            size = HEAD_BYTES + 6 * parcel.delivery.size
            if size > most // BATCH and item is not None:
                size = len(write(shapes.plain([item])))
            if item is None or size > most:
                self._carrier.free(parcel)
                refused(self._bus, parcel, Reason.RUNTIME_OFFLINE if item is None else Reason.TOO_LARGE, "")
                continue
            if weight + size > most:
                parts.append([])
                weight = 0
            parts[-1].append((parcel, item))
            weight += size
        return [part for part in parts if part]

    def _item(self, parcel: Parcel) -> Item | None:
        """A message as it goes there; None where nobody knows any more which hub its address means."""
        neighbours = self._bus.neighbours
        handle, _, name = parcel.delivery.to.partition("@")
        found = neighbours.behind(name)
        if found is None or found.hub is None or parcel.envelope.origin is None:
            return None
        sender, called = self._sender(parcel.envelope)
        recipient, now = Spot(handle, found.hub), self._bus.clock.now()
        again = first_again(self._bus, parcel)
        return shapes.item_of(parcel.envelope, sender, called, recipient, neighbours.me, now, again=again)

    def _sender(self, envelope: Envelope) -> tuple[Spot, str]:
        """Who sent it, and what its hub is called here."""
        neighbours = self._bus.neighbours
        handle, at, name = envelope.sender.partition("@")
        if not at:
            return Spot(handle, neighbours.me), neighbours.name
        found = neighbours.behind(name)
        hub = found.hub if found is not None else None
        return Spot(handle, hub or place_id(neighbours.me, name)), name

    def _settle(self, batch: Sequence[Parcel], answers: Sequence[Stored]) -> None:
        stored: list[Parcel] = []
        later: list[tuple[Parcel, str]] = []
        for parcel, answer in zip(batch, answers, strict=True):
            self._carrier.free(parcel)
            if answer.stored:
                stored.append(parcel)
            elif answer.code is not None and answer.code in AGAIN:
                later.append((parcel, answer.code))
            elif answer.code == GARBLED:
                given_back(self._bus, [parcel], used=True, delay=backoff(parcel))
            else:
                said = f"The other side says: {answer.detail}" if answer.detail else ""
                refused(self._bus, parcel, shapes.reason_of(answer.code), said[:500])
        put_off(self._bus, later)
        forwarded(self._bus, stored)
        passed(self._bus, stored, later)

    # ----------------------------------------------------------------------------------------------------- outcomes

    async def _tell_outcomes(self, channel: Channel) -> None:
        bus, link = self._bus, self._link.id
        with bus.signals.watch(owed_key(link)) as watch:
            while True:
                ticket = watch.ticket()
                found = await owed(bus, link)
                if not found:
                    await bus.clock.wait(watch.changed(ticket), None)
                    await asyncio.sleep(GATHER_SECONDS)
                    continue
                outcomes = shapes.plain(outcome_of(delivery) for delivery in found)
                if await _call(channel, "hub.settle", {"outcomes": outcomes}) is None:
                    await asyncio.sleep(LATER_SECONDS)
                else:
                    await told(bus, found)

    # ------------------------------------------------------------------------------------------------------ rosters

    async def _tell_roster(self, channel: Channel) -> None:
        bus = self._bus
        seen: object = None
        with bus.signals.watch(ROSTERS) as watch:
            while True:
                ticket = watch.ticket()
                now = changes(bus)
                params = self._roster(anew=now != seen)
                seen = now
                answer = await _call(channel, "hub.roster", params)
                known = isinstance(answer, dict) and answer.get("known") is True
                self._told = str(params["digest"]) if known else None
                if known or "rows" in params:  # who does not know what was told in full does not want to
                    await bus.clock.wait(watch.changed(ticket), to_beat(bus.clock.monotonic(), ROSTER_SECONDS))

    async def say_farewell(self) -> None:
        """The connection is to be removed: whom it led to here is no longer there, but by another way. Call it while
        ``run`` runs."""
        self._leaves = True
        if self._channel is None:
            return
        try:
            await self._channel.call("hub.roster", self._roster(anew=True), FAREWELL_SECONDS)
        except (Refused, LineLost, TimeoutError) as error:
            how = str(error) or f"no answer within {FAREWELL_SECONDS:g} s"
            log.warning("%s may go on showing our agents: %s", self._link.name, how)

    def _roster(self, *, anew: bool) -> dict[str, object]:
        """As it is told: in full, unless it was told last. ``anew``: it may be another one."""
        if self._told is not None and not anew:
            return {"digest": self._told}
        bus = self._bus
        there = [] if self._leaves else rows_for_hub(bus, self._link)
        rows, written = _to_fit(shapes.plain(there), bus.limits.frame_bytes - AROUND_BYTES)
        digest = hashlib.sha256(written).hexdigest()[:32]
        return {"digest": digest} if digest == self._told else {"digest": digest, "rows": rows}

    async def _take_roster(self, request: Request) -> object:
        digest, rows = request.params.get("digest"), request.params.get("rows")
        if rows is None:
            return {"known": isinstance(digest, str) and digest == self._heard}
        _list(request, "rows")  # something else is no roster without rows: what is known stays
        bus = self._bus
        found = shapes.read_rows(rows, bus.neighbours.me)
        await bus.store.write(lambda tx: bus.neighbours.learn(tx, self._link, found, bus.clock.now()))
        self._heard = digest if isinstance(digest, str) else None
        return {"known": True, "count": len(found)}

    async def _ping(self, channel: Channel) -> None:
        while True:
            await asyncio.sleep(to_beat(asyncio.get_running_loop().time(), PING_SECONDS))
            await _call(channel, "hub.ping", {})


def _is_full(error: Refused) -> bool:
    """Nothing of it was stored, since there is no space on the other side's disk: which may pass."""
    return error.data.get("code") == DiskFull.code


async def _call(channel: Channel, method: str, params: dict[str, object]) -> object:
    """A call without which the link is of no use; None where the other side's disk is full."""
    try:
        return await channel.call(method, params, CALL_SECONDS)
    except TimeoutError:
        raise LineLost(f"no answer within {CALL_SECONDS:g} s") from None
    except Refused as error:
        if _is_full(error):
            return None
        raise LineLost(f"the other side refuses {method}: {error}") from None


def _to_fit(rows: list[Any], most: int) -> tuple[list[Any], bytes]:
    """A roster that fits into a frame, and as it is written: all of it; else without what agents are like; else as many
    as there is room for."""
    written = write(rows)
    if len(written) > most:
        rows = [{name: value for name, value in row.items() if name != "description"} for row in rows]
        written = write(rows)
    while len(written) > most:
        rows = rows[: len(rows) * most // len(written)]
        written = write(rows)
    return rows, written


def _list(request: Request, name: str) -> list[object]:
    found = request.params.get(name)
    if not isinstance(found, list):
        raise BadRequest(f"{name} is a list.")
    return found
