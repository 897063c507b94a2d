"""What a store that is a ``Library`` must do: find what was stored, and nothing else, for those who may see it."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from angelia.bus.ports import Found, Library, Sight, Store, Talks, Tx
from angelia.model.delivery import State
from angelia.model.envelope import Envelope
from angelia.model.query import Query, read_phrases
from angelia.storage.memory import MemoryStore
from angelia.storage.sqlite.store import SqliteStore
from tests.conformance.conftest import SMALL
from tests.conformance.mail import NOW, PLENTY, delivery, envelope, lease

ALL = Sight()


class Shelf:
    """A store, and the questions of a library in a few words."""

    def __init__(self, store: Store) -> None:
        assert isinstance(store, Library)
        self.store, self.library = store, store

    async def put(self, number: int, text: str | None = None, *, to: tuple[str, ...] = ("claude",), **more: Any) -> int:
        """Message ``number`` into some mailboxes; the place of its first delivery."""
        body = more.pop("body", None)
        message = envelope(
            number,
            text=f"text {number}" if text is None and body is None else text,
            body=None if body is None else json.dumps(body).encode(),
            **{"to": to[0], **more},
        )

        def unit(tx: Tx) -> int:
            rows = [delivery(message, tx.next_seq(), box) for box in to]
            tx.add(message, rows)
            return rows[0].key

        return await self.store.write(unit)

    async def remove(self, *keys: int) -> None:
        def unit(tx: Tx) -> None:
            tx.remove([row for key in keys if (row := tx.delivery(key)) is not None])

        await self.store.write(unit)

    async def find(self, words: str = "", sight: Sight = ALL, **how: Any) -> list[int]:
        """The numbers of the messages that a search finds, on its first page."""
        return numbers((await self.page(words, sight, **how)).envelopes)

    async def page(self, words: str = "", sight: Sight = ALL, **how: Any) -> Found:
        query = Query(read_phrases(words), how.pop("sender", None), how.pop("recipient", None))
        how = {"before": None, "limit": 50, "max_bytes": PLENTY, **how}
        found = await self.library.search(sight, query, **how)
        assert found.behind == 0
        return found

    async def talks(self, sight: Sight = ALL, before: int | None = None, limit: int = 50) -> Talks:
        return await self.library.talks(sight, before, limit)

    async def said(self, number: int, sight: Sight = ALL) -> list[int] | None:
        """The numbers of the messages in a conversation, all pages of it."""
        found: list[Envelope] = []
        after: int | None = 0
        while after is not None:
            page = await self.library.conversation(sight, f"{number:032x}", after, 2, PLENTY)
            if page is None:
                return None
            found += [said.envelope for said in page.said]
            after = page.next
        return numbers(found)


def numbers(envelopes: list[Envelope]) -> list[int]:
    return [int(message.id, 16) for message in envelopes]


def only(name: str) -> Sight:
    return Sight(owns=lambda box: box == name, only=name)


@pytest.fixture(params=["memory", "sqlite"])
async def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shelf]:
    store: MemoryStore | SqliteStore = MemoryStore()
    if request.param == "sqlite":
        store = await SqliteStore.open(tmp_path / "angelia.db", now=NOW, reserve=SMALL)
    yield Shelf(store)
    await store.close()


# --------------------------------------------------------------------------------------------------------------- words


async def test_what_was_stored_is_found_at_once(shelf: Shelf) -> None:
    for number in range(1, 40):
        await shelf.put(number, f"the build of branch number{number} is green")
        assert await shelf.find(f"number{number}") == [number]
    assert await shelf.find("build green") == list(range(39, 0, -1))
    assert await shelf.find("red") == []


@pytest.mark.parametrize(
    ("text", "words", "there"),
    [
        ("The Build is GREEN", "build green", True),
        ("Der Zug fährt über Köln", "fahrt KOLN", True),
        ("Der Zug fährt über Köln", "zug", True),
        ("the build is green", "build red", False),
        ("the build is green", "buil", False),
        ("the build is green", "buil*", True),
        ("the build is green", "green *", True),
        ("the build is green", "is* build", True),
        ("the build is green", '"build is"', True),
        ("the build is green", '"is build"', False),
        ("the build is green", '"build green"', False),
        ("merge feature/relay now", "feature/relay", True),
        ("merge feature/relay now", "relay/feature", False),
        ("merge feature/relay now", "feature relay", True),
        ("see v1.2.3", "v1.2.3", True),
        ("see v1.2.3", "v1.2.4", False),
        ("a.b@example.org wrote", "a.b@example.org", True),
        ("第二次部署已经完成", "部署", True),
        ("第二次部署已经完成", "完部", False),
        ("ビルドが成功した", "成功", True),
        ("shipped 🚀 today", "🚀", True),
        ("shipped🚀today", "today", True),
        ("shipped today", "🚀", False),
        ("NOT here AND there", "and not", True),
        ("one two", "one -two", True),
        ("one two", "one OR three", False),
        ("text: who", "text:who", True),
        ("something", "???", False),
        ("something", "something ???", True),
        ("what ??? now", "what now", True),
        ("straße", "STRASSE", False),
        ("x" * 300 + " end", "end", True),
    ],
)
async def test_words(shelf: Shelf, text: str, words: str, there: bool) -> None:
    await shelf.put(1, text)
    await shelf.put(2, "of other things")
    assert await shelf.find(words) == ([1] if there else [])


@pytest.mark.parametrize(
    "words",
    [
        '"', '""', '"""', "*", "**", "a*", "(", ")", "()", "NEAR(a b)", "NOT", "AND", "OR a", "-", "a:b", "{text}:a",
        "who:xf68", "^a", "a + b", "'", "';--", "%", "_", "\\", "\0", "a\0b", "\ud800", "\U0001f600*", "\u200b", "\n",
        "rowid:1", "text : x", "col1 : *", '"unbalanced', 'un"balanced', "a" * 900, "\" ' ( ) * : ^ - + NOT",
        "x " * 400, "é" * 100, "中" * 300, "\ufffe", "search MATCH x", "a*b*c*", '"a*"', '*"a"*',
    ],
)  # fmt: skip
async def test_every_text_is_a_query(shelf: Shelf, words: str) -> None:
    await shelf.put(1, "plain words, of no concern")
    assert await shelf.find(words) in ([], [1])
    await shelf.put(2, words.encode("utf-8", "replace").decode() or "x")
    await shelf.find(words)


