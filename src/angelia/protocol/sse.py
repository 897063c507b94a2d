"""Server-sent events, both ways: `event` and its siblings write a stream, `Parser` reads one. Pure: bytes in, bytes or
events out.

What must stay true:

- Nothing that an agent writes can end a line early. Data is split where the standard would split it; an id or event
  name that cannot stand on one line is refused. So no message can forge another, an id or a reconnection time.
- Any sequence of what the encoding functions return is a stream. An event ends with its blank line; a comment and a
  retry are lines by themselves, without one: some readers (httpx-sse 0.4) take a blank line after either for an event
  with nothing in it.
- The parser yields the same events wherever the bytes were cut, in time linear in their number, and holds at most
  `max_event_bytes` of an event. An event that was completed is handed out, whatever follows it.

The rules are those of the WHATWG HTML standard, "Server-sent events". What an event means, and when to connect again,
does not belong here.
"""

from typing import NamedTuple

# A hub's largest message is one text and one body of 1 MiB each; with every byte written as \u00XX that is 12 MiB.
MAX_EVENT_BYTES = 16 * 1024 * 1024
# As far as a browser's timers count (2**31 - 1 ms, 24 days): beyond it a stranger's `retry:` would break our clock.
MAX_RETRY_MS = 2**31 - 1

_BOM = b"\xef\xbb\xbf"
_LF, _CR = b"\n\r"  # as numbers: `10 in data` takes a tenth of the time of `b"\n" in data`


class EventTooLarge(ValueError):
    """An event is larger than the parser's bound. `limit` is that bound in bytes; the stream cannot be read on."""

    def __init__(self, limit: int) -> None:
        """Takes the bound that was passed."""
        super().__init__(f"an event on this stream is larger than {limit} bytes")
        self.limit = limit


class Event(NamedTuple):
    """One event of a stream: its data, lines joined by LF; its type; the last id seen up to its end, "" for none."""

    data: str
    event: str = "message"
    id: str = ""


def event(data: bytes, id: str | None = None, event: str | None = None) -> bytes:
    """Encode one event.

    In: the data as UTF-8, of any number of lines; an id, where "" takes back the reader's last one; an event type.
    Out: the event's bytes. CRLF and CR within the data reach the reader as LF, everything else as it was.
    Raises ValueError for an id or a type with CR, LF or NUL, or that is not encodable.
    """
    if _LF in data or _CR in data:
        data = _unified(data).replace(b"\n", b"\ndata: ")
    if id is None and event is None:
        return b"data: %b\n\n" % data
    head = b"" if id is None else b"id: %b\n" % _one_line("id", id)
    if event is not None:
        head += b"event: %b\n" % _one_line("event", event)
    return b"%bdata: %b\n\n" % (head, data)


def comment(text: str) -> bytes:
    """Encode a text that readers skip. In: any text, of any number of lines. Out: its bytes, a comment a line."""
    lines = _unified(text.encode()).replace(b"\n", b"\n: ")
    return b": %b\n" % lines


def retry(milliseconds: int) -> bytes:
    """Encode how long a reader shall wait before it connects again. Raises ValueError for a negative time."""
    if milliseconds < 0:
        raise ValueError(f"a reconnection time cannot be negative: {milliseconds}")
    return b"retry: %d\n" % milliseconds


def connected(retry_ms: int) -> bytes:
    """Encode the first lines of a stream of ours: it opens the stream for the reader and says when to come back."""
    return comment("connected") + retry(retry_ms)


def _unified(text: bytes) -> bytes:
    return text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _one_line(field: str, value: str) -> bytes:
    if "\n" in value or "\r" in value or "\0" in value:
        raise ValueError(f"{field} must not hold CR, LF or NUL: {value!r}")
    return value.encode()


KEEPALIVE = comment("keepalive")


class Parser:
    """Reads one stream, from its first byte on; a new connection takes a new parser.

    `last_event_id` is the id to resume after, once everything that `feed` returned has been dealt with; each event also
    carries its own. `retry_ms` is the reconnection time the stream asked for last, None while it has not. A block that
    was not ended by a blank line is never returned.
    """

    def __init__(self, *, last_event_id: str = "", max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        """Takes the id that this connection resumes after, so that events without one do not lose the place (the
        standard is silent here, browsers do the same); and the bound on an event's data and each of its lines.
        """
        self.last_event_id = last_event_id
        self.retry_ms: int | None = None
        self._limit = max_event_bytes
        self._too_large = False
        self._head: bytes | None = b""  # what may still become a byte order mark; None when that is settled
        self._after_cr = False  # an LF that comes next belongs to this CR
        self._line = bytearray()  # the line that has not ended yet
        # The block that has not ended yet. Data is gathered as bytes: a list of lines could take twenty times as much.
        self._data = bytearray()  # an LF after every line, as the standard has it
        self._type = ""
        self._id = last_event_id

    def feed(self, chunk: bytes) -> list[Event]:
        """Take the next bytes, of any number, and return the events that they complete.

        Raises EventTooLarge when an event passes the bound, and from then on; events that were complete before it are
        returned first, so that none is lost: then it is the next call that raises.
        """
        if self._too_large:
            raise EventTooLarge(self._limit)
        events: list[Event] = []
        lines = self._lines(chunk)
        if (lines and not self._take(lines, events)) or len(self._data) + len(self._line) > self._limit:
            self._too_large = True
            self._line.clear()
            self._data.clear()
            if not events:
                raise EventTooLarge(self._limit)
        return events

    def _lines(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` ends, without their ends; the rest of it waits in `_line`."""
        if self._head is not None:
            chunk = self._without_bom(self._head + chunk)
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk[0] == _LF:
                chunk = chunk[1:]
        if _LF not in chunk and _CR not in chunk:
            self._line += chunk
            return []
        last = chunk[-1]
        self._after_cr = last == _CR
        lines = chunk.splitlines()  # for bytes: LF, CR and CRLF, and nothing else
        rest = b"" if last in (_LF, _CR) else lines.pop()
        if self._line:
            lines[0] = bytes(self._line + lines[0])
            self._line.clear()
        self._line += rest
        return lines

    def _without_bom(self, start: bytes) -> bytes:
        if len(start) < len(_BOM) and _BOM.startswith(start):
            self._head = start
            return b""
        self._head = None
        return start.removeprefix(_BOM)

    def _take(self, lines: list[bytes], events: list[Event]) -> bool:
        """Act on each line and append what is dispatched to `events`; False as soon as one does not fit."""
        data, limit = self._data, self._limit
        for line in lines:
            if not line:
                self.last_event_id = self._id
                if data:
                    text = data[:-1].decode("utf-8", "replace")
                    events.append(Event(text, self._type or "message", self._id))
                    data.clear()
                self._type = ""
                continue
            if len(data) + len(line) > limit:
                return False
            name, _, value = line.partition(b":")
            if value[:1] == b" ":
                value = value[1:]
            if name == b"data":
                data += value
                data += b"\n"
            elif name == b"id":
                if 0 not in value:
                    self._id = value.decode("utf-8", "replace")
            elif name == b"event":
                self._type = value.decode("utf-8", "replace")
            elif name == b"retry" and value.isdigit():
                self.retry_ms = _milliseconds(value)
        return True


def _milliseconds(digits: bytes) -> int:
    digits = digits.lstrip(b"0")[:11]  # eleven are beyond the bound already; int() refuses some thousands of them
    return min(int(digits or b"0"), MAX_RETRY_MS)
