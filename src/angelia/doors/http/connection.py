"""What a door may know of the connection that a request came by. The server puts it into each scope.

It is the ``Connection`` that the bus's streams ask for. What must stay true: ``local_admin`` is set from what the
kernel says about the peer, never from anything in a request. A scope without a connection (a test's) is an ordinary
caller by TCP.
"""

import os
import socket
import struct
import sys
from asyncio import Transport
from collections.abc import Callable, Mapping
from typing import Any

from angelia.doors.http.arriving import Growing

# scope["state"][KEY] is the Connection, for HTTP and for WebSockets alike.
KEY = "angelia"
TOKEN_ENDED = "the token that it was opened with is no longer good: come back with another"
# macOS: SOL_LOCAL and LOCAL_PEERCRED of <sys/un.h>; the answer, a struct xucred, begins with version and uid.
_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED_BYTES = 0, 1, 76


class Connection:
    """One connection. ``transport`` tells how much is not yet written, and can cut it off.

    ``lost``: it is no more. ``lost_unwritten``: it ended before all of an answer had left this process, so that it is
    not known what the other side has. ``on_lost`` is called once, when it ends; whoever answers a request may set it.
    ``on_shown_out``: called where the token that it is used under ends; the moment for a last word. ``let_in``: who is
    on it may be here; set by whoever serves a WebSocket, which takes little until then. ``growing``: the message that
    one is in the middle of, where that counts.
    """

    __slots__ = (
        "by_socket",
        "growing",
        "let_in",
        "local_admin",
        "lost",
        "lost_unwritten",
        "on_lost",
        "on_shown_out",
        "transport",
    )

    def __init__(self, transport: Transport | None, *, by_socket: bool = False, local_admin: bool = False) -> None:
        """``by_socket``: over the Unix socket; ``local_admin``: and the peer is the hub's own user."""
        self.transport, self.by_socket, self.local_admin = transport, by_socket, local_admin
        self.on_lost: Callable[[], None] | None = None
        self.on_shown_out: Callable[[], None] | None = None
        self.growing: Growing | None = None
        self.lost = self.lost_unwritten = self.let_in = False

    def unsent(self) -> int:
        """Bytes that were given to the connection and not yet to the kernel; 0 once it is lost."""
        return 0 if self.transport is None or self.lost else self.transport.get_write_buffer_size()

    def write_chunk(self, data: bytes) -> None:
        """Go on with an answer that has begun and that ends when it ends, as ``Call.write`` does; for where the other
        side has taken all there was, so that nothing has to be waited for."""
        if self.transport is not None and not self.lost:
            self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    @property
    def socket(self) -> socket.socket | None:
        """The socket under it."""
        return None if self.transport is None else self.transport.get_extra_info("socket")

    def abort(self) -> None:
        """Cut it off at once; what is not written is lost, and whoever sends or receives on it is told."""
        self.lost_unwritten = True
        if self.transport is not None:
            self.transport.abort()


_NONE = Connection(None)


def connection_of(scope: Mapping[str, Any]) -> Connection:
    """The connection that a scope came by."""
    found = (scope.get("state") or {}).get(KEY, _NONE)
    return found if isinstance(found, Connection) else _NONE


def peer_uid(peer: socket.socket) -> int | None:
    """The uid of the process at the other end of a Unix socket; None when the kernel does not say."""
    try:
        if sys.platform == "darwin":
            found = peer.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED_BYTES)
            return int(struct.unpack_from("=II", found)[1])
        found = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII"))
        return int(struct.unpack("iII", found)[1])
    except OSError:
        return None


def of_transport(transport: Transport, *, by_socket: bool) -> Connection:
    """What the kernel knows about a new connection."""
    admin = False
    if by_socket:
        peer = transport.get_extra_info("socket")
        admin = peer is not None and peer_uid(peer) == os.geteuid()
    return Connection(transport, by_socket=by_socket, local_admin=admin)
