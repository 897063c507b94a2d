"""Looking back: conversations, and search."""

from angelia.bus.caller import may
from angelia.bus.core import Bus
from angelia.bus.library import conversation, search, talks
from angelia.bus.ports import Talk
from angelia.doors.http.call import Call
from angelia.doors.http.hub import Hub
from angelia.model.errors import BadRequest
from angelia.protocol.library import ConversationOut, FoundOut, SaidOut, TalkOut, TalksOut, last_out
from angelia.protocol.native import message_out
from angelia.protocol.times import rfc3339

PAGE = 20
NAME_LETTERS = 200


async def threads(call: Call, bus: Bus, hub: Hub) -> None:
    """The conversations that you have a part in, the latest first, each with its last message."""
    may(call.caller, "look_at_message")
    page = await talks(bus, call.caller, _before(call), call.number("limit", int, PAGE))
    await call.answer(TalksOut([_talk_out(talk) for talk in page.talks], page.next))


async def thread(call: Call, bus: Bus, hub: Hub) -> None:
    """One conversation from its beginning; the id of any message of it will do."""
    may(call.caller, "look_at_message")
    after, limit = call.number("after", int, 0), call.number("limit", int, PAGE)
    page = await conversation(bus, call.caller, call.param("id"), after, limit)
    rows = [
        SaidOut(message_out(said.envelope), {state.word: count for state, count in said.states.items()})
        for said in page.said
    ]
    await call.answer(ConversationOut(page.thread, rows, page.next))


async def find(call: Call, bus: Bus, hub: Hub) -> None:
    """Messages with all these words, the latest first; phrases in quotes, beginnings of words with a ``*``."""
    may(call.caller, "look_at_message")
    sender, recipient = _name(call, "from"), _name(call, "to")
    limit = call.number("limit", int, PAGE)
    page = await search(bus, call.caller, call.query("q") or "", sender, recipient, _before(call), limit)
    await call.answer(FoundOut([message_out(envelope) for envelope in page.envelopes], page.next, page.behind))


def _before(call: Call) -> int | None:
    before = call.number("before", int, 0)
    if not 0 <= before < 1 << 40:
        raise BadRequest(f"before is {before}; take it from the page before.")
    return before or None


def _name(call: Call, what: str) -> str | None:
    name = call.query(what)
    if name is not None and len(name) > NAME_LETTERS:
        raise BadRequest(f"{what} has {len(name)} letters; no name has more than {NAME_LETTERS}.")
    return name or None


def _talk_out(talk: Talk) -> TalkOut:
    return TalkOut(
        thread=talk.thread,
        messages=talk.count,
        more=talk.more,
        people=list(talk.people),
        first_at=rfc3339(talk.first_at),
        last=last_out(talk.last),
    )
