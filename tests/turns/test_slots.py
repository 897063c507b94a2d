"""Places among all turns: bounded, and free while their agent waits for another."""

import asyncio

from angelia.bus.ask import ask
from angelia.bus.draft import Draft
from angelia.model.envelope import Kind
from angelia.model.limits import Limits
from angelia.turns.slots import Slots
from tests.fakes.clock import settle
from tests.fakes.small_hub import SmallHub


class Turn:
    """Holds a place until it is let go of."""

    def __init__(self, slots: Slots, mailbox: str) -> None:
        self.slots, self.mailbox = slots, mailbox
        self.runs, self.over = False, asyncio.Event()

    async def run(self) -> None:
        async with self.slots.place(self.mailbox):
            self.runs = True
            await self.over.wait()
        self.runs = False


async def test_there_are_so_many_and_no_more() -> None:
    hub = await SmallHub.open(Limits(turns=2))
    slots = Slots(hub.bus)
    turns = [Turn(slots, name) for name in ("ann", "bob", "cat")]
    async with asyncio.TaskGroup() as tasks:
        for turn in turns:
            tasks.create_task(turn.run())
        await settle()
        assert [turn.runs for turn in turns] == [True, True, False]
        turns[0].over.set()
        await settle()
        assert [turn.runs for turn in turns] == [False, True, True]
        for turn in turns:
            turn.over.set()


async def test_an_agent_that_waits_for_another_leaves_its_place_to_it() -> None:
    hub = await SmallHub.open(Limits(turns=1))
    slots = Slots(hub.bus)
    ann, bob = Turn(slots, "ann"), Turn(slots, "bob")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(ann.run())
        tasks.create_task(bob.run())
        await settle()
        assert (ann.runs, bob.runs) == (True, False)
        asking = tasks.create_task(ask(hub.bus, Draft(sender="ann", to="bob", text="?"), 30))
        await settle()
        assert (ann.runs, bob.runs) == (True, True)
        (parcel,) = await hub.take("bob")
        await hub.send("bob", None, "!", in_reply_to=parcel.envelope.id, kind=Kind.REPLY)
        await settle()
        assert asking.done()
        for turn in (ann, bob):
            turn.over.set()
