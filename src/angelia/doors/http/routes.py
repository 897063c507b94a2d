"""Every route of this door: a plain list, from which the application and the OpenAPI document are made.

What must stay true: a route stands here once. A path that exists answers another method with 405 and says which. Under
/v1 an argument that a route does not name is refused; the seed's own paths, older than this hub, pass over it.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from angelia.bus.core import Bus
from angelia.doors.http import (
    agents,
    backups,
    briefing,
    connections,
    dead_letters,
    desktops,
    events,
    hub,
    library,
    mailbox,
    messages,
    stream,
    turns,
)
from angelia.doors.http.call import Call
from angelia.doors.http.gatehouse import Gatehouse
from angelia.doors.http.hub import Hub
from angelia.doors.http.openapi import describe
from angelia.doors.http.upgrade import Serve
from angelia.model.errors import MethodNotAllowed, NotFound
from angelia.protocol import answers, native
from angelia.protocol import connections as connection_shapes
from angelia.protocol import library as shapes
from angelia.protocol import turns as turn_shapes

Handler = Callable[[Call, Bus, Hub], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Route:
    """A method and path, what serves it, and the shapes of its body and of its answer (None: in words only).

    ``answers``: the statuses that such an answer has; all others are problems. ``batch``: the shapes of a body that
    holds many, and of the answer to it.
    """

    method: str
    path: str
    handler: Handler
    takes: type | None = None
    gives: type | None = None
    arguments: tuple[str, ...] = ()
    answers: tuple[int, ...] = (200,)
    batch: tuple[type, type] | None = None

    @property
    def summary(self) -> str:
        """The handler's own first line."""
        return (self.handler.__doc__ or "").strip().split("\n")[0]


ROUTES = (
    Route("POST", "/broadcast", messages.broadcast, gives=answers.BroadcastOut, arguments=("from", "to")),
    Route("GET", "/poll", mailbox.poll, gives=answers.PollOut, arguments=("agent", "limit", "wait", "ack")),
    Route("GET", "/subscribe", stream.subscribe, arguments=("agent", "last_event_id")),
    Route("GET", "/status", hub.status, gives=answers.StatusOut),
    Route("GET", "/health", hub.health, gives=answers.HealthOut, answers=(200, 503)),
    Route(
        "POST",
        "/v1/messages",
        messages.send,
        native.SendIn,
        native.SentOut,
        answers=(200, 201),
        batch=(native.BatchIn, answers.BatchOut),
    ),
    Route("GET", "/v1/messages/{id}", messages.get, None, native.ReceiptOut, ("wait",)),
    Route("POST", "/v1/messages/{id}/cancel", messages.withdraw, native.Nothing, native.DeliveriesOut),
    Route("POST", "/v1/messages/{id}/reply", messages.reply, native.ReplyIn, native.SentOut, answers=(200, 201)),
    Route("POST", "/v1/ask", messages.ask_and_wait, native.AskIn, native.AskOut, answers=(200, 202)),
    Route("GET", "/v1/agents", agents.everyone, None, native.AgentsOut),
    Route("GET", "/v1/agents/{handle}", agents.one, None, native.AgentOut),
    Route("PUT", "/v1/agents/{handle}", agents.put, native.AgentIn, native.AgentOut, answers=(200, 201)),
    Route("DELETE", "/v1/agents/{handle}", agents.remove, gives=answers.RemovedOut),
    Route("POST", "/v1/agents/{handle}/token", agents.new_token, native.Nothing, native.TokenOut, answers=(201,)),
    Route("DELETE", "/v1/agents/{handle}/token/{id}", agents.end_token, gives=answers.RevokedOut),
    Route(
        "GET",
        "/v1/agents/{handle}/inbox",
        mailbox.look_inside,
        None,
        native.InboxOut,
        ("after", "limit", "state", "from"),
    ),
    Route("POST", "/v1/agents/{handle}/claim", mailbox.take, native.ClaimIn, native.ClaimOut),
    Route(
        "GET",
        "/v1/agents/{handle}/stream",
        stream.stream,
        None,
        native.TakenOut,
        ("ack", "mode", "window", "last_event_id"),
    ),
    Route("POST", "/v1/leases/{token}/ack", mailbox.lease_ack, native.Nothing, native.SettledOut),
    Route("POST", "/v1/leases/{token}/nack", mailbox.lease_nack, native.NackIn, native.SettledOut),
    Route("POST", "/v1/leases/{token}/renew", mailbox.lease_renew, native.RenewIn, native.SettledOut),
    Route("GET", "/v1/dead-letters", dead_letters.listing, None, native.DeadOut, ("after", "limit")),
    Route("POST", "/v1/dead-letters/{id}/requeue", dead_letters.again, native.Nothing, native.DeliveriesOut, ("to",)),
    Route("POST", "/v1/dead-letters/{id}/drop", dead_letters.end, native.Nothing, native.DeliveriesOut, ("to",)),
    Route("GET", "/v1/threads", library.threads, None, shapes.TalksOut, ("before", "limit")),
    Route("GET", "/v1/threads/{id}", library.thread, None, shapes.ConversationOut, ("after", "limit")),
    Route("GET", "/v1/search", library.find, None, shapes.FoundOut, ("q", "from", "to", "before", "limit")),
    Route("GET", "/v1/events", events.events, None, shapes.EventOut, ("agent", "last", "last_event_id")),
    Route("GET", "/v1/agents/{handle}/briefing", briefing.brief, answers=(200, 304)),
    Route("GET", "/v1/agents/{handle}/check", turns.check, None, turn_shapes.CheckOut),
    Route("GET", "/v1/turns", turns.listing, None, turn_shapes.TurnsOut),
    Route("POST", "/v1/turns/{id}/stop", turns.end, native.Nothing, answers.StoppingOut),
    Route("GET", "/v1/connections", connections.listing, None, connection_shapes.ConnectionsOut),
    Route(
        "PUT",
        "/v1/connections/{name}",
        connections.connect,
        connection_shapes.ConnectionIn,
        connection_shapes.ConnectionOut,
    ),
    Route("DELETE", "/v1/connections/{name}", connections.disconnect, gives=connection_shapes.DisconnectedOut),
    Route("POST", "/v1/pairing", connections.offer, native.Nothing, connection_shapes.PairingOut, answers=(201,)),
    Route(
        "POST", "/v1/desktops/{name}/token", desktops.new_token, native.Nothing, answers.DesktopTokenOut, answers=(201,)
    ),
    Route("DELETE", "/v1/desktops/{name}", desktops.end, gives=answers.RemovedOut),
    Route("GET", "/api/status", hub.gateway_status, gives=answers.GatewayStatusOut),
    Route("GET", "/api/ws", hub.gateway, arguments=("token",), answers=()),
    Route("GET", "/api/hub", hub.hubs, answers=()),
    Route("POST", "/v1/backups", backups.make, shapes.BackupIn, shapes.CopyOut, answers=(201,)),
    Route("POST", "/v1/down", hub.down, gives=answers.DownOut, answers=(202,)),
)


