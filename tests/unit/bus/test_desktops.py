"""Desktops with a token of their own: which they are, what it proves, and that nobody else is them."""

import pytest

from angelia.bus.agents import OVERLAP_SECONDS, OVERLAPPING
from angelia.bus.caller import ADMIN, OPEN, Caller, Rank
from angelia.bus.desktops import make_token, remove, scope_of, speaks_for
from angelia.bus.directory import digest_of
from angelia.bus.forward import drain, handed_out
from angelia.bus.ports import Tx
from angelia.bus.remotes import ANONYMOUS
from angelia.model.connection import Connection
from angelia.model.delivery import State
from angelia.model.envelope import Intent
from angelia.model.errors import BadName, BadRequest, NotFound, TokenRequired, UnknownAgent
from tests.fakes.small_hub import SmallHub

MAC = Caller(Rank.LINK, "mac")
ANN = Caller(Rank.AGENT, "ann")


def proved(hub: SmallHub, secret: str) -> tuple[str | None, str | None]:
    """What a token proves: which agent, and which desktop."""
    digest, now = digest_of(secret), hub.clock.now()
    return hub.bus.directory.token_agent(digest, now), hub.bus.directory.token_desktop(digest, now)


async def test_a_token_proves_its_desktop_and_no_agent(hub: SmallHub) -> None:
    secret, token = await make_token(hub.bus, "Mac")
    assert proved(hub, secret) == (None, "mac")
    assert secret not in repr(token)
    assert not hub.bus.directory.is_keyed("mac")
    await hub.restart()
    assert proved(hub, secret) == (None, "mac")


async def test_an_old_token_works_for_five_minutes_more(hub: SmallHub) -> None:
    old, new = (await make_token(hub.bus, "mac"))[0], (await make_token(hub.bus, "mac"))[0]
    await hub.clock.advance(OVERLAP_SECONDS - 1)
    assert (proved(hub, old), proved(hub, new)) == ((None, "mac"), (None, "mac"))
    await hub.clock.advance(1)
    assert (proved(hub, old), proved(hub, new)) == ((None, None), (None, "mac"))


async def test_what_is_removed_proves_nothing_any_more_and_others_do(hub: SmallHub) -> None:
    secrets = [(await make_token(hub.bus, name))[0] for name in ("mac", "mac", "pc")]
    await remove(hub.bus, "MAC")
    assert [proved(hub, secret)[1] for secret in secrets] == [None, None, "pc"]
    with pytest.raises(NotFound, match="Nothing was changed"):
        await remove(hub.bus, "mac")


@pytest.mark.parametrize(("name", "error"), [
    ("", BadName), ("a b", BadRequest), ("local", BadRequest), (ANONYMOUS, BadName), ("Desktop", BadName),
    ("rack", BadRequest), ("HUB", BadRequest), ("Human", BadRequest), ("interop", BadRequest), ("everyone", BadRequest),
])  # fmt: skip
async def test_what_cannot_be_a_desktops_name_gets_no_token(hub: SmallHub, name: str, error: type[Exception]) -> None:
    rack = Connection(name="rack", target="ws://127.0.0.1:9")
    await hub.bus.store.write(lambda tx: hub.bus.neighbours.put(tx, rack, hub.clock.now()))
    with pytest.raises(error):
        await make_token(hub.bus, name)


async def test_a_call_comes_from_the_desktop_of_its_token_whatever_it_says(hub: SmallHub) -> None:
    assert [scope_of(hub.bus, MAC, said) for said in (None, "pc", "a b", 7)] == ["mac"] * 4


async def test_a_desktop_with_a_token_is_nobody_who_does_not_show_it_but_the_owner(hub: SmallHub) -> None:
    assert [scope_of(hub.bus, OPEN, said) for said in (None, "", "mac", "PC")] == [ANONYMOUS, ANONYMOUS, "mac", "PC"]
    await make_token(hub.bus, "mac")
    for caller in (OPEN, ANN):
        with pytest.raises(TokenRequired):
            scope_of(hub.bus, caller, "Mac")
    assert scope_of(hub.bus, ADMIN, "mac") == "mac"
    assert scope_of(hub.bus, OPEN, "pc") == "pc"


async def test_only_the_last_few_of_many_tokens_work(hub: SmallHub) -> None:
    """Whoever rotates in a circle leaves no heap of good ones."""
    secrets = [(await make_token(hub.bus, "mac"))[0] for _ in range(OVERLAPPING + 3)]
    good = [proved(hub, secret)[1] == "mac" for secret in secrets]
    assert good == [False, False] + [True] * (OVERLAPPING + 1)


