"""The ring of what happened: in order, after the commit, bounded, and with no more of a text than its beginning."""

from typing import Any

import pytest

from angelia.bus.agents import make_token, remove_agent, revoke_token
from angelia.bus.caller import ADMIN
from angelia.bus.events import KEPT, LETTERS, Events, Happening, What, concerns
from angelia.model.delivery import Hand, State
from angelia.model.errors import MailboxFull
from angelia.model.limits import Limits
from tests.fakes.clock import settle
from tests.fakes.small_hub import SmallHub
from tests.fakes.troubled_store import TroubledStore


def heard(hub: SmallHub, place: int = 0) -> list[Happening]:
    missed, found = hub.bus.events.after(place)
    assert missed == 0
    return found


def whats(hub: SmallHub, place: int = 0) -> list[str]:
    return [event.what.value for event in heard(hub, place)]


async def test_the_life_of_a_message_is_told_in_order(hub: SmallHub) -> None:
    sent = await hub.send("bob", "ann", "hello", intent="request")
    parcel = await hub.take_one("ann")
    await hub.nack(parcel, 0)
    parcel = await hub.take_one("ann")
    await hub.ack(parcel)
    assert whats(hub) == ["accepted", "handed_over", "returned", "handed_over", "delivered"]
    first, *_, last = heard(hub)
    assert first.delivery is not None
    assert (first.delivery.message_id, first.delivery.sender, first.delivery.to) == (sent.envelope.id, "bob", "ann")
    assert first.detail == "hello"
    assert last.delivery is not None
    assert (last.delivery.state, last.delivery.attempt, last.detail) == (State.DELIVERED, 2, None)
    assert [event.place for event in heard(hub)] == [1, 2, 3, 4, 5]


async def test_what_goes_to_a_live_stream_is_accepted_and_handed_over(hub: SmallHub) -> None:
    reader = await hub.listen("ann", hand=Hand.MANUAL)
    place = hub.bus.events.place
    await hub.send("bob", "ann")
    assert whats(hub, place) == ["accepted", "handed_over"]
    await reader.close()
    assert whats(hub, place) == ["accepted", "handed_over", "returned", "disconnected"]


async def test_who_connects_and_who_takes_over(hub: SmallHub) -> None:
    await hub.listen("ann")
    second = await hub.listen("ann")
    await second.close()
    found = [(event.what, event.name, event.detail) for event in heard(hub)]
    assert found == [
        (What.CONNECTED, "ann", None),
        (What.CONNECTED, "ann", "took over"),
        (What.DISCONNECTED, "ann", None),
    ]


async def test_ends_are_told_and_the_notice_that_follows(hub: SmallHub) -> None:
    await hub.send("bob", "ann", "too late", intent="request", ttl_seconds=5)
    await hub.pass_time(6)
    assert whats(hub) == ["accepted", "failed", "accepted"]
    failed = heard(hub)[1].delivery
    assert failed is not None
    assert failed.reason is not None
    assert failed.reason.value == "queued_expired"


async def test_what_is_held_says_so() -> None:
    hub = await SmallHub.open(Limits(chain_depth=1))
    one = await hub.send("bob", "ann", "1")
    two = await hub.send("ann", "bob", "2", in_reply_to=one.envelope.id)
    place = hub.bus.events.place
    await hub.send("bob", "ann", "3", in_reply_to=two.envelope.id)
    assert "held" in whats(hub, place)


async def test_names_and_tokens(hub: SmallHub) -> None:
    secret, token = await make_token(hub.bus, ADMIN, "ann")
    await revoke_token(hub.bus, ADMIN, "ann", token.id)
    await remove_agent(hub.bus, "ann")
    found = [(event.what.value, event.name) for event in heard(hub)]
    assert found == [("token_made", "ann"), ("token_revoked", "ann"), ("name_removed", "ann")]
    assert secret not in repr(heard(hub))


async def test_what_was_refused_or_not_stored_is_not_told(hub: SmallHub) -> None:
    small = await SmallHub.open(Limits(mailbox_deliveries=1))
    await small.send("bob", "ann")
    place = small.bus.events.place
    with pytest.raises(MailboxFull):
        await small.send("bob", "ann")
    assert whats(small, place) == []


async def test_nothing_is_told_before_it_is_on_disk(troubled: SmallHub, store: TroubledStore) -> None:
    store.late = True
    sending = troubled.bus.store.write(lambda tx: None)
    before = troubled.bus.events.place
    await settle()
    assert troubled.bus.events.place == before
    await store.let_go()
    await sending
    await troubled.send("bob", "ann")
    assert whats(troubled, before) == ["accepted"]


async def test_of_a_text_only_its_beginning_is_kept(hub: SmallHub) -> None:
    await hub.send("bob", "ann", "x" * 100_000)
    await hub.send("bob", "ann", None, body=b'{"a":"' + b"y" * 100_000 + b'"}')
    text, body = heard(hub)
    assert text.detail == "x" * (LETTERS + 1)
    assert isinstance(body.detail, bytes)
    assert len(body.detail) == LETTERS + 1


def test_the_ring_is_bounded_and_says_what_is_gone() -> None:
    events = Events()
    for number in range(KEPT + 500):
        events.note(What.REFUSED, number, None, str(number))
    missed, found = events.after(0)
    assert missed == 500
    assert len(found) == KEPT
    assert (found[0].place, found[0].detail) == (501, "500")
    assert (found[-1].place, found[-1].detail) == (KEPT + 500, str(KEPT + 499))
    missed, found = events.after(KEPT + 490)
    assert (missed, [event.place for event in found]) == (0, list(range(KEPT + 491, KEPT + 501)))
    assert events.after(events.place) == (0, [])


@pytest.mark.parametrize(("name", "does"), [("ann", True), ("bob", True), ("cat", False)])
async def test_an_agent_has_a_part_in_what_it_sent_or_got(hub: SmallHub, name: str, does: bool) -> None:
    await hub.send("bob", "ann")
    (event,) = heard(hub)
    assert concerns(event, name) is does


@pytest.mark.parametrize(("about", "does"), [("Ann", True), ("bob", False), (None, False)])
def test_or_in_what_is_about_it(about: Any, does: bool) -> None:
    events = Events()
    events.note(What.CONNECTED, 1, about)
    assert concerns(events.after(0)[1][0], "ann") is does
