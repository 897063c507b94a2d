"""The roster of Hermes' relay: rows of agents on other connections, as they are pushed and as they lie in a file.

What must stay true: what comes in is untrusted. A row is kept as the rules make it or dropped with a reason; none is
ever an error for the others. What was kept is kept unchanged when it is read again. A file that is missing or broken
is an empty roster.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from angelia.protocol.bot_relay import handle_of
from angelia.protocol.foreign_json import Malformed, read, write

LABEL_CHARS, TITLE_CHARS, DESCRIPTION_CHARS = 80, 120, 160  # Hermes' own

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,63}", re.ASCII)
_TRUE_WORDS = frozenset({"true", "1", "yes", "on"})


class Row(NamedTuple):
    """One agent on another connection. ``online``: None where nobody says."""

    connection_id: str
    profile: str
    handle: str
    connection_label: str = ""
    title: str = ""
    description: str = ""
    online: bool | None = None

    @property
    def where(self) -> str:
        """Its connection in words."""
        return self.connection_label or self.connection_id

    def content(self) -> dict[str, object]:
        """The row as it stands in a file or a push, keys sorted."""
        content = {key: value for key, value in self._asdict().items() if key != "online"}
        if self.online is not None:
            content["online"] = self.online
        return dict(sorted(content.items()))


class Rejected(NamedTuple):
    """A row that was not kept: its place in the push (from 0), and why."""

    row: int
    reason: str

    def content(self) -> dict[str, object]:
        """As it stands in the answer to a push."""
        return self._asdict()


class Roster(NamedTuple):
    """What became of a push: the rows that are kept, sorted by connection and profile, and those that are not."""

    rows: tuple[Row, ...]
    rejected: tuple[Rejected, ...]


def is_name(text: object) -> bool:
    """Whether this is a handle, a profile or a connection's id: the whole of it, also its end."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def normalise(agents: object) -> Roster:
    """Read ``agents`` of a push or a file. Anything but a list is an empty roster."""
    kept: dict[tuple[str, str], Row] = {}
    rejected: list[Rejected] = []
    for place, given in enumerate(agents if isinstance(agents, list) else []):
        row = _row(given)
        if isinstance(row, Row) and row[:2] in kept:
            row = f"another row for '{row.profile}' on '{row.connection_id}' came first"
        if isinstance(row, str):
            rejected.append(Rejected(place, row))
        else:
            kept[row[:2]] = row
    return Roster(tuple(kept[key] for key in sorted(kept)), tuple(rejected))


def merge(ours: Iterable[Row], found: Iterable[Row]) -> tuple[Row, ...]:
    """The roster of a file with our rows in it: others' connections as they stand, our own anew."""
    ours = tuple(ours)
    connections = {row.connection_id for row in ours}
    kept = {row[:2]: row for row in found if row.connection_id not in connections}
    for row in ours:
        kept.setdefault(row[:2], row)
    return tuple(kept[key] for key in sorted(kept))


def roster_bytes(rows: Iterable[Row], updated_at: int) -> bytes:
    """The file: keys sorted, letters as they are."""
    return write({"agents": [row.content() for row in rows], "updated_at": updated_at})


def read_roster(data: bytes | None) -> tuple[Row, ...]:
    """The rows of a file, by the same rules as a push; none where it is missing (None), broken or of another shape."""
    try:
        content = read(data) if data is not None else None
    except Malformed:
        return ()
    return normalise(content.get("agents") if isinstance(content, dict) else None).rows


def _row(given: object) -> Row | str:
    """The row, or why it is dropped."""
    if not isinstance(given, dict):
        return "it is no object"
    if _is_private(given.get("private")):
        return "it is private"
    profile, connection = text_of(given.get("profile")), text_of(given.get("connection_id"))
    handle = text_of(given.get("handle")).lstrip("@").strip() or handle_of(profile)
    for field, name in (("profile", profile), ("connection_id", connection), ("handle", handle)):
        if not is_name(name):
            return f"{field} is {'missing' if not name else 'not 1 to 64 letters, digits, _ or -'}"
    online = given.get("online")
    return Row(
        connection_id=connection,
        profile=profile,
        handle=handle,
        connection_label=text_of(given.get("connection_label"))[:LABEL_CHARS].rstrip(),
        title=text_of(given.get("title"))[:TITLE_CHARS].rstrip(),
        description=" ".join(text_of(given.get("description")).split())[:DESCRIPTION_CHARS].rstrip(),
        online=online if isinstance(online, bool) else None,
    )


def text_of(given: object) -> str:
    """A field as text, trimmed: empty where it is missing, 0, or neither text nor number."""
    if isinstance(given, str):
        return given.strip()
    return str(given) if given and isinstance(given, int | float) and not isinstance(given, bool) else ""


def _is_private(flag: object) -> bool:
    if isinstance(flag, str):
        return flag.strip().lower() in _TRUE_WORDS
    return isinstance(flag, int | float) and flag == 1
