"""What this door knows of the hub around it, and the calls about the hub itself: health, status, down."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from msgspec import UNSET

from angelia.bus.caller import may
from angelia.bus.carry import Ended
from angelia.bus.core import Bus
from angelia.bus.glance import Disk, glance
from angelia.bus.health import Health, look
from angelia.bus.rosters import is_online
from angelia.doors.http.call import Call
from angelia.model.connection import Condition, Connection
from angelia.model.errors import BadRequest, NotFound
from angelia.protocol.answers import DownOut, GatewayStatusOut, HealthOut, Link, Online, SelfTest, StatusOut
from angelia.protocol.times import rfc3339
from angelia.protocol.turns import CheckOut

BATCH_PATH = "/v1/messages"


class Adapters(Protocol):
    """What the door needs to know of how agents are woken."""

    async def check(self, spec: bytes) -> bytes:
        """A specification as it is to be kept; ``BadRequest`` where it is none."""
        ...

    async def look(self, spec: bytes) -> CheckOut:
        """Whether an agent can be woken so, as things stand on this machine."""
        ...


class NoAdapters:
    """A hub that wakes nobody."""

    async def check(self, spec: bytes) -> bytes:
        """Nothing is taken."""
        raise BadRequest("This hub wakes no agents. Nothing was changed.")

    async def look(self, spec: bytes) -> CheckOut:
        """There is nothing to look at."""
        raise BadRequest("This hub wakes no agents.")


class Links(Protocol):
    """What the door needs to know of the connections to other hubs and gateways."""

    async def connect(self, connection: Connection, code: str | None) -> Condition:
        """Make or replace a connection, dial once, and say how it stands. ``code``: to pair, as shown over there;
        ``NotAllowed`` where it is wrong, and nothing is kept."""
        ...

    async def disconnect(self, name: str) -> Ended:
        """Remove one, whose hub is not let in until it is connected, or paired, again; gives what mail ended.
        ``NotFound``, or ``BadRequest`` where it stands in the settings."""
        ...

    async def conditions(self) -> list[Condition]:
        """How each stands, by name. Never waits long for a store that is sick: ``/status`` asks this."""
        ...

    def offer(self) -> tuple[str, float]:
        """A code to pair with this hub, and for how many seconds it is good."""
        ...


class NoLinks:
    """A hub that stands alone."""

    async def connect(self, connection: Connection, code: str | None) -> Condition:
        """Nothing is taken."""
        raise NotFound("This hub keeps no connections. Nothing was changed.")

    async def disconnect(self, name: str) -> Ended:
        """There is none to remove."""
        raise NotFound(f"No connection here is called '{name[:80]}'. Nothing was changed.")

    async def conditions(self) -> list[Condition]:
        """There are none."""
        return []

    def offer(self) -> tuple[str, float]:
        """Nobody could use it."""
        raise NotFound("This hub keeps no connections, so there is nothing to pair with.")


@dataclass(slots=True, kw_only=True)
class Hub:
    """Plain values that the door is given; see ``app.py``. Times are UTC milliseconds."""

    version: str
    pid: int
    port: int
    since: int
    data_dir: str
    durability: str
    keepalive_seconds: float
    request_bytes: int
    batch_bytes: int
    host_names: tuple[str, ...] = ()
    bound: tuple[str, ...] = ()
    admin_digest: bytes | None = None
    tokens_only: bool = False
    url: str = ""  # where callers of this machine find it, once it listens
    stop: Callable[[], None] = lambda: None
    disk: Callable[[], Disk | None] = lambda: None
    adapters: Adapters = field(default_factory=NoAdapters)
    links: Links = field(default_factory=NoLinks)
    health: Health = field(default_factory=Health)

    def most_bytes(self, path: str) -> int:
        """How large a request to this path may be."""
        return self.batch_bytes if path == BATCH_PATH else self.request_bytes


async def health(call: Call, bus: Bus, hub: Hub) -> None:
    """Whether the hub is well, by a self-test at most 5 s old, and which hub it is."""
    seen = await look(bus, hub.health)
    failing = "the hub is stopping" if bus.stopping else seen.failing
    found = HealthOut(
        **_identity(bus, hub),
        status="ok" if failing is None else "unwell",
        self_test=SelfTest(rfc3339(seen.at_utc), seen.milliseconds),
        failing=UNSET if failing is None else failing,
        code=UNSET if failing is None else "unwell",
    )
    await call.answer(found, 200 if failing is None else 503, headers=((b"cache-control", b"no-store"),))


async def status(call: Call, bus: Bus, hub: Hub) -> None:
    """Who is here, how much waits for each, and what is wrong."""
    seen = await look(bus, hub.health)
    disk = hub.disk()
    links = await hub.links.conditions()
    found = await glance(bus, seen.failing, disk, links)
    agents = sorted(bus.directory.agents.values(), key=lambda agent: agent.mailbox)
    listening = {agent.handle: bus.streams.own(agent.mailbox) is not None for agent in agents}
    queues = {agent.handle: bus.store.load(agent.mailbox).queued for agent in agents}
    told = StatusOut(
        **_identity(bus, hub),
        dead=found.dead,
        held=found.held,
        disk_free_bytes=disk.free_bytes if disk else None,
        log_bytes=disk.log_bytes if disk else None,
        waiting_since={handle: rfc3339(since) for handle, since in found.waiting_since.items()},
        agents={agent.handle: Online(is_online(bus, agent) is True) for agent in agents},
        queues=queues,
        connections={link.connection.name: Link(link.up, link.waiting) for link in links},
        subscribers=listening,
        streams=bus.streams.count,
        waiting_for_human=bus.store.load("human").queued,
        problems=found.problems,
    )
    await call.answer(told, headers=((b"cache-control", b"no-store"),))


async def down(call: Call, bus: Bus, hub: Hub) -> None:
    """Stop the hub: it says goodbye to every stream, commits everything, and ends."""
    may(call.caller, "stop_hub")
    await call.answer(DownOut(True, hub.pid), 202)
    hub.stop()


async def gateway_status(call: Call, bus: Bus, hub: Hub) -> None:
    """What a client of the gateway asks first: whether and how one signs in."""
    told = GatewayStatusOut(hub.version, "angelia", auth_required=False, auth_providers=[])
    await call.answer(told, headers=((b"cache-control", b"no-store"),))


async def gateway(call: Call, bus: Bus, hub: Hub) -> None:
    """The gateway, JSON-RPC over a WebSocket."""
    raise BadRequest("This is a WebSocket: ask for an upgrade to it. Nothing was done.")


async def hubs(call: Call, bus: Bus, hub: Hub) -> None:
    """Links of other hubs, which prove themselves in their first frames; a WebSocket."""
    raise BadRequest("This is a WebSocket, for other hubs. Nothing was done.")


def _identity(bus: Bus, hub: Hub) -> dict[str, Any]:
    return {
        "product": "angelia",
        "version": hub.version,
        "instance": bus.store.instance,
        "epoch": bus.store.epoch,
        "pid": hub.pid,
        "port": hub.port,
        "since": rfc3339(hub.since),
        "data_dir": hub.data_dir,
        "durability": hub.durability,
    }
