"""The shapes of turns on the native interface: what runs and ran, and whether an agent can be woken."""

import msgspec

from angelia.protocol.native import Out


class TurnOut(Out, kw_only=True):
    """One turn. ``state``: ``running``, or what became of it: ``answered``, ``accepted``, ``failed``, ``held``.
    ``route``: which way it was run. ``usage``: what it cost, where the agent says so.
    ``output``: the end of what a failed one printed."""

    id: str
    agent: str
    from_: str = msgspec.field(name="from")
    thread: str
    kind: str
    attempt: int
    since: str
    state: str
    ended: str | None = None
    reason: str | None = None
    route: str | None = None
    usage: dict[str, int | float | str] | None = None
    output: str | None = None


class TurnsOut(Out, kw_only=True, omit_defaults=False):
    """The turns that run, the oldest first, then those that ended, the latest first."""

    turns: list[TurnOut]
    running: int


class CheckOut(Out, kw_only=True, omit_defaults=False):
    """Whether an agent can be woken as it is set up. ``ways``: the routes that would work, the best first."""

    kind: str
    program: str | None
    version: str | None
    ways: list[str]
    problem: str | None
    notes: list[str]
