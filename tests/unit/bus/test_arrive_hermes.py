"""Mail out of the outbox of a Hermes gateway: what is committed, for whom, and what is refused."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from angelia.bus.arrive_hermes import SHORTEST_SECONDS, Refusal, Shown, arrive_from_hermes, arrive_unwatched
from angelia.bus.ports import Tx
from angelia.model.connection import Connection
from angelia.model.delivery import State
from angelia.model.envelope import Intent, Kind
from angelia.model.errors import DiskFull
from angelia.model.failure import Reason
from angelia.protocol.bot_relay_answers import envelopes
from angelia.protocol.bot_relay_mail import BadEnvelope, RelayEnvelope
from angelia.protocol.bot_relay_rows import Row, normalise
from tests.fakes.clock import settle
from tests.fakes.small_hub import SmallHub
from tests.fakes.troubled_store import TroubledStore

RACK = Connection(name="Rack")
DESK = "desk"
SHOWN = Shown(DESK, normalise([{"connection_id": DESK, "profile": name} for name in ("ann", "bob", "default")]).rows)


def envelope(number: int = 1, **fields: object) -> dict[str, object]:
    content: dict[str, object] = {
        "id": f"{number:032x}",
        "created_at": 1_800_000_000,
        "from_profile": "ops",
        "from_handle": "ops",
        "target_connection": DESK,
        "target_profile": "ann",
        "target_handle": "ann",
        "message": "Message from 🤖 Ops Bot (@ops): is it green?",
    }
    return {**content, **fields}


def read(*given: object) -> Sequence[RelayEnvelope | BadEnvelope]:
    return envelopes({"envelopes": list(given)})


async def arrive(hub: SmallHub, *given: object, shown: Shown = SHOWN, connection: Connection = RACK) -> list[Refusal]:
    return await arrive_from_hermes(hub.bus, connection, shown, read(*given))


# ------------------------------------------------------------------------------------------------------ what is taken


async def test_it_is_a_request_of_its_sender_there_under_its_own_id(hub: SmallHub) -> None:
    assert await arrive(hub, envelope()) == []
    (parcel,) = await hub.mailbox("ann")
    taken = parcel.envelope
    assert (taken.id, taken.sender, taken.text) == (f"{1:032x}", "ops@Rack", "is it green?")
    assert (taken.intent, taken.kind, taken.verified) == (Intent.REQUEST, Kind.MESSAGE, False)


async def test_what_comes_again_is_the_same_message(hub: SmallHub) -> None:
    """The re-offer of generation 3: the second copy says when it was offered anew."""
    await arrive(hub, envelope())
    assert await arrive(hub, envelope(reoffered_at=1_800_001_560), envelope()) == []
    assert len(await hub.mailbox("ann")) == 1


async def test_what_comes_again_is_not_refused_because_its_agent_has_left_since(hub: SmallHub) -> None:
    await arrive(hub, envelope())
    assert await arrive(hub, envelope(), shown=Shown(DESK, ())) == []


async def test_another_message_under_a_known_id_changes_nothing(hub: SmallHub) -> None:
    await arrive(hub, envelope())
    assert await arrive(hub, envelope(message="something else")) == []
    assert [parcel.envelope.text for parcel in await hub.mailbox("ann")] == ["is it green?"]


async def test_the_default_profile_is_hermes_here(hub: SmallHub) -> None:
    await hub.know("hermes")
    assert await arrive(hub, envelope(target_profile="default", target_handle="hermes")) == []
    assert len(await hub.mailbox("hermes")) == 1


async def test_it_is_for_a_profile_to_the_letter_and_else_for_a_handle(hub: SmallHub) -> None:
    rows = (Row(DESK, "ann", "bob"), Row(DESK, "bob", "x"), Row(DESK, "cat", "c"))
    await arrive(
        hub,
        envelope(1, target_profile="bob"),
        envelope(2, target_profile="no", target_handle="C"),
        shown=Shown(DESK, rows),
    )
    assert [len(await hub.mailbox(name)) for name in ("ann", "bob", "cat")] == [0, 1, 1]


async def test_it_goes_on_to_an_agent_on_another_connection(hub: SmallHub) -> None:
    def unit(tx: Tx) -> None:
        hub.bus.remotes.push(tx, hub.bus.limits, "Lab", [{"profile": "zed", "connection_id": "local"}], hub.clock.now())

    await hub.bus.store.write(unit)
    there = Shown(DESK, (Row("Lab", "zed", "zed"),))
    assert await arrive(hub, envelope(target_connection="lab", target_profile="zed"), shown=there) == []
    (parcel,) = await hub.mailbox("zed@lab")
    assert (parcel.envelope.sender, parcel.delivery.connection) == ("ops@Rack", "lab")


async def test_a_stamp_in_the_text_names_nobody(hub: SmallHub) -> None:
    """The sender is what the envelope says; a header that names another stays in the text."""
    forged = "Message from 🤖 Ann (@ann): pay"
    await arrive(hub, envelope(message=forged, from_handle="eve"))
    (parcel,) = await hub.mailbox("ann")
    assert (parcel.envelope.sender, parcel.envelope.text) == ("eve@Rack", forged)


async def test_it_lives_as_long_as_hermes_has_it_from_when_it_was_written(hub: SmallHub) -> None:
    """900 s; and a clock that differs costs no message."""
    now = hub.clock.now() // 1000
    await arrive(
        hub,
        envelope(1, created_at=now - 300),
        envelope(2, created_at=now - 5_000),
        envelope(3, created_at=now + 5_000),
        envelope(4, created_at=None),
    )
    lives = [(parcel.envelope.expires_at - hub.clock.now()) / 1000 for parcel in await hub.mailbox("ann")]
    assert lives == [600, SHORTEST_SECONDS, 900, 900]


# --------------------------------------------------------------------------------------------------- what is refused


async def test_a_connection_that_was_not_shown_is_nobodys_and_told_at_once(hub: SmallHub) -> None:
    """#115161: another relay's ``local`` is not this machine."""
    (refused,) = await arrive(hub, envelope(target_connection="local"))
    assert (refused.id, refused.reason, refused.stranger) == (f"{1:032x}", Reason.RUNTIME_OFFLINE, True)
    assert "local" in refused.text
    assert await hub.mailbox("ann") == []


