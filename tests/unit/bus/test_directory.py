"""Who is known: how a name becomes known, that the memory follows the store, and tokens that prove a name."""

import asyncio
from dataclasses import replace

import pytest

from angelia.bus.directory import SEEN_STEP_MS, Directory, digest_of
from angelia.bus.ports import Tx
from angelia.model.address import RESERVED, Address
from angelia.model.agent import Agent, Token
from angelia.model.errors import RateLimited, UnknownAgent
from angelia.model.limits import Limits
from tests.fakes.small_hub import SmallHub

NOW = 1_800_000_000_000


async def stored(hub: SmallHub, mailbox: str) -> Agent | None:
    return await hub.bus.store.read(lambda view: view.agent(mailbox))


async def in_step(hub: SmallHub) -> None:
    """The memory is what a hub that starts now would read."""
    fresh = Directory()
    await fresh.open(hub.bus.store, hub.clock.now())
    assert hub.bus.directory.agents == fresh.agents
    assert hub.bus.directory.members() == fresh.members()


# -------------------------------------------------------------------------------------------------------- being known


async def test_two_names_are_known_from_the_start_and_are_members() -> None:
    hub = await SmallHub.open(known=())
    assert set(hub.bus.directory.agents) == {"hermes", "openclaw"}
    assert list(map(str, hub.bus.directory.members())) == ["hermes", "openclaw"]
    await in_step(hub)


async def test_names_are_compared_without_regard_to_case_and_shown_as_registered(hub: SmallHub) -> None:
    await hub.know("DoraTheAgent")
    assert hub.bus.directory.require("doratheagent") == "DoraTheAgent"
    await hub.know("DORATHEAGENT")
    assert hub.bus.directory.name_of("doratheagent") == "DoraTheAgent"


async def test_nobody_becomes_known_by_being_written_to_polled_or_looked_at(hub: SmallHub) -> None:
    with pytest.raises(UnknownAgent):
        await hub.send(to="dora")
    with pytest.raises(UnknownAgent):
        hub.bus.directory.require("dora")
    await hub.mailbox("dora")
    await hub.observe("dora")
    assert hub.bus.directory.find("dora") is None
    await in_step(hub)


@pytest.mark.parametrize(("wrong", "close"), [("hermse", "hermes"), ("Open-Claw", "openclaw"), ("humn", "human")])
async def test_an_unknown_name_is_answered_with_close_ones(hub: SmallHub, wrong: str, close: str) -> None:
    with pytest.raises(UnknownAgent) as unknown:
        hub.bus.directory.require(wrong)
    assert close in unknown.value.extra["suggestions"]  # type: ignore[operator]
    assert close in unknown.value.detail


async def test_the_owner_of_the_hub_can_be_written_to(hub: SmallHub) -> None:
    assert hub.bus.directory.require("HUMAN") == "human"


@pytest.mark.parametrize("name", sorted(RESERVED))
async def test_a_reserved_name_is_never_learnt(hub: SmallHub, name: str) -> None:
    await hub.know(name.upper(), member=True)
    assert hub.bus.directory.find(name) is None


async def test_members_are_listed_anew_when_they_change_and_only_then(hub: SmallHub) -> None:
    before = hub.bus.directory.members()
    assert hub.bus.directory.members() is before
    await hub.know("Dora", member=True)
    assert {each.mailbox for each in hub.bus.directory.members()} == {each.mailbox for each in before} | {"dora"}
    await hub.bus.store.write(lambda tx: hub.bus.directory.remove(tx, "dora"))
    assert hub.bus.directory.members() == before


async def test_an_address_is_found_by_the_mailbox_alone(hub: SmallHub) -> None:
    await hub.know("Dora")
    assert hub.bus.directory.address("dora") == Address("Dora")
    assert hub.bus.directory.address("Dora") is None
    await hub.bus.store.write(lambda tx: hub.bus.directory.remove(tx, "dora"))
    assert hub.bus.directory.address("dora") is None


async def test_membership_is_won_and_never_lost_by_a_lesser_call(hub: SmallHub) -> None:
    await hub.know("dora")
    assert "dora" not in {each.mailbox for each in hub.bus.directory.members()}
    await hub.take("dora")
    await hub.send("dora")
    assert "dora" in {each.mailbox for each in hub.bus.directory.members()}
    await in_step(hub)


async def test_names_are_bounded_and_known_ones_go_on() -> None:
    hub = await SmallHub.open(Limits(open_names=3), known=())
    await hub.send("dora", "hermes")
    with pytest.raises(RateLimited):
        await hub.send("emil", "hermes")
    assert await stored(hub, "emil") is None
    await hub.send("dora", "hermes")
    await in_step(hub)


