"""Looking back: who sees what, and that what one may not see is not there."""

from typing import Any

import pytest

from angelia.bus.agents import make_token
from angelia.bus.caller import ADMIN, OPEN, Caller, Rank
from angelia.bus.library import conversation, search, talks
from angelia.model.errors import BadRequest, NotFound, TooLarge, UnknownMessage
from angelia.model.limits import Limits
from tests.fakes.small_hub import SmallHub
from tests.fakes.troubled_store import TroubledStore

ANN, BOB, CAT = (Caller(Rank.AGENT, name) for name in ("Ann", "bob", "cat"))


async def found(hub: SmallHub, caller: Caller = ADMIN, text: str = "", **how: Any) -> list[str | None]:
    how = {"sender": None, "recipient": None, "before": None, "limit": 20, **how}
    page = await search(hub.bus, caller, text, **how)
    return [envelope.text for envelope in page.envelopes]


async def listed(hub: SmallHub, caller: Caller) -> list[str | None]:
    return [talk.last.text for talk in (await talks(hub.bus, caller, None, 20)).talks]


async def said(hub: SmallHub, caller: Caller, message_id: str) -> list[str | None]:
    page = await conversation(hub.bus, caller, message_id, 0, 20)
    return [each.envelope.text for each in page.said]


async def scene(hub: SmallHub) -> str:
    """ann and bob are keyed, cat is open; the id of the first message between ann and bob."""
    for name in ("ann", "bob"):
        await make_token(hub.bus, ADMIN, name)
    secret = await hub.send("ann", "bob", "the secret word")
    await hub.send("bob", "ann", "the secret answer", in_reply_to=secret.envelope.id)
    await hub.send("ann", "cat", "an open word")
    await hub.send("human", "bob", "a word of the owner")
    return secret.envelope.id


async def test_each_finds_what_it_sent_or_got(hub: SmallHub) -> None:
    await scene(hub)
    assert await found(hub, ADMIN, "word") == ["a word of the owner", "an open word", "the secret word"]
    assert await found(hub, ANN, "word") == ["an open word", "the secret word"]
    assert await found(hub, BOB, "word") == ["a word of the owner", "the secret word"]
    assert await found(hub, CAT, "word") == ["an open word"]
    assert await found(hub, OPEN, "word") == ["an open word"]
    assert await found(hub, Caller(Rank.LINK, "far"), "word") == []


async def test_each_lists_the_conversations_it_has_a_part_in(hub: SmallHub) -> None:
    await scene(hub)
    assert await listed(hub, ADMIN) == ["a word of the owner", "an open word", "the secret answer"]
    assert await listed(hub, CAT) == ["an open word"]
    assert await listed(hub, OPEN) == ["an open word"]


async def test_a_conversation_is_unknown_to_others(hub: SmallHub) -> None:
    first = await scene(hub)
    for caller in (ADMIN, ANN, BOB):
        assert await said(hub, caller, first) == ["the secret word", "the secret answer"]
    for caller in (CAT, OPEN):
        with pytest.raises(UnknownMessage):
            await said(hub, caller, first)
    with pytest.raises(UnknownMessage):
        await said(hub, ADMIN, "0" * 32)
    with pytest.raises(BadRequest):
        await said(hub, ADMIN, "../../etc/passwd")


async def test_names_narrow_it_down_in_any_case(hub: SmallHub) -> None:
    await scene(hub)
    assert await found(hub, ADMIN, "word", sender="ANN") == ["an open word", "the secret word"]
    assert await found(hub, ADMIN, "", recipient="Cat") == ["an open word"]
    assert await found(hub, ADMIN, "word", sender="ann", recipient="bob") == ["the secret word"]
    assert await found(hub, CAT, "", sender="ann") == ["an open word"]


async def test_looking_back_changes_nothing(hub: SmallHub) -> None:
    first = await scene(hub)
    before = [await hub.mailbox(name) for name in ("ann", "bob", "cat")]
    for _ in range(2):
        await found(hub, OPEN, "word")
        await said(hub, ANN, first)
        await listed(hub, ADMIN)
    assert [await hub.mailbox(name) for name in ("ann", "bob", "cat")] == before


async def test_bounds_are_told() -> None:
    hub = await SmallHub.open(Limits(query_letters=10, found_messages=5))
    with pytest.raises(TooLarge):
        await found(hub, ADMIN, "x" * 11, limit=5)
    for limit in (0, 6, -1):
        with pytest.raises(BadRequest):
            await found(hub, ADMIN, "x", limit=limit)
        with pytest.raises(BadRequest):
            await talks(hub.bus, ADMIN, None, limit)
        with pytest.raises(BadRequest):
            await conversation(hub.bus, ADMIN, "0" * 32, 0, limit)


@pytest.mark.parametrize("text", ["", "  ", '""'])
async def test_nothing_to_look_for_is_told(hub: SmallHub, text: str) -> None:
    with pytest.raises(BadRequest, match="what to look for"):
        await found(hub, ADMIN, text)


@pytest.mark.parametrize("text", ["AND", "(", '"', "a:b*", "NEAR(x y)", "%", "\0x", "-word", "wor*", "*"])
async def test_no_text_is_an_error(hub: SmallHub, text: str) -> None:
    await scene(hub)
    if text == '"' or text == "*":
        with pytest.raises(BadRequest):
            await found(hub, ADMIN, text)
    else:
        assert isinstance(await found(hub, ADMIN, text), list)


async def test_a_store_without_an_index_says_so(troubled: SmallHub, store: TroubledStore) -> None:
    with pytest.raises(NotFound, match="keeps no index"):
        await found(troubled, ADMIN, "word")
