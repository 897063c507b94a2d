"""How long ago something was, for people: from a time as it stands on the wire to a word such as ``3 min``."""

from __future__ import annotations

from datetime import UTC, datetime

from angelia.cli.show import ago


def age(stamp: object) -> str:
    """In: RFC 3339, UTC. Out: its age; "" for what is no time."""
    moment = _read(stamp)
    return "" if moment is None else ago(int((datetime.now(UTC) - moment).total_seconds() * 1000))


def between(begin: object, end: object) -> str:
    """How long it was from one time to another, in the same words; "" where one is no time."""
    first, last = _read(begin), _read(end)
    return "" if first is None or last is None else ago(int((last - first).total_seconds() * 1000))


def before(stamp: object) -> str:
    """In: RFC 3339, UTC. Out: ``just now`` or such as ``3 min ago``; "" for what is no time."""
    found = age(stamp)
    return f"{found} ago" if found not in ("", "now") else found and "just now"


def _read(stamp: object) -> datetime | None:
    if not isinstance(stamp, str):
        return None
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
