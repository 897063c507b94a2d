"""Requests to become a WebSocket: let in to the one that serves the path, or answered like any other refusal.

What must stay true: an upgrade passes the gatehouse as every request does. It may carry its token after the ``?``,
since browsers and Hermes' clients can set no header there. A refusal is an HTTP answer, before anything was accepted.
"""

from collections.abc import Awaitable, Callable

from angelia.bus.caller import Caller
from angelia.doors.http.call import PROBLEM, Call, Receive, Send
from angelia.doors.http.connection import Connection
from angelia.doors.http.problem import as_dict
from angelia.model.errors import AngeliaError
from angelia.protocol.json import encode

GATEWAY = "/api/ws"
HUBS = "/api/hub"  # other hubs, which prove themselves in their first frames
Serve = Callable[[Caller, Connection, Receive, Send], Awaitable[None]]


def token_of(call: Call, bearer: str | None) -> str | None:
    """The token of an upgrade: its header's, else the one after the ``?``."""
    return bearer if bearer is not None else call.query("token")


async def refuse(call: Call, error: AngeliaError) -> None:
    """Answer an upgrade with a problem."""
    body = encode(as_dict(error))
    headers = [(b"content-type", PROBLEM), (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
    start = {"type": "websocket.http.response.start", "status": error.status, "headers": headers}
    await call.send(start)
    await call.send({"type": "websocket.http.response.body", "body": body})
