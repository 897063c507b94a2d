"""What links need of a line to another machine: frames both ways, and errors that tell what went wrong.

What must stay true: a frame is one JSON object, whole or not at all; an end of the line, whichever way it comes, is
``LineLost`` to everyone who uses it. Why a line cannot be had is told apart: nobody there, not let in, not understood.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from angelia.model.connection import Speaks
from angelia.model.limits import MIB

# Of what comes in one frame: all that an outbox of Hermes' collected in 900 s, a thousand of the longest texts.
FRAME_BYTES = 64 * MIB
FAREWELL_SECONDS = 5.0  # that whoever removes a connection waits for the other side to hear of it


class Kind(StrEnum):
    """Why there is no link."""

    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    WRONG_VERSION = "wrong_version"


class Trouble(Exception):
    """There is no link. ``problem``: what happened; ``advice``: what a person can do; a sentence each.

    ``lasting``: asking again soon is of no use (the wrong token, say), so the next try comes late.
    """

    def __init__(self, kind: Kind, problem: str, advice: str, *, lasting: bool = False) -> None:
        super().__init__(problem)
        self.kind, self.problem, self.advice, self.lasting = kind, problem, advice, lasting


class LineLost(Exception):
    """The line has ended; its text says how, as far as is known."""


class Wire(Protocol):
    """Frames both ways. ``send`` waits while the other side takes nothing, and raises ``LineLost`` once the line has
    ended; so does ``receive``. ``close`` may be called more than once and raises nothing."""

    async def send(self, frame: bytes) -> None: ...
    async def receive(self) -> bytes: ...
    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Dialled:
    """A line that was opened. ``speaks``: HUB or HERMES. ``by_owner``: the other side let us in as its owner (through
    ssh, or a command), so nothing is proved again. ``key_file``: the far hub's own key, where it is one of this machine
    and this user. ``ready``: the payload of its ``gateway.ready``."""

    wire: Wire
    speaks: Speaks
    by_owner: bool = False
    key_file: str | None = None
    ready: dict[str, object] = field(default_factory=dict)
