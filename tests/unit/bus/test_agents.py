"""Names and their tokens: keying keeps the mail, rotation overlaps, revoking is at once, idle names are forgotten."""

import asyncio

import pytest

from angelia.bus.agents import (
    OVERLAP_SECONDS,
    forget_idle,
    make_token,
    put_agent,
    remove_agent,
    revoke_token,
    roster,
)
from angelia.bus.caller import ADMIN, OPEN, Caller, Rank
from angelia.bus.directory import digest_of
from angelia.bus.runs import ADAPTERS
from angelia.bus.subscribe import End
from angelia.bus.turns import looked_at
from angelia.bus.visits import Visit
from angelia.model.agent import Agent
from angelia.model.errors import (
    AngeliaError,
    BadName,
    BadRequest,
    NotAllowed,
    NotFound,
    TokenRequired,
    TooLarge,
    UnknownAgent,
)
from angelia.model.limits import DAY
from tests.fakes.clock import settle
from tests.fakes.small_hub import SmallHub, texts

ANN = Caller(Rank.AGENT, "Ann")
LINK = Caller(Rank.LINK, "mac")


def proves(hub: SmallHub, secret: str) -> str | None:
    return hub.bus.directory.token_agent(digest_of(secret), hub.clock.now())


# ------------------------------------------------------------------------------------------------------------- keying


async def test_keying_a_name_keeps_its_mail(hub: SmallHub) -> None:
    await hub.send(text="before")
    secret, token = await make_token(hub.bus, ADMIN, "ann")
    assert proves(hub, secret) == "ann"
    assert texts(await hub.take()) == ["before"]
    assert secret not in repr(token)
    assert len(secret) == 43


async def test_every_token_has_an_id_of_its_own(hub: SmallHub) -> None:
    tokens = [(await make_token(hub.bus, ADMIN, "ann"))[1] for _ in range(3)]
    assert len({token.id for token in tokens}) == 3
    assert len(await hub.bus.store.read(lambda view: view.tokens())) == 3


async def test_once_keyed_only_its_token_speaks_for_a_name(hub: SmallHub) -> None:
    await make_token(hub.bus, ADMIN, "ann")
    for caller in (OPEN, ADMIN):
        with pytest.raises(TokenRequired):
            hub.bus.identify(caller, "ANN")
    assert hub.bus.identify(ANN, None) == ("ann", True)
    assert hub.bus.identify(OPEN, "bob") == ("bob", False)


async def test_keying_makes_a_name_known_and_a_member(hub: SmallHub) -> None:
    await make_token(hub.bus, ADMIN, "Dora")
    assert "dora" in {each.mailbox for each in hub.bus.directory.members()}
    assert hub.bus.directory.is_keyed("DORA")


async def test_keying_ends_the_streams_that_showed_no_token(hub: SmallHub) -> None:
    reader, other = await hub.listen("ann"), await hub.listen("bob")
    await make_token(hub.bus, ADMIN, "ann")
    assert await reader.items() == [End("keyed")]
    again = await hub.listen("ann")
    await make_token(hub.bus, ANN, "ann")
    assert again.stream.ended is None
    assert other.stream.ended is None


async def test_while_a_token_is_rotated_the_old_one_works_on_for_a_while(hub: SmallHub) -> None:
    old, _ = await make_token(hub.bus, ADMIN, "ann")
    new, _ = await make_token(hub.bus, ANN, "ann")
    assert [proves(hub, each) for each in (old, new)] == ["ann", "ann"]
    await hub.clock.advance(OVERLAP_SECONDS)
    assert [proves(hub, each) for each in (old, new)] == [None, "ann"]
    await make_token(hub.bus, ANN, "ann")
    assert len(hub.bus.directory.tokens_of("ann")) == 2


async def test_two_rotations_at_once_leave_one_token_without_an_end(hub: SmallHub) -> None:
    await asyncio.gather(*[make_token(hub.bus, ADMIN, "ann") for _ in range(3)])
    assert [token.ends_at is None for token in hub.bus.directory.tokens_of("ann")].count(True) == 1