async def test_strings_of_a_body_are_found_and_names_of_its_members_are_not(shelf: Shelf) -> None:
    await shelf.put(1, body={"type": "deploy", "steps": [{"name": "staging"}, "production", 7, True, None]})
    await shelf.put(2, "words", body="a bare string")
    await shelf.put(3, body={"type": "message", "text": "as the seed has it"}, flat=True)
    assert await shelf.find("production staging deploy") == [1]
    assert await shelf.find("steps") == []
    assert await shelf.find("bare words") == [2]
    assert await shelf.find("seed") == [3]


async def test_words_anywhere_in_a_long_text_are_found(shelf: Shelf) -> None:
    long = "".join(f"word{number} " for number in range(40_000))
    await shelf.put(1, long)
    await shelf.put(2, "word5 and nothing else")
    for number in (0, 5, 1789, 20_001, 39_999):
        assert 1 in await shelf.find(f"word{number}")
    for number in range(0, 39_900, 501):
        assert await shelf.find(f'"word{number} word{number + 1} word{number + 2}"') == [1]
    assert await shelf.find("word40000") == []


# ------------------------------------------------------------------------------------------------- pages, and who wrote


async def test_pages_go_on_where_the_last_one_ended(shelf: Shelf) -> None:
    for number in range(1, 120):
        await shelf.put(number, "even" if number % 2 == 0 else "odd")
    found: list[int] = []
    page = await shelf.page("even", limit=7)
    while True:
        found += numbers(page.envelopes)
        if page.next is None:
            break
        assert len(page.envelopes) == 7
        await shelf.put(1000 + page.next, "even")  # what comes meanwhile moves nothing
        page = await shelf.page("even", limit=7, before=page.next)
    assert found == list(range(118, 0, -2))


async def test_a_page_ends_at_its_bytes_and_holds_at_least_one(shelf: Shelf) -> None:
    for number in range(1, 6):
        await shelf.put(number, "heavy " + "x" * 10_000)
    page = await shelf.page("heavy", max_bytes=25_000)
    assert numbers(page.envelopes) == [5, 4]
    page = await shelf.page("heavy", max_bytes=1, before=page.next)
    assert numbers(page.envelopes) == [3]
    assert await shelf.find("heavy", before=page.next) == [2, 1]


async def test_sender_and_recipient_narrow_it_down(shelf: Shelf) -> None:
    await shelf.put(1, "one", sender="Hermes", to=("claude",))
    await shelf.put(2, "one", sender="Codex", to=("hermes",))
    await shelf.put(3, "one two", sender="Codex", to=("claude", "hermes"))
    await shelf.put(4, "one", sender="Codex", to=("claude", "hermes"), **{"thread": envelope(1).id})
    assert await shelf.find("one", sender="codex") == [4, 3, 2]
    assert await shelf.find("one", sender="codex", recipient="hermes") == [4, 3, 2]
    assert await shelf.find("two", recipient="hermes") == [3]
    assert await shelf.find(sender="hermes") == [1]
    assert await shelf.find(recipient="claude") == [4, 3, 1]
    assert await shelf.find("one", sender="nobody") == []