async def test_an_outcome_comes_from_who_fetched(hub: SmallHub) -> None:
    rack = Connection(name="rack", target="ws://127.0.0.1:9")
    await hub.bus.store.write(lambda tx: hub.bus.neighbours.put(tx, rack, hub.clock.now()))
    await make_token(hub.bus, "mac")
    believed = {caller: [of for of in ("mac", "pc", "rack", ANONYMOUS) if speaks_for(hub.bus, caller, of)]
                for caller in (OPEN, ANN, MAC, ADMIN)}  # fmt: skip
    assert believed == {OPEN: ["pc", ANONYMOUS], ANN: ["pc", ANONYMOUS], MAC: ["mac"],
                        ADMIN: ["mac", "pc", "rack", ANONYMOUS]}  # fmt: skip


async def test_a_desktops_name_is_no_connections_and_a_connections_no_desktops(hub: SmallHub) -> None:
    await make_token(hub.bus, "mac")
    assert hub.bus.neighbours.is_taken("Mac")
    rack = Connection(name="mac", target="ws://127.0.0.1:9")  # as the settings may still have it
    await hub.bus.store.write(lambda tx: hub.bus.neighbours.put(tx, rack, hub.clock.now()))
    with pytest.raises(BadRequest, match="a name of its own"):
        scope_of(hub.bus, MAC, None)


async def push(hub: SmallHub, name: str, *rows: dict[str, object]) -> None:
    def unit(tx: Tx) -> None:
        hub.bus.remotes.push(tx, hub.bus.limits, name, list(rows), hub.clock.now())

    await hub.bus.store.write(unit)


async def test_whoever_is_called_so_after_a_removal_gets_nothing_of_what_was_there(hub: SmallHub) -> None:
    """Neither what waits nor the outcome of what was fetched; the senders hear of both, and nobody is known there."""
    ops: dict[str, object] = {"profile": "ops", "connection_id": "vps"}
    await make_token(hub.bus, "mac")
    await push(hub, "mac", ops)
    fetched = await hub.send("bob", "ops@vps", "fetched", intent=Intent.REQUEST)
    drained = await drain(hub.bus, "mac")
    handed_out(hub.bus, drained, written=True)
    await hub.commit()
    waiting = await hub.send("bob", "ops@vps", "waits", intent=Intent.REQUEST)
    await remove(hub.bus, "Mac")
    with pytest.raises(UnknownAgent):
        await hub.send("bob", "ops@vps", "new")
    await push(hub, "mac", ops)
    assert (await drain(hub.bus, "mac")).envelopes == []
    ended = {parcel.envelope.id: parcel.delivery for parcel in await hub.mailbox("ops@vps", *State)}
    assert {id: (row.state, row.reason) for id, row in ended.items()} == {
        fetched.envelope.id: (State.FAILED, "connection_gone"),
        waiting.envelope.id: (State.FAILED, "runtime_offline"),
    }
    notices = [parcel.envelope for parcel in await hub.mailbox("bob", *State)]
    assert {notice.in_reply_to for notice in notices} == set(ended)
    assert all("has no token any more" in str(notice.text) for notice in notices)


async def test_the_rows_of_a_desktop_that_was_removed_stay_forgotten(hub: SmallHub) -> None:
    await make_token(hub.bus, "mac")
    await push(hub, "mac", {"profile": "ops", "connection_id": "vps"})
    await remove(hub.bus, "mac")
    for _ in range(2):
        assert hub.bus.remotes.rows(hub.clock.now(), hub.bus.limits) == ()
        await hub.restart()


async def test_no_desktop_takes_the_name_of_a_hub_that_may_come_back(hub: SmallHub) -> None:
    neighbours = hub.bus.neighbours
    rack = Connection(name="rack", hub="a" * 32)
    await hub.bus.store.write(lambda tx: neighbours.put(tx, rack, hub.clock.now()))
    await hub.bus.store.write(lambda tx: neighbours.remove(tx, rack, hub.clock.now()))
    for caller in (OPEN, ANN, ADMIN):
        with pytest.raises(BadRequest, match="may come back"):
            scope_of(hub.bus, caller, "Rack")
    with pytest.raises(BadRequest, match="may come back"):
        await make_token(hub.bus, "rack")
    assert not speaks_for(hub.bus, OPEN, "rack")


async def test_a_name_gets_a_token_and_nobody_elses_connection_is_called_so_from_then_on(hub: SmallHub) -> None:
    await push(hub, "pc", {"profile": "ops", "connection_id": "studio"})

    def names() -> list[str]:
        return [row.connection_id for row in hub.bus.remotes.rows(hub.clock.now(), hub.bus.limits)]

    assert names() == ["studio"]
    await make_token(hub.bus, "studio")
    assert names() == ["pc-studio"]
    await remove(hub.bus, "studio")
    assert names() == ["studio"]