async def test_names_of_one_commit_are_bounded_too() -> None:
    hub = await SmallHub.open(Limits(open_names=4), known=())
    soon = [hub.bus.store.write(lambda tx, n=n: learn(hub, tx, f"n{n}")) for n in range(5)]  # type: ignore[misc]
    outcomes = await asyncio.gather(*soon, return_exceptions=True)
    assert [isinstance(outcome, RateLimited) for outcome in outcomes] == [False, False, True, True, True]
    await hub.bus.store.write(lambda tx: hub.bus.directory.remove(tx, "n0"))
    await hub.send("n5", "hermes")
    with pytest.raises(RateLimited):
        await hub.send("n6", "hermes")


async def test_a_name_that_was_not_stored_takes_no_room() -> None:
    hub = await SmallHub.open(Limits(open_names=3), known=())

    def unit(tx: Tx) -> None:
        learn(hub, tx, "dora")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await hub.bus.store.write(unit)
    await hub.send("emil", "hermes")


def learn(hub: SmallHub, tx: Tx, name: str) -> None:
    hub.bus.directory.learn(tx, name, NOW, member=False, most=hub.bus.limits.open_names)


async def test_when_a_name_was_seen_is_written_once_an_hour_at_most(hub: SmallHub) -> None:
    first = await stored(hub, "bob")
    assert first is not None
    await hub.clock.advance(SEEN_STEP_MS / 1000 - 1)
    await hub.send()
    assert await stored(hub, "bob") == first
    await hub.clock.advance(2)
    await hub.send()
    assert await stored(hub, "bob") == replace(first, seen_at=hub.clock.now())


# ---------------------------------------------------------------------------------- units of one commit, and failures


async def test_units_of_one_commit_do_not_undo_one_another(hub: SmallHub) -> None:
    """The memory lags behind: each of these begins while it does not know what the one before it wrote."""
    directory, store = hub.bus.directory, hub.bus.store

    def key(tx: Tx) -> None:
        agent = tx.agent("dora")
        assert agent is not None
        directory.put(tx, replace(agent, keyed=True, title="The first"))

    await asyncio.gather(
        store.write(lambda tx: directory.learn(tx, "Dora", NOW, member=True, most=None)),
        store.write(lambda tx: directory.learn(tx, "dora", NOW, member=False, most=None)),
        store.write(key),
        store.write(lambda tx: directory.learn(tx, "dora", NOW + 1, member=False, most=None)),
    )
    agent = directory.find("dora")
    assert agent is not None
    assert (agent.handle, agent.member, agent.keyed, agent.title) == ("Dora", True, True, "The first")
    await in_step(hub)


async def test_a_name_is_known_only_after_the_commit(hub: SmallHub) -> None:
    def unit(tx: Tx) -> None:
        hub.bus.directory.learn(tx, "dora", NOW, member=True, most=None)
        assert hub.bus.directory.find("dora") is None
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await hub.bus.store.write(unit)
    assert hub.bus.directory.find("dora") is None
    await in_step(hub)


async def test_what_was_forgotten_is_unknown_and_its_tokens_prove_nothing(hub: SmallHub) -> None:
    directory, digest = hub.bus.directory, digest_of("secret")
    token = Token(id="t", mailbox="ann", digest=digest, created_at=NOW)
    await hub.bus.store.write(lambda tx: directory.put_token(tx, token))
    await hub.bus.store.write(lambda tx: directory.remove(tx, "ann"))
    assert directory.find("ann") is None
    assert directory.tokens_of("ann") == []
    assert await hub.bus.store.read(lambda view: view.tokens()) == []
    await in_step(hub)


# ------------------------------------------------------------------------------------------------------------- tokens


async def test_a_token_proves_its_agent_until_it_ends(hub: SmallHub) -> None:
    directory, digest = hub.bus.directory, digest_of("secret")
    token = Token(id="t", mailbox="ann", digest=digest, created_at=NOW, ends_at=NOW + 10)

    def unit(tx: Tx) -> None:
        agent = tx.agent("ann")
        assert agent is not None
        directory.put(tx, replace(agent, keyed=True, member=True))
        directory.put_token(tx, token)

    await hub.bus.store.write(unit)
    assert [directory.token_agent(digest, NOW + n) for n in (0, 9, 10)] == ["ann", "ann", None]
    assert directory.token_agent(digest_of("other"), NOW) is None
    await hub.bus.store.write(lambda tx: directory.remove_token(tx, token))
    assert directory.token_agent(digest, NOW) is None


async def test_a_token_of_a_name_that_is_not_keyed_proves_nothing(hub: SmallHub) -> None:
    digest = digest_of("secret")
    token = Token(id="t", mailbox="ann", digest=digest, created_at=NOW)
    await hub.bus.store.write(lambda tx: hub.bus.directory.put_token(tx, token))
    assert hub.bus.directory.token_agent(digest, NOW) is None


def test_only_the_hash_of_a_token_is_kept() -> None:
    assert len(digest_of("secret")) == 32
    assert b"secret" not in digest_of("secret")
    assert digest_of("half \ud800") != digest_of("half ?")
