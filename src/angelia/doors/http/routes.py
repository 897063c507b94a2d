"""Every route of this door: a plain list, from which the application and the OpenAPI document are made.

What must stay true: a route stands here once. A path that exists answers another method with 405 and says which. Under
/v1 an argument that a route does not name is refused; the seed's own paths, older than this hub, pass over it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial

from starlette.routing import Route as StarletteRoute
from starlette.routing import Router

from angelia.bus.core import Bus
from angelia.doors.http import (
    agents,
    backups,
    briefing,
    dead_letters,
    events,
    hub,
    library,
    mailbox,
    messages,
    stream,
    turns,
)
from angelia.doors.http.call import Call, Receive, Scope, Send
from angelia.doors.http.gatehouse import Gatehouse
from angelia.doors.http.hub import Hub
from angelia.doors.http.openapi import describe
from angelia.model.errors import MethodNotAllowed, NotFound
from angelia.protocol import library as shapes
from angelia.protocol import native
from angelia.protocol import turns as turn_shapes

Handler = Callable[[Call, Bus, Hub], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Route:
    """A method and path, what serves it, and the shapes of its body and of its answer (None: in words only)."""

    method: str
    path: str
    handler: Handler
    takes: type | None = None
    gives: type | None = None
    arguments: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The handler's own first line."""
        return (self.handler.__doc__ or "").strip().split("\n")[0]


ROUTES = (
    Route("POST", "/broadcast", messages.broadcast, arguments=("from", "to")),
    Route("GET", "/poll", mailbox.poll, arguments=("agent", "limit", "wait", "ack")),
    Route("GET", "/subscribe", stream.subscribe, arguments=("agent", "last_event_id")),
    Route("GET", "/status", hub.status),
    Route("GET", "/health", hub.health),
    Route("POST", "/v1/messages", messages.send, native.SendIn, native.SentOut),
    Route("GET", "/v1/messages/{id}", messages.get, None, native.ReceiptOut, ("wait",)),
    Route("POST", "/v1/messages/{id}/cancel", messages.withdraw, native.Nothing, native.DeliveriesOut),
    Route("POST", "/v1/messages/{id}/reply", messages.reply, native.ReplyIn, native.SentOut),
    Route("POST", "/v1/ask", messages.ask_and_wait, native.AskIn, native.AskOut),
    Route("GET", "/v1/agents", agents.everyone, None, native.AgentsOut),
    Route("GET", "/v1/agents/{handle}", agents.one, None, native.AgentOut),
    Route("PUT", "/v1/agents/{handle}", agents.put, native.AgentIn, native.AgentOut),
    Route("DELETE", "/v1/agents/{handle}", agents.remove),
    Route("POST", "/v1/agents/{handle}/token", agents.new_token, native.Nothing, native.TokenOut),
    Route("DELETE", "/v1/agents/{handle}/token/{id}", agents.end_token),
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
    Route("GET", "/v1/agents/{handle}/briefing", briefing.brief),
    Route("GET", "/v1/agents/{handle}/check", turns.check, None, turn_shapes.CheckOut),
    Route("GET", "/v1/turns", turns.listing, None, turn_shapes.TurnsOut),
    Route("POST", "/v1/turns/{id}/stop", turns.end, native.Nothing),
    Route("POST", "/v1/backups", backups.make, shapes.BackupIn, shapes.CopyOut),
    Route("POST", "/v1/down", hub.down),
)


class _Path:
    """All methods of one path, as one bare ASGI endpoint."""

    def __init__(self, methods: dict[str, Route], bus: Bus, hub: Hub) -> None:
        self._methods, self._bus, self._hub = methods, bus, hub

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call: Call = scope["angelia.call"]
        route = self._methods.get(scope["method"])
        if route is None:
            allow = ", ".join(sorted(self._methods))
            raise MethodNotAllowed(f"{scope['method']} does not work here; {allow} does.", allow=allow)
        if scope["query_string"] and route.path.startswith("/v1/"):
            call.only(route.arguments)
        await route.handler(call, self._bus, self._hub)


def make_app(bus: Bus, hub: Hub) -> Gatehouse:
    """The door as an ASGI application."""
    paths: dict[str, dict[str, Route]] = {}
    for route in (*ROUTES, Route("GET", "/openapi.json", _openapi)):
        paths.setdefault(route.path, {})[route.method] = route
    known = list(paths)
    router = Router(
        [StarletteRoute(path, _Path(methods, bus, hub)) for path, methods in paths.items()],
        redirect_slashes=False,
        default=partial(_nothing_here, known),
    )

    async def inner(call: Call) -> None:
        call.scope["angelia.call"] = call
        await router(call.scope, call.receive, call.send)

    return Gatehouse(inner, bus, hub)


async def _openapi(call: Call, bus: Bus, hub: Hub) -> None:
    """The contract of this door, as OpenAPI 3.1."""
    await call.answer(describe(ROUTES, hub.version))


async def _nothing_here(known: list[str], scope: Scope, receive: Receive, send: Send) -> None:
    path = str(scope["path"])
    close = get_close_matches(path, known, n=3, cutoff=0.6)
    hint = f" Did you mean {', '.join(close)}?" if close else " /openapi.json lists what there is."
    raise NotFound(f"There is nothing at {path[:200]}.{hint}", suggestions=close)
