"""Room in a mailbox: each sender's share by count and by bytes, and the tenth that made-up names cannot fill."""

from typing import Any

import pytest

from angelia.bus.draft import Accepted
from angelia.model.envelope import Kind, Lane
from angelia.model.errors import MailboxFull
from angelia.model.limits import Limits
from tests.fakes.small_hub import SmallHub, texts
from tests.fakes.two_hubs import Neighbourhood

HEAD = 256  # what any message counts for, beside its content


def of(size: int) -> str:
    """A text that makes a message of so many bytes."""
    return "x" * (size - HEAD)


async def refusal(hub: SmallHub, sender: str = "bob", size: int = 400, **more: Any) -> MailboxFull:
    """What a sender is told; nothing was stored."""
    before = [hub.bus.store.load("ann").open, hub.bus.store.load("ann").bytes]
    with pytest.raises(MailboxFull) as refused:
        await hub.send(sender, text=of(size), **more)
    assert [hub.bus.store.load("ann").open, hub.bus.store.load("ann").bytes] == before
    return refused.value


async def fill(hub: SmallHub, count: int, size: int = 400, **more: Any) -> None:
    """So many messages, each of another sender."""
    for number in range(count):
        await hub.send(f"made-up-{number}", text=of(size), **more)


async def question(hub: SmallHub, to: str = "bob") -> Accepted:
    return await hub.send("ann", to, "well?", intent="request")


async def answer(hub: SmallHub, asked: Accepted, size: int = 400, sender: str = "bob") -> Accepted:
    return await hub.send(sender, None, of(size), kind=Kind.REPLY, in_reply_to=asked.envelope.id)


# ----------------------------------------------------------------------------------------------------- a sender's share


async def test_a_sender_has_a_share_of_the_bytes_and_no_more() -> None:
    hub = await SmallHub.open(Limits(mailbox_bytes_per_sender=1000))
    await hub.send(text=of(600))
    await hub.send("BOB", text=of(400))
    refused = await refusal(hub, "Bob", 300)
    assert refused.extra["limit"] == 1000
    assert "1000 bytes of yours, and this has 300" in refused.detail
    await hub.send("cat", text=of(1000))
    await hub.send("bob", "cat")


async def test_of_a_share_there_is_again_what_was_read() -> None:
    hub = await SmallHub.open(Limits(mailbox_bytes_per_sender=1000))
    await hub.send_all(of(600), of(400))
    held = await hub.take_one()
    await refusal(hub, size=600)
    await hub.ack(held)
    await hub.send(text=of(600))


async def test_one_that_is_larger_than_a_share_goes_where_nothing_of_its_sender_waits() -> None:
    hub = await SmallHub.open(Limits(mailbox_bytes_per_sender=1000))
    await hub.send("cat", text=of(600))
    await hub.send(text=of(5000))
    await refusal(hub, size=300)
    await refusal(hub, "cat", 5000)
    for _ in range(2):
        await hub.ack(await hub.take_one())
    await hub.send(text=of(5000))


@pytest.mark.parametrize("proof", [{"verified": True}, {"sender": "human", "verified": True, "lane": Lane.PERSON}])
async def test_proof_makes_no_share_larger(proof: dict[str, Any]) -> None:
    hub = await SmallHub.open(Limits(mailbox_bytes_per_sender=1000))
    await hub.send(text=of(1000), **proof)
    await refusal(hub, **proof)


async def test_mail_to_many_goes_to_those_in_whose_mailbox_its_sender_has_a_share_left() -> None:
    hub = await SmallHub.open(Limits(mailbox_bytes_per_sender=1000))
    await hub.send(to="hermes", text=of(1000))
    sent = await hub.send(to="*")
    assert [row.to for row in sent.deliveries] == ["openclaw"]
    assert [(to, error.code) for to, error in sent.refused] == [("hermes", "mailbox_full")]


# ------------------------------------------------------------------------------------------------------- the last tenth

TENTH = {"count": Limits(mailbox_deliveries=10), "bytes": Limits(mailbox_bytes=4000)}
by_both = pytest.mark.parametrize("limits", TENTH.values(), ids=TENTH)


@by_both
async def test_made_up_names_fill_nine_tenths_of_a_mailbox_and_no_more(limits: Limits) -> None:
    hub = await SmallHub.open(limits)
    await fill(hub, 9)
    refused = await refusal(hub)
    assert refused.extra["limit"] in (9, 3600)
    assert "without proof of their name" in refused.detail
    assert "with the token of your name" in refused.detail


