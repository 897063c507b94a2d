"""Specifications of adapters for the doors: checked before they are kept, and looked at for a person."""

import asyncio

from angelia.protocol.adapters import with_kind
from angelia.protocol.turns import CheckOut
from angelia.turns.adapters import registry
from angelia.turns.adapters.port import Tools

LOOK_SECONDS = 20.0  # for a program that says its version; some take several seconds to start


class Desk:
    """Fills ``doors.http.hub.Adapters``."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def check(self, spec: bytes) -> bytes:
        """A specification as it is to be kept; ``BadRequest`` where it is none."""
        kind, options = await asyncio.to_thread(registry.read, spec, self._tools)  # a kind is loaded when first used
        return with_kind(kind.name, options)

    async def look(self, spec: bytes) -> CheckOut:
        """Whether an agent can be woken so, as things stand on this machine."""
        kind, options = registry.read(spec, self._tools)
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                found = await kind.detect(options, self._tools)
        except TimeoutError:
            return CheckOut(
                kind=kind.name, program=None, version=None, ways=[], notes=[],
                problem=f"It did not say anything of itself within {LOOK_SECONDS:g} s.",
            )  # fmt: skip
        return CheckOut(
            kind=kind.name,
            program=found.program,
            version=found.version,
            ways=list(found.ways),
            problem=found.problem,
            notes=list(found.notes),
        )