async def test_keying_and_learning_in_one_commit_do_not_open_the_name_again(hub: SmallHub) -> None:
    await hub.clock.advance(2 * 3600)
    *_, taken = await asyncio.gather(
        make_token(hub.bus, ADMIN, "ann"), hub.send("ann", "bob"), hub.take("ann"), return_exceptions=True
    )
    assert isinstance(taken, TokenRequired)  # it was keyed before anything could be taken
    assert hub.bus.directory.is_keyed("ann")
    await hub.restart()
    assert hub.bus.directory.is_keyed("ann")


async def test_whoever_waits_in_a_claim_when_the_name_is_keyed_gets_none_of_its_mail(hub: SmallHub) -> None:
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(asyncio.wait_for(_refused(hub), 5))
        await settle()
        await make_token(hub.bus, ADMIN, "ann")
        await hub.send()
        assert await waiting
    assert (await hub.take_one()).delivery.attempt == 1


async def _refused(hub: SmallHub) -> bool:
    with pytest.raises(TokenRequired):
        await hub.take("ann", wait_seconds=60)
    return True


async def test_what_is_at_work_under_a_token_ends_with_it(hub: SmallHub) -> None:
    """At once where it is revoked or its name removed; within the second where its time runs out."""
    ended: list[str] = []
    visits = hub.bus.directory.visits

    def visit(secret: str, name: str) -> Visit:
        made = Visit(visits, digest_of(secret), lambda: ended.append(name))
        made.__enter__()
        return made

    first, _ = await make_token(hub.bus, ADMIN, "ann")
    visit(first, "rotated")
    second, token = await make_token(hub.bus, ADMIN, "ann")
    visit(second, "revoked")
    gone, _ = await make_token(hub.bus, ADMIN, "bob")
    visit(gone, "removed")
    await hub.clock.advance(OVERLAP_SECONDS - 1)
    assert hub.bus.directory.end_visits(hub.clock.now()) == hub.clock.now() + 1000
    assert ended == []
    await hub.clock.advance(1)
    assert hub.bus.directory.end_visits(hub.clock.now()) is None
    assert ended == ["rotated"]
    await revoke_token(hub.bus, ADMIN, "ann", token.id)
    assert ended == ["rotated", "revoked"]
    await remove_agent(hub.bus, "bob")
    assert ended == ["rotated", "revoked", "removed"]
    assert visits.tokens() == []


async def test_keying_and_editing_in_one_commit_do_not_undo_each_other(hub: SmallHub) -> None:
    for name in ("ann", "dora"):
        await asyncio.gather(
            put_agent(hub.bus, ADMIN, name, "A title", None),
            make_token(hub.bus, ADMIN, name),
            put_agent(hub.bus, ADMIN, name, None, "What it does"),
        )
        agent = hub.bus.directory.find(name)
        assert agent is not None
        assert (agent.title, agent.description, agent.keyed) == ("A title", "What it does", True)


async def test_a_token_is_known_after_a_restart(hub: SmallHub) -> None:
    secret, _ = await make_token(hub.bus, ADMIN, "ann")
    await hub.restart()
    assert proves(hub, secret) == "ann"


async def test_a_revoked_token_is_worthless_at_once_and_the_name_stays_keyed(hub: SmallHub) -> None:
    old, first = await make_token(hub.bus, ADMIN, "ann")
    new, _ = await make_token(hub.bus, ANN, "ann")
    reader = await hub.listen("ann")
    await revoke_token(hub.bus, ANN, "ann", first.id)
    assert [proves(hub, each) for each in (old, new)] == [None, "ann"]
    assert await reader.items() == [End("revoked")]
    assert hub.bus.directory.is_keyed("ann")


