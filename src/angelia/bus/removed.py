"""Hubs that the owner of this hub has removed: they are not let in until their connection is wanted again.

What must stay true: what is remembered is a hub's id and the name that its connection had, of the last ones only, and
it outlives a restart. Whatever makes a connection to such a hub again wants it, in the same unit.
"""

from typing import NamedTuple

import msgspec

from angelia.bus.ports import Tx

NOTE = "removed hubs"
MOST_REMOVED = 1_000  # the last ones


class Removed(NamedTuple):
    """A hub, by its id, and the name of the connection to it that was removed."""

    hub: str
    name: str


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[Removed, ...]).decode


class RemovedHubs:
    """All of them."""

    def __init__(self) -> None:
        self._hubs: tuple[Removed, ...] = ()  # the oldest first; replaced and never changed

    def open(self, note: bytes | None) -> None:
        """Take what was noted before the start."""
        self._hubs = _decode(note) if note else ()

    def of(self, hub: str) -> Removed | None:
        """The removed hub with this id."""
        return next((each for each in self._hubs if each.hub == hub), None)

    def called(self, name: str) -> Removed | None:
        """The hub whose connection had this name when it was removed; of several, the last."""
        return next((each for each in reversed(self._hubs) if each.name.lower() == name.lower()), None)

    def add(self, tx: Tx, hub: str, name: str, now: int) -> None:
        """The owner has removed a hub, from this unit on."""
        self._set(tx, (*(each for each in self._hubs if each.hub != hub), Removed(hub, name)), now)

    def want(self, tx: Tx, hub: str, now: int) -> None:
        """A hub is wanted again, from this unit on; nothing where it was not removed."""
        if self.of(hub) is not None:
            self._set(tx, tuple(each for each in self._hubs if each.hub != hub), now)

    def _set(self, tx: Tx, hubs: tuple[Removed, ...], now: int) -> None:
        old, self._hubs = self._hubs, hubs[-MOST_REMOVED:]
        tx.put_note(NOTE, _encode(self._hubs), now)

        def restore() -> None:
            self._hubs = old

        tx.otherwise(restore)
