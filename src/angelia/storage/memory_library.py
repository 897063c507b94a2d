"""Finding again in the memory store: ``ports.Library`` over dictionaries.

What must stay true: plain and slow on purpose, like ``memory_rows``; it says what the other stores have to find. A
message's place is its first delivery's key, which rises and is never given twice.
"""

import json
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from angelia.bus.ports import Conversation, Found, Said, Sight, Talk, Talks
from angelia.model.envelope import Envelope
from angelia.model.query import Phrase, Query
from angelia.storage.memory_rows import MemoryView

_ALONE = (
    (0x3005, 0x30FF),
    (0x3400, 0x9FFF),
    (0x1F000, 0x1FAFF),
)  # signs that are words by themselves, the most of them


class MemoryLibrary(MemoryView):
    """The view with what ``ports.Library`` asks of it."""

    def talks(self, sight: Sight, before: int | None, limit: int) -> Talks:
        latest: dict[str, list[Envelope]] = {}
        for envelope in self._latest(sight):
            latest.setdefault(envelope.thread, []).append(envelope)
        found = [said for said in latest.values() if before is None or self._place(said[0]) < before]
        return Talks([_talk(said) for said in found[:limit]], self._next([said[0] for said in found], limit))

    def conversation(
        self, sight: Sight, message_id: str, after: int, limit: int, max_bytes: int
    ) -> Conversation | None:
        asked = self.message(message_id)
        thread = asked.thread if asked else message_id
        there = [envelope for envelope in reversed(list(self._latest(sight))) if envelope.thread == thread]
        rest = [envelope for envelope in there if self._place(envelope) > after]
        limit = _fitting(rest, limit, max_bytes)
        said = [Said(envelope, self._states(envelope)) for envelope in rest[:limit]]
        return Conversation(thread, said, self._next(rest, limit)) if there else None

    def search(self, sight: Sight, query: Query, before: int | None, limit: int, max_bytes: int) -> Found:
        found = [
            envelope
            for envelope in self._latest(sight)
            if (before is None or self._place(envelope) < before) and self._fits(envelope, query)
        ]
        limit = _fitting(found, limit, max_bytes)
        return Found(found[:limit], self._next(found, limit), behind=0)

    def _latest(self, sight: Sight) -> Iterator[Envelope]:
        """What may be seen, the latest first."""
        boxes: dict[str, list[str]] = {}
        for delivery in sorted(self._rows.deliveries.values(), key=lambda delivery: delivery.key):
            boxes.setdefault(delivery.message_id, []).append(delivery.mailbox)
        for message_id, mailboxes in reversed(boxes.items()):
            envelope = self._rows.messages[message_id]
            if sight.owns is None or any(sight.owns(box) for box in (envelope.sender.lower(), *mailboxes)):
                yield envelope

    def _fits(self, envelope: Envelope, query: Query) -> bool:
        if query.sender not in (None, envelope.sender.lower()):
            return False
        if query.recipient not in (None, envelope.to.lower(), *self._boxes(envelope)):
            return False
        words = _words("\n".join([envelope.text or "", *_strings(json.loads(envelope.body or b"null"))]))
        wanted = [(phrase, _words(phrase.text)) for phrase in query.phrases]
        there = [_stands(phrase, parts, words) for phrase, parts in wanted if parts]
        return all(there) if there else not query.phrases

    def _place(self, envelope: Envelope) -> int:
        return min(delivery.key for delivery in self.deliveries(envelope.id))

    def _boxes(self, envelope: Envelope) -> list[str]:
        return [delivery.mailbox for delivery in self.deliveries(envelope.id)]

    def _states(self, envelope: Envelope) -> dict[Any, int]:
        states = [delivery.state for delivery in self.deliveries(envelope.id)]
        return {state: states.count(state) for state in states}

    def _next(self, envelopes: list[Envelope], limit: int) -> int | None:
        return self._place(envelopes[limit - 1]) if len(envelopes) > limit else None


def _talk(said: list[Envelope]) -> Talk:
    people = {name.lower(): name for envelope in reversed(said) for name in (envelope.sender, envelope.to)}
    first = said[-1].created_at
    return Talk(said[0].thread, len(said), False, tuple(people.values()), first, said[0])


def _fitting(envelopes: list[Envelope], limit: int, max_bytes: int) -> int:
    """How many of them fit; at least one."""
    weight = 0
    for count, envelope in enumerate(envelopes[:limit]):
        weight += envelope.size
        if count and weight > max_bytes:
            return count
    return limit


@lru_cache(maxsize=256)
def _words(text: str) -> list[str]:
    """Its words, without case and accents."""
    plain = "".join(sign for sign in unicodedata.normalize("NFKD", text) if not unicodedata.combining(sign)).lower()
    spaced = "".join(f" {s} " if any(a <= ord(s) <= b for a, b in _ALONE) else s for s in plain)
    return "".join(s if s.isalnum() or unicodedata.category(s) == "So" else " " for s in spaced).split()


def _stands(phrase: Phrase, parts: list[str], words: list[str]) -> bool:
    spots = range(len(words) - len(parts) + 1)
    if not phrase.begins:
        return any(words[spot : spot + len(parts)] == parts for spot in spots)
    *whole, last = parts
    ends = len(whole)
    return any(words[spot : spot + ends] == whole and words[spot + ends].startswith(last) for spot in spots)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _strings(each)
