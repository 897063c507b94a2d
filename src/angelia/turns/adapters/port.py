"""The port between the runner of turns and a kind of agent.

What must stay true:

- An adapter runs one turn and says truly what became of it. *Answered* only where the agent itself said that the turn
  ended well; an exit code or a status alone never does. *Lost* where nobody knows whether it ran: then the runner asks
  ``recall`` before anything runs twice.
- It knows no mailbox, no lease and no retry; it keeps no state that a restart may not lose, but for a warm process.
  The name that the agent gives its conversation is handed to ``begun`` as soon as it is known; it comes back in
  ``session``.
- A secret is read when it is needed. One that is not fit for use (``secret_file.UnfitSecret``) is raised before
  anything was asked or started.
- Text never rides in an argument list. What it starts, it starts by ``Tools.children``, so that it ends with its turn.
- One turn at a time for each agent is the runner's care; different agents run side by side.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from angelia.model.envelope import Envelope
from angelia.model.failure import Reason
from angelia.turns.child import Children


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One message as an adapter gets it.

    ``text``: what the sender wrote (its body as JSON where there is no text). ``prompt``: what a model is to read: who
    writes, how to answer, and the text inside its fence. ``stamped``: Hermes' attribution prefix and the text.
    ``conversation``: our own name for the conversation, the same in every turn of it (letters, digits, ``-`` and
    ``_``, at most 120). ``session``: what ``begun`` was last told for it; None at first. ``key``: names this attempt,
    the same whenever it is asked for again. ``again``: an earlier attempt failed and may have left the text in the
    conversation. ``seconds``: the limit of this attempt. ``environment``: variables for a child, beside the hub's own.
    """

    agent: str
    message: Envelope
    text: str
    prompt: str
    stamped: str
    conversation: str
    session: str | None
    key: str
    again: bool
    seconds: float
    environment: Mapping[str, str]
    begun: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Usage:
    """What a turn cost, where the agent says so."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """The turn ended well. ``route``: which way it was run, for people (``command line``, ``API server`` …)."""

    text: str
    route: str
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class Failed:
    """The turn ended without an answer, or never began.

    ``reason``: typed, where the agent's own answer was (a status, a code); None where only ``output`` says why: all of
    what it printed (standard output first), which the runner classifies. With a reason, ``output`` is what its owner is
    to know besides. ``text``: one sentence for the sender, without secrets and paths. ``began``: False where it is
    certain that no turn ran (then it may be tried again freely).
    """

    text: str
    route: str
    reason: Reason | None = None
    output: str = ""
    began: bool = True
    wait_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """Nobody knows whether the turn ran, or runs still: a connection was lost, a process was killed by others."""

    text: str
    route: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """The agent has taken the message and answers later, by a reply of its own: the turn is over, the answer is not.

    The message counts as delivered; that no answer came within its time to live is told as it always is.
    """

    route: str


Outcome = Answered | Accepted | Failed | Lost


class Adapter(Protocol):
    """One agent, reached in one way."""

    async def run(self, turn: Turn) -> Outcome:
        """Run one turn. Cancelled when its time is over or somebody stops it: then all that it started ends too (asked
        first, then made to) before the cancellation goes on. Raises ``UnfitSecret`` where no turn can begin for that,
        and nothing else but for faults of ours."""
        ...

    async def recall(self, turn: Turn) -> Outcome | None:
        """Look in the agent's own history for what became of ``turn``, which may be running still (then wait for it,
        within ``turn.seconds``); None where the history cannot say. Never runs anything. ``turn`` has no token."""
        ...

    async def close(self) -> None:
        """Let go of what is warm; the hub stops, or the agent's adapter was changed."""
        ...


@dataclass(frozen=True, slots=True)
class Found:
    """What ``detect`` saw. ``problem``: why no turn can be run as it stands, with what helps; None when one can.
    ``ways``: the routes that would work, the best first."""

    program: str | None = None
    version: str | None = None
    ways: tuple[str, ...] = ()
    problem: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What the hub lends to adapters. ``environment``: what programs get of the hub's (bus/surroundings.py); what
    ``children`` starts sees of it no variable that a secret is taken from. ``variables``: the hub's own, all of it, for
    the secrets that options name (``…_env``). ``private``: a folder (0700) for files that live as long as a turn."""

    children: Children
    environment: Mapping[str, str]
    variables: Mapping[str, str]
    home: str
    private: str


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """How one agent is reached: what stands in its ``adapter`` beside ``kind`` and what every kind takes.

    ``conversation``: ``agent`` (one for all its mail) or ``thread`` (one for each thread). ``timeout_seconds``: of one
    attempt; None is the hub's limit.
    """

    conversation: str = "agent"
    timeout_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of agent: a row of ``registry.KINDS``.

    ``options``: a subclass of ``Options``. ``check``: what only this kind knows to be wrong with options, as a
    sentence; None when nothing is (it may look at the disk, never at the network). ``lock``: folder and name of the
    turn lock that the agent's own processes take, too; None where it is the hub's alone. ``reports``: what
    ``Answered.usage`` can hold.
    """

    name: str
    title: str
    options: type[Options]
    make: Callable[[Any, Tools], Adapter]
    detect: Callable[[Any, Tools], Awaitable[Found]]
    check: Callable[[Any, Tools], str | None] = lambda options, tools: None
    lock: Callable[[Any, Tools], tuple[str, str]] | None = None
    resumes: bool = True
    reports: Sequence[str] = ()
