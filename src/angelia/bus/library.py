"""Finding again what was said: conversations, and search.

What must stay true: looking changes nothing. A caller finds what it sent or got and nothing else, by the same rule as a
receipt; what it may not see is not counted, not hinted at, and "unknown" when asked for. Every text is a query.
"""

from angelia.bus.caller import Caller, Rank
from angelia.bus.claim import owns
from angelia.bus.core import Bus
from angelia.bus.ports import Conversation, Found, Library, Sight, Talks
from angelia.model.envelope import check_id
from angelia.model.errors import BadRequest, NotFound, TooLarge, UnknownMessage
from angelia.model.query import Query, read_phrases


async def talks(bus: Bus, caller: Caller, before: int | None, limit: int) -> Talks:
    """Conversations that the caller has a part in, the one with the latest message first."""
    _check(bus, limit)
    return await _library(bus).talks(sight_of(bus, caller), before, limit)


async def conversation(bus: Bus, caller: Caller, message_id: str, after: int, limit: int) -> Conversation:
    """What the caller sees of the conversation that a message belongs to; the thread's own id will do, too."""
    _check(bus, limit)
    check_id(message_id)
    sight = sight_of(bus, caller)
    found = await _library(bus).conversation(sight, message_id, after, limit, bus.limits.claim_bytes)
    if found is None:
        raise UnknownMessage(f"There is no message {message_id} of yours.")
    return found


async def search(
    bus: Bus, caller: Caller, text: str, sender: str | None, recipient: str | None, before: int | None, limit: int
) -> Found:
    """Messages with these words, the latest first; ``sender`` and ``recipient`` narrow it down."""
    _check(bus, limit)
    most = bus.limits.query_letters
    if len(text) > most:
        raise TooLarge(f"What you look for has {len(text)} letters; {most} at most.", limit=most)
    query = Query(read_phrases(text), sender.lower() if sender else None, recipient.lower() if recipient else None)
    if not query.phrases and query.sender is None and query.recipient is None:
        raise BadRequest("Say what to look for: some words, or whose messages.")
    return await _library(bus).search(sight_of(bus, caller), query, before, limit, bus.limits.claim_bytes)


def sight_of(bus: Bus, caller: Caller) -> Sight:
    """What a caller sees."""
    if caller.rank is Rank.ADMIN:
        return Sight()
    if caller.rank is Rank.AGENT:
        return Sight(owns=lambda mailbox: owns(bus, caller, mailbox), only=caller.mailbox)
    return Sight(owns=lambda mailbox: owns(bus, caller, mailbox))


def _library(bus: Bus) -> Library:
    if not isinstance(bus.store, Library):
        raise NotFound("This hub's store keeps no index: it cannot be searched.")
    return bus.store


def _check(bus: Bus, limit: int) -> None:
    if not 1 <= limit <= bus.limits.found_messages:
        raise BadRequest(f"limit is {limit}; it lies between 1 and {bus.limits.found_messages}.")