async def test_who_a_message_was_addressed_to_counts_as_its_recipient(shelf: Shelf) -> None:
    boxes = tuple(f"agent{number}" for number in range(300))
    await shelf.put(1, "to all of you", to=boxes, **{"sender": "Hermes"})
    await shelf.store.write(
        lambda tx: tx.add(envelope(2, text="to all", to="*"), [delivery(envelope(2), tx.next_seq())])
    )
    assert await shelf.find("all", recipient="*") == [2]
    assert await shelf.find("all", recipient="agent299") == [1]
    assert await shelf.find("all", recipient="agent300") == []


async def test_one_sees_what_it_sent_or_got(shelf: Shelf) -> None:
    await shelf.put(1, "words", sender="Hermes", to=("claude",))
    await shelf.put(2, "words", sender="Codex", to=("hermes", "claude"))
    await shelf.put(3, "words", sender="Codex", to=tuple(f"agent{number}" for number in range(200)))
    for sight in (only, lambda name: Sight(owns=lambda box: box == name)):
        assert await shelf.find("words", sight("hermes")) == [2, 1]
        assert await shelf.find("words", sight("claude")) == [2, 1]
        assert await shelf.find("words", sight("codex")) == [3, 2]
        assert await shelf.find("words", sight("agent7")) == [3]
        assert await shelf.find("words", sight("agent200")) == []
        assert await shelf.find("words", sight("agent7"), sender="hermes") == []


async def test_a_recipient_that_is_added_later_sees_it(shelf: Shelf) -> None:
    await shelf.put(1, "words")
    assert await shelf.find("words", only("codex")) == []
    message = envelope(1, text="words")
    await shelf.store.write(lambda tx: tx.add(message, [delivery(message, tx.next_seq(), "codex")]))
    assert await shelf.find("words", only("codex")) == [1]
    assert await shelf.find("words") == [1]


# -------------------------------------------------------------------------------------------------------------- removal


async def test_what_was_removed_is_not_found(shelf: Shelf) -> None:
    keys = [await shelf.put(number, f"words of {number}") for number in range(1, 9)]
    assert len(await shelf.find("words")) == 8
    await shelf.remove(keys[2], keys[7])
    assert await shelf.find("words") == [7, 6, 5, 4, 2, 1]
    assert await shelf.find("8") == []
    await shelf.remove(*keys)
    assert await shelf.find("words") == []
    assert (await shelf.talks()).talks == []


async def test_a_message_goes_with_its_last_delivery(shelf: Shelf) -> None:
    key = await shelf.put(1, "words", to=("claude", "codex"))
    await shelf.remove(key)
    assert await shelf.find("words") == [1]
    assert await shelf.find("words", only("claude")) == []
    assert await shelf.find("words", only("codex")) == [1]
    await shelf.remove(key + 1)
    assert await shelf.find("words") == []


async def test_a_message_in_the_place_of_another_is_found_by_its_own_words(shelf: Shelf) -> None:
    """The newest is removed, as a notice is that a newer one replaces: the next takes its place in the tables."""
    await shelf.put(1, "stays")
    for number in range(2, 30):
        key = await shelf.put(number, f"word{number}")
        if number % 3:
            assert await shelf.find(f"word{number}") == [number]
        await shelf.remove(key)
        if number % 2:
            assert await shelf.find(f"word{number}") == []
        await shelf.put(number + 100, f"other{number}")
        assert await shelf.find(f"word{number}") == []
        assert await shelf.find(f"other{number}") == [number + 100]


async def test_removal_and_the_next_message_in_one_unit(shelf: Shelf) -> None:
    key = await shelf.put(1, "first")
    assert await shelf.find("first") == [1]
    message = envelope(2, text="second")

    def unit(tx: Tx) -> None:
        row = tx.delivery(key)
        assert row is not None
        tx.remove([row])
        tx.add(message, [delivery(message, tx.next_seq())])

    await shelf.store.write(unit)
    assert await shelf.find("first") == []
    assert await shelf.find("second") == [2]


async def test_a_unit_that_fails_leaves_nothing_to_find(shelf: Shelf) -> None:
    key = await shelf.put(1, "first")

    def fails(tx: Tx) -> None:
        row = tx.delivery(key)
        assert row is not None
        tx.remove([row])
        message = envelope(2, text="second")
        tx.add(message, [delivery(message, tx.next_seq())])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await shelf.store.write(fails)
    assert await shelf.find("second") == []
    assert await shelf.find("first") == [1]


# -------------------------------------------------------------------------------------------------------- conversations