async def test_an_unknown_token_cannot_be_revoked(hub: SmallHub) -> None:
    _, bobs = await make_token(hub.bus, ADMIN, "bob")
    for name, token_id in (("ann", "x"), ("ann", bobs.id), ("nobody", "x")):
        with pytest.raises(NotFound):
            await revoke_token(hub.bus, ADMIN, name, token_id)


@pytest.mark.parametrize(("caller", "error"), [(Caller(Rank.AGENT, "bob"), NotAllowed), (LINK, BadRequest)])
async def test_nobody_touches_the_name_of_another(hub: SmallHub, caller: Caller, error: type[AngeliaError]) -> None:
    _, token = await make_token(hub.bus, ADMIN, "ann")
    with pytest.raises(error):
        await make_token(hub.bus, caller, "ann")
    with pytest.raises(error):
        await revoke_token(hub.bus, caller, "ann", token.id)
    with pytest.raises(error):
        await put_agent(hub.bus, caller, "ann", "mine", None)
    assert len(hub.bus.directory.tokens_of("ann")) == 1


@pytest.mark.parametrize("name", ["human", "Angelia", "interop", "no name", ""])
async def test_a_name_that_nobody_can_have_is_neither_put_nor_keyed(hub: SmallHub, name: str) -> None:
    with pytest.raises(BadName):
        await make_token(hub.bus, ADMIN, name)
    with pytest.raises(BadName):
        await put_agent(hub.bus, ADMIN, name, None, None)


# ------------------------------------------------------------------------------------------------------------ editing


async def test_what_is_not_said_stays_as_it_was(hub: SmallHub) -> None:
    await put_agent(hub.bus, ADMIN, "ann", "The first", "Does things")
    agent = await put_agent(hub.bus, ANN, "ANN", "The second", None)
    assert (agent.handle, agent.title, agent.description) == ("ann", "The second", "Does things")
    assert hub.bus.directory.find("ann") == agent


async def test_putting_a_name_makes_it_known_and_a_member(hub: SmallHub) -> None:
    await put_agent(hub.bus, ADMIN, "Dora", None, None)
    assert "dora" in {each.mailbox for each in hub.bus.directory.members()}
    await hub.send(to="dora")


@pytest.mark.parametrize(("title", "description"), [("x" * 121, None), (None, "x" * 2001)])
async def test_titles_and_descriptions_are_bounded(hub: SmallHub, title: str | None, description: str | None) -> None:
    with pytest.raises(TooLarge):
        await put_agent(hub.bus, ADMIN, "ann", title, description)


# --------------------------------------------------------------------------------------------------------- forgetting


async def test_a_name_that_is_removed_is_unknown_and_its_mail_waits(hub: SmallHub) -> None:
    await hub.send(text="waits")
    reader = await hub.listen("ann")
    await remove_agent(hub.bus, "ANN")
    assert hub.bus.directory.find("ann") is None
    assert (await reader.items())[-1] == End("removed")
    await reader.close()
    assert texts(await hub.take("ann")) == ["waits"]


async def test_a_keyed_name_that_is_removed_leaves_its_mail_to_nobody_without_a_new_key(hub: SmallHub) -> None:
    await make_token(hub.bus, ADMIN, "vault")
    await hub.send(to="vault", text="secret")
    await remove_agent(hub.bus, "vault")
    for _ in range(2):
        assert hub.bus.directory.find("vault") is None
        with pytest.raises(TokenRequired):
            hub.bus.identify(OPEN, "Vault")
        with pytest.raises(UnknownAgent):
            await hub.send(to="vault")
        assert "vault" not in {row.agent.handle for row in await roster(hub.bus)}
        await hub.restart()
    secret, _ = await make_token(hub.bus, ADMIN, "vault")
    assert proves(hub, secret) == "vault"
    assert texts(await hub.take("vault")) == ["secret"]


async def test_a_keyed_name_that_was_removed_is_not_opened_by_making_it_known(hub: SmallHub) -> None:
    await make_token(hub.bus, ADMIN, "vault")
    await remove_agent(hub.bus, "vault")
    await put_agent(hub.bus, ADMIN, "vault", None, None)
    with pytest.raises(TokenRequired):
        hub.bus.identify(OPEN, "vault")