@by_both
@pytest.mark.parametrize(
    "proof",
    [
        {"verified": True},
        {"sender": "human", "verified": True, "lane": Lane.PERSON},
        {"lane": Lane.PERSON},  # the owner, as one of the names without a token
    ],
    ids=["a keyed name", "the person", "in the person's lane"],
)
async def test_the_last_tenth_is_for_proved_senders_and_the_person(limits: Limits, proof: dict[str, Any]) -> None:
    hub = await SmallHub.open(limits)
    await fill(hub, 9)
    await hub.send(text=of(400), **proof)
    refused = await refusal(hub, "cat", verified=True)
    assert refused.extra["limit"] in (10, 4000)
    assert "proof" not in refused.detail


@by_both
async def test_what_it_is_filled_with_does_not_matter(limits: Limits) -> None:
    """A sum of what came without proof would have to be kept; the mailbox has its own already."""
    hub = await SmallHub.open(limits)
    await fill(hub, 9, verified=True)
    await refusal(hub)


@by_both
async def test_an_answer_that_is_awaited_has_the_last_tenth_too_and_only_the_first(limits: Limits) -> None:
    hub = await SmallHub.open(limits)
    asked = await question(hub)
    await fill(hub, 9)
    await answer(hub, asked)
    with pytest.raises(MailboxFull):
        await answer(hub, asked, 300)
    assert texts(await hub.mailbox())[-1] == of(400)


async def test_the_first_answer_alone_is_beyond_a_share() -> None:
    few = Limits(mailbox_deliveries_per_sender=2, mailbox_bytes_per_sender=1000)
    hub = await SmallHub.open(few)
    asked, other = await question(hub), await question(hub)
    await hub.send_all(of(500), of(500))
    await answer(hub, asked)
    await answer(hub, other, 5000)
    for each in (asked, other):
        with pytest.raises(MailboxFull) as refused:
            await answer(hub, each)
        assert "of yours" in refused.value.detail


async def test_a_message_of_ones_own_to_whoever_asked_is_an_answer_once() -> None:
    hub = await SmallHub.open(Limits(mailbox_deliveries=10))
    asked = await question(hub)
    await fill(hub, 9)
    await hub.send(text="yes", in_reply_to=asked.envelope.id)
    await hub.ack(await hub.take_one())
    await refusal(hub, in_reply_to=asked.envelope.id)


async def test_a_notice_of_the_hub_finds_room_in_a_mailbox_that_is_full() -> None:
    hub = await SmallHub.open(Limits(mailbox_deliveries=10))
    await hub.send("ann", "bob", "well?", intent="request", ttl_seconds=5)
    await fill(hub, 9)
    await hub.send(verified=True)
    await hub.pass_time(6)
    assert [notice.reason for notice in await hub.notices("ann")] == ["queued_expired"]


async def test_a_small_mailbox_has_no_tenth_to_keep() -> None:
    hub = await SmallHub.open(Limits(mailbox_deliveries=9))
    await fill(hub, 9)
    assert (await refusal(hub, verified=True)).extra["limit"] == 9


# ----------------------------------------------------------------------------------------------------------- other hubs


async def test_what_a_neighbour_says_is_proved_is_no_proof_here_and_waits_at_its_hub() -> None:
    few = {"rack": Limits(mailbox_deliveries=10)}
    two = await (await (await Neighbourhood.of(few, lap="bob", rack="ann")).line("lap", "rack")).meet()
    lap, rack = two["lap"], two["rack"]
    await fill(rack, 9)
    sent = await lap.send("bob", "ann@rack", "from afar", intent="request", verified=True)
    await two.run()
    assert "from afar" not in texts(await rack.mailbox())
    assert await lap.notices() == []
    assert (await lap.row(sent)).state.open
    await rack.ack(await rack.take_one())
    await two.pass_time(6)
    await two.run()
    assert "from afar" in texts(await rack.mailbox())


async def test_an_answer_from_afar_that_is_awaited_comes_in() -> None:
    few = {"lap": Limits(mailbox_deliveries=10)}
    two = await (await (await Neighbourhood.of(few, lap="ann", rack="bob")).line("lap", "rack")).meet()
    lap, rack = two["lap"], two["rack"]
    asked = await lap.send("ann", "bob@rack", "well?", intent="request")
    await two.run()
    await fill(lap, 9)
    await rack.answer("bob", asked.envelope, "yes")
    await two.run()
    assert texts(await lap.mailbox())[-1] == "yes"
