"""Specifications of adapters for the doors: checked before they are kept, and looked at for a person.

What must stay true: what does not fit is refused before it is kept; of what was kept and does not fit any more (a file
is gone, or open to others by now) a look says what is wrong, as it says it of an agent that is not there.
"""

import asyncio

from angelia.model.errors import BadRequest
from angelia.protocol.adapters import kind_of, with_kind
from angelia.protocol.turns import CheckOut
from angelia.turns.adapters import registry
from angelia.turns.adapters.port import Found, Tools
from angelia.turns.adapters.secret_file import UnfitSecret

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
        try:
            kind, options = registry.read(spec, self._tools)
            async with asyncio.timeout(LOOK_SECONDS):
                found = await kind.detect(options, self._tools)
        except BadRequest as error:
            found = Found(problem=error.detail)
        except UnfitSecret as error:
            found = Found(problem=str(error))
        except TimeoutError:
            found = Found(problem=f"It did not say anything of itself within {LOOK_SECONDS:g} s.")
        return CheckOut(
            kind=kind_of(spec),
            program=found.program,
            version=found.version,
            ways=list(found.ways),
            problem=found.problem,
            notes=list(found.notes),
        )