async def test_a_keyed_name_that_was_removed_is_reached_by_nothing_until_that_is_said_anew(hub: SmallHub) -> None:
    """It came back as it had been, and nobody was told: no message woke it."""
    program = b'{"kind":"command"}'
    await make_token(hub.bus, ADMIN, "vault")
    await put_agent(hub.bus, ADMIN, "vault", None, None, program)
    await remove_agent(hub.bus, "vault")
    await hub.restart()
    await make_token(hub.bus, ADMIN, "vault")
    assert hub.bus.directory.agents["vault"].adapter is None
    with hub.bus.runs.signals.watch(ADAPTERS) as watch:
        ticket = watch.ticket()
        await put_agent(hub.bus, ADMIN, "vault", None, None, program)
        assert watch.ticket() > ticket
    assert hub.bus.directory.agents["vault"].adapter == program


@pytest.mark.parametrize(("name", "error"), [("nobody", NotFound), ("hermes", BadRequest), ("OpenClaw", BadRequest)])
async def test_what_cannot_be_removed_is_refused(hub: SmallHub, name: str, error: type[AngeliaError]) -> None:
    with pytest.raises(error):
        await remove_agent(hub.bus, name)


async def test_only_idle_open_names_without_mail_or_stream_are_forgotten(hub: SmallHub) -> None:
    await hub.know("idle", "with-mail", "with-stream", "keyed", "looked-at")
    await make_token(hub.bus, ADMIN, "keyed")
    await hub.send(to="with-mail", ttl_seconds=30 * DAY)
    await hub.listen("with-stream")
    await hub.observe("looked-at")
    await hub.clock.advance(29 * DAY)
    await hub.send("bob", "cat")
    await hub.clock.advance(1.5 * DAY)
    forget_idle(hub.bus)
    await settle()
    assert set(hub.bus.directory.agents) == {
        "hermes", "openclaw", "with-mail", "with-stream", "keyed", "looked-at", "bob", "cat",
    }  # fmt: skip
    await hub.restart()
    assert hub.bus.directory.find("idle") is None


async def test_a_name_that_comes_back_while_it_is_forgotten_stays(hub: SmallHub) -> None:
    await hub.clock.advance(31 * DAY)
    back = hub.bus.store.write(lambda tx: hub.bus.directory.learn(tx, "ann", hub.clock.now(), member=True, most=None))
    forget_idle(hub.bus)
    await back
    await settle()
    assert hub.bus.directory.find("ann") is not None
    assert hub.bus.directory.find("bob") is None


# ------------------------------------------------------------------------------------------------------------- roster


async def test_the_roster_says_how_everyone_stands(hub: SmallHub) -> None:
    await hub.listen("ann")
    at = hub.clock.now()
    await hub.send(to="cat")
    await hub.clock.advance(5)
    await hub.send(to="cat")
    stand = {p.agent.handle: (p.online, p.queued, p.oldest_unread_at) for p in await roster(hub.bus)}
    assert list(stand) == ["ann", "bob", "cat", "hermes", "openclaw"]
    assert stand["ann"] == (True, 0, None)
    assert stand["cat"] == (False, 2, at)


async def test_whoever_is_woken_is_there_as_far_as_is_known(hub: SmallHub) -> None:
    """As others are told it."""
    ann = await put_agent(hub.bus, ADMIN, "ann", None, None, b'{"kind":"command"}')
    assert [one.online for one in await roster(hub.bus, "ann")] == [True]
    looked_at(hub.bus, ann, works=False)
    await settle()
    assert [one.online for one in await roster(hub.bus, "ann")] == [False]


async def test_one_agent_can_be_looked_up(hub: SmallHub) -> None:
    (found,) = await roster(hub.bus, "ann")
    assert isinstance(found.agent, Agent)
    assert await roster(hub.bus, "nobody") == []
