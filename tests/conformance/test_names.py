"""Agents, their tokens, who has met whom, and the self-test."""

from dataclasses import replace

from angelia.bus.ports import Scope, Store, Tx, View
from angelia.model.agent import Agent, Token
from tests.conformance.mail import PLENTY, put

CLAUDE = Agent(handle="Claude", title="Claude Code", description="ü", member=True, keyed=True, created_at=1, seen_at=2)
HERMES = Agent(handle="hermes", created_at=3, seen_at=4)
OLD = Token(id="old", mailbox="claude", digest=bytes(range(32)), created_at=1, ends_at=9)
NEW = Token(id="new", mailbox="claude", digest=bytes(32), created_at=5)
THEIRS = Token(id="theirs", mailbox="hermes", digest=b"x" * 32, created_at=6)


async def remember(store: Store, *things: Agent | Token) -> None:
    def unit(tx: Tx) -> None:
        for thing in things:
            if isinstance(thing, Agent):
                tx.put_agent(thing)
            else:
                tx.put_token(thing)

    await store.write(unit)


def agents(view: View) -> set[Agent]:
    return set(view.agents())


def tokens(view: View) -> set[Token]:
    return set(view.tokens())


async def test_an_agent_is_put_found_and_put_again(store: Store) -> None:
    await remember(store, CLAUDE, HERMES)
    assert await store.read(agents) == {CLAUDE, HERMES}
    assert await store.read(lambda view: view.agent("claude")) == CLAUDE
    assert await store.read(lambda view: view.agent("nobody")) is None
    renamed = replace(CLAUDE, handle="CLAUDE", seen_at=99, member=False)
    await store.write(lambda tx: tx.put_agent(renamed))
    assert await store.read(agents) == {renamed, HERMES}


async def test_a_token_is_put_and_put_again(store: Store) -> None:
    await remember(store, OLD, NEW)
    assert await store.read(tokens) == {OLD, NEW}
    ended = replace(NEW, ends_at=7)
    await store.write(lambda tx: tx.put_token(ended))
    await store.write(lambda tx: tx.remove_token("old"))
    await store.write(lambda tx: tx.remove_token("never there"))
    assert await store.read(tokens) == {ended}


async def test_a_name_that_is_forgotten_takes_its_tokens_and_leaves_its_mail(store: Store) -> None:
    await remember(store, CLAUDE, HERMES)
    await remember(store, OLD, NEW, THEIRS)
    parcel = await put(store, 1)
    await store.write(lambda tx: tx.remove_agent("claude"))
    assert await store.read(agents) == {HERMES}
    assert await store.read(tokens) == {THEIRS}
    assert await store.read(lambda view: view.waiting(Scope("claude"), 9, PLENTY)) == [parcel]
    await store.write(lambda tx: tx.remove_agent("claude"))


async def test_an_agents_adapter_is_kept_and_taken_away(store: Store) -> None:
    woken = replace(HERMES, adapter=b'{"kind":"command"}')
    await remember(store, woken)
    assert await store.read(lambda view: view.agent("hermes")) == woken
    await remember(store, HERMES)
    assert await store.read(lambda view: view.agent("hermes")) == HERMES


async def test_notes_are_found_by_name_and_by_the_beginning_of_it(store: Store) -> None:
    def unit(tx: Tx) -> None:
        tx.put_note("session:b:x", b"2", 7)
        tx.put_note("session:a", b"1", 6)
        tx.put_note("session:b:x", b"3", 8)
        tx.put_note("other", b"", 9)

    await store.write(unit)
    assert await store.read(lambda view: view.note("session:b:x")) == b"3"
    assert await store.read(lambda view: view.note("session:b")) is None
    found = await store.read(lambda view: view.notes("session:"))
    assert [(note.name, note.value, note.at) for note in found] == [("session:a", b"1", 6), ("session:b:x", b"3", 8)]
    await store.write(lambda tx: tx.put_note("session:a", None, 10))
    assert [note.name for note in await store.read(lambda view: view.notes("session:"))] == ["session:b:x"]


async def test_contacts_know_both_sides_the_latest_first(store: Store) -> None:
    async def contacts(mailbox: str, limit: int = 9) -> list[str]:
        return await store.read(lambda view: view.contacts(mailbox, limit))

    for one, other, at in (("a", "b", 1), ("c", "a", 2), ("a", "d", 3)):
        await store.write(lambda tx, p=(one, other, at): tx.add_contact(*p))  # type: ignore[misc]
    assert await contacts("a") == ["d", "c", "b"]
    assert await contacts("b") == ["a"]
    assert await contacts("c") == ["a"]
    await store.write(lambda tx: tx.add_contact("b", "a", 4))
    assert await contacts("a") == ["b", "d", "c"]
    assert await contacts("a", 2) == ["b", "d"]
    assert await contacts("nobody") == []


async def test_the_self_test_is_zero_and_then_what_was_put(store: Store) -> None:
    assert await store.read(lambda view: view.self_test()) == 0
    for value in (7, 1 << 40):
        await store.write(lambda tx, value=value: tx.put_self_test(value))  # type: ignore[misc]
        assert await store.read(lambda view: view.self_test()) == value
