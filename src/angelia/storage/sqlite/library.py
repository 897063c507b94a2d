"""Finding again: ``ports.Library`` over one picture of a reading connection.

What must stay true: what the looker may not see is not there, whatever the index says, since each message is looked at
itself before it is given out. Every page is bounded by what it looks at, not only by what it shows; where it stopped
looking, ``next`` says where to go on. A number of the index counts only up to ``indexed``: beyond, it may stand for a
message that is gone, and whose number another has now.
"""

from collections.abc import Iterator

import apsw

from angelia.bus.ports import Conversation, Found, Said, Sight, Talk, Talks
from angelia.model.delivery import State
from angelia.model.envelope import Envelope
from angelia.model.errors import Unwell
from angelia.model.query import Phrase, Query
from angelia.storage.sqlite.connect import in_a_line
from angelia.storage.sqlite.queries import SQL
from angelia.storage.sqlite.rows import Row
from angelia.storage.sqlite.view import SqliteView
from angelia.storage.sqlite.words import MANY_WORD, PARTS, recipient_word, sender_word, spread

LOOKED_AT = 2_000  # messages that one page looks at: some 20 ms, where none of them may be shown
CHUNK = 64
COUNTED = 1_000  # messages of one conversation that a list counts
PEOPLE = 20

_SEARCH, _LATEST, _NEWEST = SQL["search"], SQL["latest"], SQL["newest_number"]
_THREAD_OF, _THREAD_AT, _IN_THREAD = SQL["thread_of"], SQL["thread_at"], SQL["in_thread"]
_IN_THREAD_LATEST, _ENDS, _CREATED_AT = SQL["in_thread_latest"], SQL["ends_of"], SQL["created_at"]
_MAILBOXES, _STATES, _MESSAGE_AT, _VALUE = SQL["mailboxes_of"], SQL["states_of"], SQL["message_at"], SQL["value"]
_STATE = tuple(State)
# How SQLite begins to say that there is none, or that FTS5 cannot read how it is set.
_NO_INDEX = ("no such table", "vtable constructor failed", "invalid fts5 file format")
_ALL = 1 << 40  # more than any store holds, and 512 times it is still a number


class IndexDamaged(Unwell):
    """The search index cannot be read. ``why``: in SQLite's words."""

    def __init__(self, why: str) -> None:
        super().__init__("The search index was damaged and is being made anew; search again in a minute.")
        self.why = why