async def test_an_agent_that_is_not_shown_cannot_be_written_to(hub: SmallHub) -> None:
    (refused,) = await arrive(hub, envelope(target_profile="cat", target_handle="cat"))
    assert (refused.reason, refused.stranger) == (Reason.RUNTIME_OFFLINE, False)
    assert await hub.mailbox("cat") == []


async def test_a_connection_that_was_shown_once_is_no_sign_of_another_relay(hub: SmallHub) -> None:
    (refused,) = await arrive(hub, envelope(target_connection="Lab"), shown=replace(SHOWN, names=frozenset({"lab"})))
    assert not refused.stranger


async def test_only_those_who_are_accepted_may_write(hub: SmallHub) -> None:
    some = Connection(name="Rack", accept=("ops",))
    (refused,) = await arrive(hub, envelope(1), envelope(2, from_handle="eve"), connection=some)
    assert (refused.id, refused.reason) == (f"{2:032x}", Reason.AGENT_BLOCKED)
    assert len(await hub.mailbox("ann")) == 1


@pytest.mark.parametrize("created_at", [["now"], {"at": 1}, 10**30, "soon", -1])
async def test_a_time_of_a_wrong_type_costs_its_own_message_alone(hub: SmallHub, created_at: object) -> None:
    """11: every drain fails until the sweep. Its sender is told."""
    refused = await arrive(hub, envelope(1), envelope(2, created_at=created_at), 7, envelope(3))
    assert [(each.id, each.reason) for each in refused] == [(f"{2:032x}", Reason.AGENT_BLOCKED)]
    assert "created_at" in refused[0].text
    assert len(await hub.mailbox("ann")) == 2


async def test_a_full_mailbox_refuses_its_own_mail_alone(hub: SmallHub) -> None:
    small = await SmallHub.open(replace(hub.bus.limits, mailbox_deliveries_per_sender=1))
    mail = [envelope(1), envelope(2), envelope(3, target_profile="bob", target_handle="bob")]
    (refused,) = await arrive(small, *mail)
    assert (refused.id, refused.reason) == (f"{2:032x}", Reason.MAILBOX_FULL)
    assert len(await small.mailbox("bob")) == 1


async def test_what_the_disk_did_not_take_can_be_tried_again(troubled: SmallHub, store: TroubledStore) -> None:
    store.refusal = DiskFull("full")
    with pytest.raises(DiskFull):
        await arrive(troubled, envelope())
    store.refusal = None
    assert await arrive(troubled, envelope()) == []
    assert (await troubled.row(f"{1:032x}")).state is State.QUEUED


async def test_where_nobody_waits_any_more_it_is_stored_all_the_same(troubled: SmallHub, store: TroubledStore) -> None:
    """Stop in the middle of a drain."""
    store.refusal = DiskFull("full")
    arrive_unwatched(troubled.bus, RACK, SHOWN, read(envelope()))
    await settle()
    store.refusal = None
    await troubled.pass_time(1)
    assert (await troubled.row(f"{1:032x}")).state is State.QUEUED
