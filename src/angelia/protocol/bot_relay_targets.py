"""Who is meant by a target of Hermes' relay, by which form a row is shown, and whether it can be reached.

What must stay true: a form that is shown leads back to its row, whatever the order of the rows. A handle or a profile
always goes before somebody else's title, and ``hermes`` alone never means a remote agent: here it is the local one. A
target of two rows is nobody: it is ambiguous, and the forms that are not are named. Only what is known to be offline is
refused; what is not known is queued.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from angelia.protocol.bot_relay import DEFAULT_HANDLE, DEFAULT_PROFILE, ROSTER_FRESH_SECONDS
from angelia.protocol.bot_relay_rows import Row, is_name

RESERVED_SLUGS = frozenset({"all", "everyone", "user", "default", "hermes"})
_ALWAYS_LOCAL = frozenset({DEFAULT_HANDLE, DEFAULT_PROFILE})
_OUTSIDE_SLUG = re.compile(r"[^a-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """A target that fits several rows; ``forms`` lead to one each."""

    rows: tuple[Row, ...]
    forms: tuple[str, ...]


def resolve(target: str, rows: Sequence[Row], local_names: Iterable[str] = ()) -> Row | Ambiguous | None:
    """The row that ``target`` names: a bare name, ``name@connection``, with or without ``@`` before it, in any case.

    ``local_names``: what agents here answer to; they only decide which forms are offered for an ambiguous target.
    None where nobody is named so.
    """
    name, at, connection = target.strip().lstrip("@").strip().lower().partition("@")
    if not name or (at and not connection):
        return None
    there = [row for row in rows if not at or row.connection_id.lower() == connection]
    hits = [row for row in there if name in _names(row)] or [row for row in there if name in slugs(row.title)]
    if len(hits) > 1:
        shown = forms(rows, local_names)
        return Ambiguous(tuple(hits), tuple(sorted(shown[row] for row in hits)))
    return hits[0] if hits else None


def slugs(title: str) -> frozenset[str]:
    """What a title can be called by: ``CoS Bot`` is ``cos-bot`` and ``cosbot``; empty where it makes no name."""
    slug = _OUTSIDE_SLUG.sub("-", title.lower()).strip("-")
    return frozenset(name for name in (slug, slug.replace("-", "")) if is_name(name) and name not in RESERVED_SLUGS)


def forms(rows: Sequence[Row], local_names: Iterable[str] = ()) -> dict[Row, str]:
    """The shortest form of each row that leads to it alone: its handle, else its title's slug, else with its
    connection (by profile where the handle is not enough). ``local_names`` are taken already."""
    local = _ALWAYS_LOCAL | {name.lower() for name in local_names}
    names = Counter(name for row in rows for name in _names(row))
    aliases = Counter(alias for row in rows for alias in _names(row) | slugs(row.title))
    qualified = Counter((row.connection_id.lower(), name) for row in rows for name in _names(row))
    return {row: _form(row, local, names, aliases, qualified) for row in rows}


def _form(
    row: Row, local: frozenset[str], names: Counter[str], aliases: Counter[str], qualified: Counter[tuple[str, str]]
) -> str:
    handle = row.handle.lower()
    if names[handle] == 1 and handle not in local:
        return row.handle
    for slug in sorted(slugs(row.title), key=lambda slug: (-len(slug), slug)):  # "cos-bot" reads better than "cosbot"
        if aliases[slug] == 1 and slug not in local:
            return slug
    unique = qualified[row.connection_id.lower(), handle] == 1
    return f"{row.handle if unique else row.profile}@{row.connection_id}"


def online(connection_id: str, profile: str, rows: Sequence[Row], age_seconds: float | None) -> bool | None:
    """Whether an agent can be reached; None where nobody knows, which is no refusal.

    ``age_seconds``: of the roster's file; None where there is none. A roster that is fresh and not empty, and lacks the
    row, says that it is offline.
    """
    if age_seconds is None or age_seconds > ROSTER_FRESH_SECONDS or not rows:
        return None
    for row in rows:
        if (row.connection_id, row.profile) == (connection_id, profile):
            return row.online
    return False


def offline_text(row: Row) -> str:
    """What a sender is told of an agent that is known to be offline."""
    return f"@{row.handle} on {row.where} is offline; nothing was queued. Send it again once it is back."


def ambiguous_text(target: str, found: Ambiguous) -> str:
    """What a sender is told of a target that fits several: every form that does not."""
    return f"'{target}' is more than one agent. Say which: {', '.join('@' + form for form in found.forms)}."


def _names(row: Row) -> set[str]:
    return {row.handle.lower(), row.profile.lower()}
