"""One answer, as its bytes come in: the parser is httptools', which the hub's own server stands on.

What must stay true: an answer counts as whole only when its own framing says so, or when it has none and the
connection ended in good order. What comes before the real answer (status 1xx) is passed over.
"""

from __future__ import annotations

import httptools


class Answer:
    """``begun`` once the head is there, ``complete`` once all is; ``wrong`` when it is no HTTP; ``unread`` bytes."""

    def __init__(self) -> None:
        self.begun = False
        self.complete = False
        self.wrong = False
        self.unread = bytearray()
        self.status = 0
        self._stays = False
        self._headers: dict[str, str] = {}
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        if self.wrong:
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.wrong = not self.complete

    def take(self) -> bytes:
        """What has not been read yet; b"" when there is nothing more, or not yet."""
        taken = bytes(self.unread)
        self.unread.clear()
        return taken

    def header(self, name: str) -> str:
        """A header, by its lower-case name; "" where there is none."""
        return self._headers.get(name, "")

    @property
    def length(self) -> int:
        """How long it says that it is; 0 where it does not say."""
        given = self.header("content-length")
        return int(given) if given.isdigit() else 0

    @property
    def stays(self) -> bool:
        """Whether another request may follow on the same connection."""
        return self.complete and self._stays and not self.wrong

    @property
    def ends_with_connection(self) -> bool:
        """Whether nothing but the end of the connection says where it ends."""
        framed = "content-length" in self._headers or "chunked" in self.header("transfer-encoding").lower()
        return self.begun and not framed

    # ---- what the parser calls

    def on_message_begin(self) -> None:
        """An answer begins, or the one after a 1xx; one after the real one was not asked for."""
        self.wrong = self.complete
        if not self.complete:
            self._headers.clear()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        if not self.complete:
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The head is there."""
        if not self.complete:
            self.status = self._parser.get_status_code()
            self.begun = self.status >= 200

    def on_body(self, body: bytes) -> None:
        """Some of the body."""
        if not self.complete:
            self.unread += body

    def on_message_complete(self) -> None:
        """All of it is there."""
        if not self.complete:
            self.complete = self.begun
            self._stays = bool(self._parser.should_keep_alive())  # asked later, it speaks of the next one