async def talk(shelf: Shelf) -> Callable[[int], str]:
    """Two conversations: 1 2 4 6 between hermes and claude, 3 5 between codex and claude; 7 stands alone."""
    one, three = envelope(1).id, envelope(3).id
    await shelf.put(1, "is staging up?", sender="Hermes", to=("claude",))
    await shelf.put(2, "it is", sender="Claude", to=("hermes",), thread=one, in_reply_to=one)
    await shelf.put(3, "hello", sender="Codex", to=("claude",))
    await shelf.put(4, "since when?", sender="Hermes", to=("claude",), thread=one)
    await shelf.put(5, "hello yourself", sender="Claude", to=("codex",), thread=three)
    await shelf.put(6, "an aside", sender="Claude", to=("codex", "hermes"), thread=one)
    await shelf.put(7, "alone", sender="Codex", to=("hermes",))
    return lambda number: envelope(number).id


async def test_a_conversation_is_told_from_any_message_of_it(shelf: Shelf) -> None:
    await talk(shelf)
    for number in (1, 2, 4, 6):
        assert await shelf.said(number) == [1, 2, 4, 6]
    assert await shelf.said(5) == [3, 5]
    assert await shelf.said(7) == [7]
    assert await shelf.said(99) is None


async def test_a_conversation_may_have_a_name_that_is_no_messages(shelf: Shelf) -> None:
    await shelf.put(1, "one", thread=f"{77:032x}")
    await shelf.put(2, "two", thread=f"{77:032x}")
    assert await shelf.said(77) == [1, 2]
    assert await shelf.said(2) == [1, 2]


async def test_one_sees_of_a_conversation_what_it_sent_or_got(shelf: Shelf) -> None:
    await talk(shelf)
    assert await shelf.said(1, only("codex")) == [6]
    assert await shelf.said(2, only("hermes")) == [1, 2, 4, 6]
    assert await shelf.said(3, only("hermes")) is None


async def test_a_conversation_says_what_became_of_each_message(shelf: Shelf) -> None:
    await shelf.put(1, "one", to=("a", "b", "c"))

    rows = await shelf.store.read(lambda view: view.deliveries(envelope(1).id))
    await lease(shelf.store, rows[1])
    page = await shelf.library.conversation(ALL, envelope(1).id, 0, 9, PLENTY)
    assert page is not None
    assert [said.states for said in page.said] == [{State.QUEUED: 2, State.LEASED: 1}]


async def test_conversations_are_listed_by_their_last_message(shelf: Shelf) -> None:
    id_of = await talk(shelf)
    found = await shelf.talks()
    assert [(talk.thread, talk.count, talk.more) for talk in found.talks] == [
        (id_of(7), 1, False),
        (id_of(1), 4, False),
        (id_of(3), 2, False),
    ]
    assert found.next is None
    staging = found.talks[1]
    assert staging.last.text == "an aside"
    assert staging.first_at == envelope(1).created_at
    assert {name.lower() for name in staging.people} == {"hermes", "claude", "codex"}
    mine = await shelf.talks(only("codex"))
    assert [(talk.thread, talk.count, talk.last.text) for talk in mine.talks] == [
        (id_of(7), 1, "alone"),
        (id_of(1), 1, "an aside"),
        (id_of(3), 2, "hello yourself"),
    ]


@pytest.mark.parametrize("sight", [ALL, only("claude"), Sight(owns=lambda box: box == "claude")])
async def test_every_conversation_stands_on_one_page(shelf: Shelf, sight: Sight) -> None:
    threads = [envelope(number).id for number in range(1, 10)]
    for number in range(1, 100):
        await shelf.put(number, thread=threads[(number * number) % 9] if number > 9 else envelope(number).id)
    found: list[str] = []
    page = await shelf.talks(sight, limit=2)
    while True:
        found += [talk.thread for talk in page.talks]
        if page.next is None:
            break
        page = await shelf.talks(sight, page.next, 2)
    assert sorted(found) == sorted(threads)
    assert found == [talk.thread for talk in (await shelf.talks(sight)).talks]


async def test_the_list_of_one_who_has_little_says_where_to_go_on(shelf: Shelf) -> None:
    """A page looks at so many messages and no more."""
    await shelf.put(1, "mine", sender="Codex", to=("hermes",))

    def unit(tx: Tx) -> None:
        for number in range(2, 5000):
            message = envelope(number)
            tx.add(message, [delivery(message, tx.next_seq())])

    await shelf.store.write(unit)
    sight = Sight(owns=lambda box: box == "codex")
    page = await shelf.talks(sight)
    pages = 1
    while not page.talks:
        assert page.next is not None
        page = await shelf.talks(sight, page.next)
        pages += 1
    assert [talk.last.text for talk in page.talks] == ["mine"]
    assert pages <= 4
    assert [talk.last.text for talk in (await shelf.talks(only("codex"))).talks] == ["mine"]