Methods = dict[str, Route]


class Paths:
    """Which path is asked for: one without ``{…}`` is looked up, the others are compared part by part."""

    def __init__(self, routes: Iterable[Route]) -> None:
        table: dict[str, Methods] = {}
        for route in routes:
            table.setdefault(route.path, {})[route.method] = route
        self._fixed = {path: methods for path, methods in table.items() if "{" not in path}
        self._open = [(path.split("/"), methods) for path, methods in table.items() if "{" in path]
        self._known = list(table)

    def find(self, path: str) -> tuple[Methods, dict[str, str]]:
        """The methods of a path, and what it says in the places of ``{…}``; ``NotFound`` with close paths."""
        if (methods := self._fixed.get(path)) is not None:
            return methods, {}
        parts = path.split("/")
        for wanted, methods in self._open:
            if len(wanted) == len(parts) and all(map(_fits, wanted, parts)):
                return methods, {w[1:-1]: part for w, part in zip(wanted, parts, strict=True) if w[:1] == "{"}
        close = get_close_matches(path, self._known, n=3, cutoff=0.6)
        hint = f" Did you mean {', '.join(close)}?" if close else " /openapi.json lists what there is."
        raise NotFound(f"There is nothing at {path[:200]}.{hint}", suggestions=close)


def _fits(wanted: str, part: str) -> bool:
    return bool(part) if wanted[:1] == "{" else wanted == part


def make_app(bus: Bus, hub: Hub, upgrades: Mapping[str, Serve] | None = None) -> Gatehouse:
    """The door as an ASGI application. ``upgrades``: what serves WebSockets, by path."""
    paths = Paths((*ROUTES, Route("GET", "/openapi.json", _openapi)))

    async def inner(call: Call) -> None:
        methods, call.params = paths.find(call.scope["path"])
        route = methods.get(call.scope["method"])
        if route is None:
            allow = ", ".join(sorted(methods))
            raise MethodNotAllowed(f"{call.scope['method']} does not work here; {allow} does.", allow=allow)
        if call.scope["query_string"] and route.path.startswith("/v1/"):
            call.only(route.arguments)
        await route.handler(call, bus, hub)

    return Gatehouse(inner, bus, hub, upgrades or {})


async def _openapi(call: Call, bus: Bus, hub: Hub) -> None:
    """The contract of this door, as OpenAPI 3.1."""
    await call.answer(describe(ROUTES, hub.version))
