"""The bytes of the newest message, made once for all who are handed it.

What must stay true: the same envelope gives the same bytes; one message at most is kept. A message to everyone goes to
thousands of streams one after the other, and only its number and attempt differ between them.
"""

from collections.abc import Callable

from angelia.model.envelope import Envelope


class Newest:
    """``make(envelope)``, remembered for the envelope that came last."""

    __slots__ = ("_bytes", "_envelope", "_make")

    def __init__(self, make: Callable[[Envelope], bytes]) -> None:
        self._make = make
        self._envelope: Envelope | None = None
        self._bytes = b""

    def __call__(self, envelope: Envelope) -> bytes:
        """The bytes of this envelope."""
        if envelope is not self._envelope:
            self._bytes = self._make(envelope)
            self._envelope = envelope
        return self._bytes
