"""Whose mail for which mailbox is put off, at the near end; and what is refused with it, at the far end."""

import pytest

from angelia.bus.jams import BEHIND_MOST, BEHIND_SECONDS, Behind, Jam, Jams
from angelia.bus.ports import Tx
from angelia.model.delivery import Delivery, State
from angelia.model.envelope import Intent, Kind, Origin
from angelia.model.errors import NotAllowed
from angelia.protocol.hub import Item, Spot
from angelia.storage.memory import MemoryStore

LAP, RACK = "a" * 32, "b" * 32


def waiting(mailbox: str = "ann@rack", sender: str = "bob") -> Delivery:
    return Delivery(
        key=1, seq=1, message_id="a" * 32, mailbox=mailbox, to=mailbox, connection="rack", sender=sender, size=1,
        state=State.QUEUED, accepted_at=1, expires_at=2, sweep_at=2,
    )  # fmt: skip


def unplanned(jam: Jam, seconds: float) -> None:
    """Nobody tries it."""


def item(number: int = 1, sender: str = "bob", recipient: str = "ann", *, again: bool = False) -> Item:
    return Item(
        id=f"{number:032x}", sender=Spot(sender, LAP), called="lap", recipient=Spot(recipient, RACK), thread="1" * 32,
        intent=Intent.INFORM, kind=Kind.MESSAGE, chain="1" * 32, expires_in=1000, created_at=1, fingerprint="f",
        origin=Origin(LAP, "bob", "ann", "inform", "message", None), via=(LAP,), text="hi", again=again,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------------- the near end


async def test_it_is_of_one_sender_for_one_mailbox() -> None:
    jams = Jams()
    made = await MemoryStore().write(lambda tx: jams.begin(tx, waiting(), "mailbox_full", unplanned))
    assert made is not None
    assert jams.holds(waiting())
    assert not jams.holds(waiting(sender="cat"))
    assert not jams.holds(waiting("dev@rack"))
    assert (jams.of("ann@rack"), jams.on("rack"), jams.of("dev@rack"), jams.on("box")) == ([made], [made], [], [])


async def test_one_that_lasts_begins_no_second_time_and_says_the_latest_refusal() -> None:
    jams, store = Jams(), MemoryStore()
    made = await store.write(lambda tx: jams.begin(tx, waiting(), "mailbox_full", unplanned))
    assert made is not None
    assert await store.write(lambda tx: jams.begin(tx, waiting(), "disk_full", unplanned)) is None
    assert made.code == "disk_full"
    await store.write(lambda tx: jams.end(tx, made))
    assert jams.on("rack") == []


async def test_what_is_not_stored_began_and_ended_nothing() -> None:
    jams, store = Jams(), MemoryStore()

    def fails(tx: Tx) -> None:
        jams.begin(tx, waiting(), "mailbox_full", unplanned)
        raise NotAllowed("no")

    with pytest.raises(NotAllowed):
        await store.write(fails)
    assert not jams.holds(waiting())
    made = await store.write(lambda tx: jams.begin(tx, waiting(), "mailbox_full", unplanned))
    assert made is not None

    def ends(tx: Tx) -> None:
        jams.end(tx, made)
        raise NotAllowed("no")

    with pytest.raises(NotAllowed):
        await store.write(ends)
    assert jams.find("ann@rack", "bob") is made


# -------------------------------------------------------------------------------------------------------- the far end


def test_what_comes_behind_a_refused_one_is_refused_until_that_one_comes_again() -> None:
    behind = Behind()
    assert behind.code(item(), 0.0) is None
    behind.refused(item(), "mailbox_full", 0.0)
    assert behind.code(item(2), 1.0) == "mailbox_full"
    assert behind.code(item(1, again=True), 2.0) is None
    assert behind.code(item(2), 2.0) is None


def test_nobody_elses_is_and_nothing_for_another_mailbox() -> None:
    behind = Behind()
    behind.refused(item(), "mailbox_full", 0.0)
    assert behind.code(item(2, "cat"), 1.0) is None
    assert behind.code(item(2, recipient="dev"), 1.0) is None
    assert behind.code(item(2, "Bob", "ANN"), 1.0) == "mailbox_full"


def test_a_hub_that_never_says_again_is_not_shut_out_for_ever() -> None:
    behind = Behind()
    behind.refused(item(), "mailbox_full", 0.0)
    assert behind.code(item(2), BEHIND_SECONDS) == "mailbox_full"
    assert behind.code(item(2), BEHIND_SECONDS + 0.1) is None


def test_what_it_remembers_is_bounded() -> None:
    behind = Behind()
    senders = [item(1, f"a{number}") for number in range(BEHIND_MOST + 1)]
    for each in senders:
        behind.refused(each, "mailbox_full", 0.0)
    assert [behind.code(each, 1.0) for each in (senders[0], senders[1], senders[-1])] == [
        None, "mailbox_full", "mailbox_full",
    ]  # fmt: skip
