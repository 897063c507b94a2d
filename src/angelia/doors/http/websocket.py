"""One WebSocket connection: uvicorn's protocol over the sans-I/O core of ``websockets``, and what that leaves open.

What must stay true: whoever uses the connection hears of its end, whichever way it comes. A peer that answers no ping
is cut off at once, also where bytes for it are still waiting.
"""

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from angelia.doors.http.connection import KEY, Connection

PING_SECONDS = (
    20.0  # between two; as long again for the answer. Shorter than what closes a silent connection on the way
)
GOODBYE_SECONDS = 0.2  # some turns of the loop, with a thousand of them


class HubWebSocket(WebSocketsSansIOProtocol):
    """What a ``HubProtocol`` hands an upgraded connection to."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever uses it."""
        connection = self.app_state.get(KEY)
        if isinstance(connection, Connection):
            connection.lost = True
            connection.lost_unwritten |= exc is not None
            if connection.on_lost is not None:
                connection.on_lost()
        super().connection_lost(exc)

    async def send(self, message: ASGISendEvent) -> None:
        """A refusal in HTTP completes the handshake, too; uvicorn would log it as a fault."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True

    def shutdown(self) -> None:
        """The hub stops: close it once those who are on it have had a moment to say goodbye."""
        self.loop.call_later(GOODBYE_SECONDS, super().shutdown)

    def keepalive_timeout(self) -> None:
        """Whoever does not answer does not read a goodbye either."""
        super().keepalive_timeout()
        self.transport.abort()