class SqliteLibrary(SqliteView):
    """The view with what only this store can do."""

    __slots__ = ()

    # ---- search

    def search(self, sight: Sight, query: Query, before: int | None, limit: int, max_bytes: int) -> Found:
        """See ``ports.Library.search``; ``behind`` is how far the index is."""
        match = expression(query, sight)
        behind = self._behind()
        numbers = self._every(before) if match is None else self._matching(match, before)
        found: list[Envelope] = []
        weight = 0
        last: int | None = None
        for looked, number in enumerate(numbers):
            if looked == LOOKED_AT or len(found) == limit:
                return Found(found, last, behind)
            if self._fits(number, sight, query):
                envelope = self._message(_MESSAGE_AT, (number,))
                if envelope is not None:
                    weight += envelope.size
                    if found and weight > max_bytes:
                        return Found(found, last, behind)
                    found.append(envelope)
            last = number
        return Found(found, None, behind)

    def _behind(self) -> int:
        return max((self._number(_NEWEST, ()) or 0) - (self._number(_VALUE, ("indexed",)) or 0), 0)

    def _matching(self, match: str, before: int | None) -> Iterator[int]:
        """The numbers of messages whose entry matches, the latest first."""
        mark = self._number(_VALUE, ("indexed",)) or 0
        end = min(before or _ALL, mark + 1)
        while rows := self._in_index(match, end):
            for (rowid,) in rows:
                number = rowid // PARTS
                if number < end:  # else another part of the one before
                    end = number
                    yield number

    def _in_index(self, match: str, end: int) -> list[Row]:
        try:
            return self._desk.run(_SEARCH, (match, end * PARTS, CHUNK))
        except apsw.CorruptError as error:
            raise IndexDamaged(in_a_line(error)) from error
        except apsw.SQLError as error:
            if not str(error).startswith(_NO_INDEX):
                raise
            raise IndexDamaged(in_a_line(error)) from error

    def _every(self, before: int | None) -> Iterator[int]:
        """All numbers of messages, the latest first."""
        end = before or _ALL
        while rows := self._desk.run(_LATEST, (end, CHUNK)):
            for (number,) in rows:
                end = number
                yield number

    def _fits(self, number: int, sight: Sight, query: Query) -> bool:
        """Whether it is what was asked for, but for its words, and may be seen."""
        if sight.owns is None and query.sender is None and query.recipient is None:
            return True
        for sender, recipient in self._desk.run(_ENDS, (number,)):
            if query.sender not in (None, sender.lower()):
                return False
            if query.recipient not in (None, recipient.lower(), *self._mailboxes(number)):
                return False
            return self._may_see(number, sender, sight)
        return False

    def _may_see(self, number: int, sender: str, sight: Sight) -> bool:
        if sight.owns is None or sight.owns(sender.lower()):
            return True
        return any(sight.owns(mailbox) for mailbox in self._mailboxes(number))

    def _mailboxes(self, number: int) -> list[str]:
        return [row[0] for row in self._desk.run(_MAILBOXES, (number, -1))]

    # ---- conversations

    def conversation(
        self, sight: Sight, message_id: str, after: int, limit: int, max_bytes: int
    ) -> Conversation | None:
        """See ``ports.Library.conversation``."""
        rows = self._desk.run(_THREAD_OF, (message_id,))
        thread = rows[0][0] if rows else message_id
        said: list[Said] = []
        weight, last, whole = 0, after, False
        while not whole:
            rows = self._desk.run(_IN_THREAD, (thread, last, CHUNK))
            whole = len(rows) < CHUNK
            for number, sender in rows:
                if len(said) == limit:
                    return Conversation(thread, said, last)
                if self._may_see(number, sender, sight):
                    envelope = self._message(_MESSAGE_AT, (number,))
                    weight += envelope.size if envelope else 0
                    if said and weight > max_bytes:
                        return Conversation(thread, said, last)
                    if envelope is not None:
                        states = {_STATE[state]: count for state, count in self._desk.run(_STATES, (number,))}
                        said.append(Said(envelope, states))
                last = number
        return Conversation(thread, said, None) if said or after else None

    def talks(self, sight: Sight, before: int | None, limit: int) -> Talks:
        """See ``ports.Library.talks``."""
        found: list[Talk] = []
        seen: set[str] = set()
        last: int | None = None
        for looked, number in enumerate(self._of(sight, before)):
            if looked == LOOKED_AT or len(found) == limit:
                return Talks(found, last)
            last = number
            thread = self._desk.run(_THREAD_AT, (number,))[0][0]
            if thread not in seen:
                seen.add(thread)
                talk = self._talk(thread, number, sight)
                if talk is not None:
                    found.append(talk)
        return Talks(found, None)

    def _of(self, sight: Sight, before: int | None) -> Iterator[int]:
        """The numbers of messages that the looker sees, the latest first; perhaps some others."""
        match = expression(Query(), sight)
        if match is None:
            yield from self._every(before)
            return
        mark = self._number(_VALUE, ("indexed",)) or 0
        for number in self._every(before):
            if number <= mark:
                break
            yield number
        yield from self._matching(match, before)

    def _talk(self, thread: str, number: int, sight: Sight) -> Talk | None:
        """The conversation, where ``number`` is its last message that the looker sees: else it stands elsewhere."""
        rows = self._desk.run(_IN_THREAD_LATEST, (thread, COUNTED + 1))
        seen = [row for row in rows[:COUNTED] if self._may_see(row[0], row[1], sight)]
        if not seen or seen[0][0] != number:
            return None
        last = self._message(_MESSAGE_AT, (number,))
        if last is None:
            return None
        people = {name.lower(): name for row in reversed(seen) for name in row[1:3]}
        return Talk(
            thread=thread,
            count=len(seen),
            more=len(rows) > COUNTED,
            people=tuple(people.values())[:PEOPLE],
            first_at=self._number(_CREATED_AT, (seen[-1][0],)) or last.created_at,
            last=last,
        )


def expression(query: Query, sight: Sight) -> str | None:
    """What FTS5 is asked for; None where the index need not be asked, since all messages come in question."""
    terms = []
    if query.phrases:
        terms.append(f"({{text}} : ({' '.join(map(_phrase, query.phrases))}))")
    if query.sender is not None:
        terms.append(f"({{who}} : {sender_word(query.sender)})")
    if query.recipient is not None:
        terms.append(f"({{who}} : ({recipient_word(query.recipient)} OR {MANY_WORD}))")
    if sight.only is not None:
        mine = (sender_word(sight.only), recipient_word(sight.only), MANY_WORD)
        terms.append(f"({{who}} : ({' OR '.join(mine)}))")
    return " AND ".join(terms) or None


def _phrase(phrase: Phrase) -> str:
    quoted = '"' + spread(phrase.text).replace('"', " ") + '"'
    return f"{quoted} *" if phrase.begins else quoted
