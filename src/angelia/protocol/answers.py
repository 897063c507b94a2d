"""The shapes of what is answered to the seed's calls, and of the short answers under ``/v1``.

What must stay true: a shape stands here once, and the OpenAPI document is made from it. Fields may be added, never
renamed; those that the seed's clients read (``delivered``, ``messages``, ``subscribers``, ``queues`` …) are always
there. A message as the seed shows it is whatever its sender wrote, with ``_meta``: ``protocol/seed_bus.py``.
"""

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from angelia.protocol.native import SentOut


class RefusedOut(Struct):
    """A recipient of a broadcast that had no room."""

    to: str
    code: str


class BroadcastOut(Struct, kw_only=True):
    """The answer to ``/broadcast``. ``delivered``: all of it was handed over at once."""

    delivered: bool
    stored: bool
    id: str
    to: list[str]
    seq: int
    duplicate: bool | UnsetType = UNSET
    refused: list[RefusedOut] | UnsetType = UNSET


class OutcomeOut(Struct, kw_only=True):
    """What became of one message of a batch: what was sent, or the problem."""

    status: int
    sent: SentOut | UnsetType = UNSET
    problem: dict[str, Any] | UnsetType = UNSET


class BatchOut(Struct):
    """The answer to a batch, in its order."""

    outcomes: list[OutcomeOut]


class PollOut(Struct, kw_only=True):
    """The answer to ``/poll``."""

    agent: str
    messages: list[dict[str, Any]]
    remaining: int


class Identity(Struct, kw_only=True):
    """Which hub this is."""

    product: str
    version: str
    instance: str
    epoch: str
    pid: int
    port: int
    since: str
    data_dir: str
    durability: str


class SelfTest(Struct):
    """When the hub last tried itself, and how long that took."""

    at: str
    milliseconds: float


class HealthOut(Identity, kw_only=True):
    """The answer to ``/health``: 200 while it is well, 503 with ``failing`` while it is not."""

    status: str
    self_test: SelfTest
    failing: str | UnsetType = UNSET
    code: str | UnsetType = UNSET


class Online(Struct):
    """Whether an agent is there: with a live stream, or an adapter that works."""

    online: bool


class Link(Struct):
    """How a connection stands."""

    up: bool
    waiting: int


class StatusOut(Identity, kw_only=True):
    """The answer to ``/status``, by agents' and connections' names."""

    dead: int
    held: int
    disk_free_bytes: int | None
    log_bytes: int | None
    waiting_since: dict[str, str]
    agents: dict[str, Online]
    queues: dict[str, int]
    connections: dict[str, Link]
    subscribers: dict[str, bool]
    streams: int
    waiting_for_human: int
    problems: list[str]


class GatewayStatusOut(Struct):
    """What a client of the gateway asks first."""

    version: str
    product: str
    auth_required: bool
    auth_providers: list[str]


class RemovedOut(Struct):
    """Which name was given up."""

    removed: str


class RevokedOut(Struct):
    """Which token is worthless now."""

    revoked: str


class DesktopTokenOut(Struct):
    """A desktop's new token, shown this once."""

    desktop: str
    id: str
    token: str


class StoppingOut(Struct):
    """The message whose turn is being ended."""

    stopping: str


class DownOut(Struct):
    """The hub that is stopping."""

    stopping: bool
    pid: int
