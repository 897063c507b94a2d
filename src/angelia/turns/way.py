"""How one agent is reached now: its adapter, made from what stands in the directory.

What must stay true: a specification that cannot be read any more (its kind is gone, its folder was removed) fails each
turn, typed; it never stops the hub, nor lets mail wait for nothing. What helps is its owner's to know: there may be a
path in it.
"""

from dataclasses import dataclass

from angelia.model.errors import BadRequest
from angelia.model.failure import Reason
from angelia.turns.adapters import registry
from angelia.turns.adapters.port import Adapter, Failed, Options, Outcome, Tools, Turn

_UNUSABLE = "It cannot be woken as it is set up; whoever runs it has to mend that: angelia doctor says how."


@dataclass(frozen=True, slots=True)
class Way:
    """``kind``: ``""`` of a specification that cannot be read. ``lock``: folder and name of the turn lock that the
    agent's own processes take; None: the hub's own."""

    spec: bytes
    kind: str
    options: Options
    adapter: Adapter
    lock: tuple[str, str] | None


def make_way(spec: bytes, tools: Tools) -> Way:
    """The way that a specification describes; one that only fails where it cannot be used."""
    try:
        kind, options = registry.read(spec, tools)
        adapter: Adapter = kind.make(options, tools)
        return Way(spec, kind.name, options, adapter, kind.lock(options, tools) if kind.lock else None)
    except BadRequest as error:
        return Way(spec, "", Options(), _Unusable(error.detail), None)


class _Unusable:
    """The adapter of an agent that cannot be reached as it was told."""

    def __init__(self, why: str) -> None:
        self._why = why

    async def run(self, turn: Turn) -> Outcome:
        return Failed(_UNUSABLE, "none", Reason.MISSING_CONFIG, self._why, began=False)

    async def recall(self, turn: Turn) -> Outcome | None:
        return None

    async def close(self) -> None:
        return None
