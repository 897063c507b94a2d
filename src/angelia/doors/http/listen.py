"""The sockets that the hub listens on: TCP on every address, and one Unix socket.

What must stay true: all of them or none, so that nobody finds the hub on one address and another program on the next;
an address in use is an error (never SO_REUSEPORT, with which two hubs would share a port and each get half the mail).
They listen from here on, so a caller who comes before the hub is ready waits instead of being refused. Standard library
alone: a port that is taken must be told before anything heavy is loaded.
"""

import contextlib
import errno
import os
import socket
import stat
import sys

# Connections that wait to be accepted: as many streams as one restart brings back at once, where the kernel allows it.
BACKLOG = 2048
_FREE_PORT_TRIES = 20
_TCP_RXT_CONNDROPTIME = 0x80  # <netinet/tcp.h> on macOS; Python has no name for it


class AddressTaken(Exception):
    """Another program listens on ``host``:``port``, or a connection has it as its near end."""

    def __init__(self, host: str, port: int) -> None:
        """Takes the address that could not be had."""
        super().__init__(f"{authority(host, port)} is taken")
        self.host, self.port = host, port


class AddressUnusable(Exception):
    """This machine has no such address, or does not let us listen there."""


# What listens on every address of the machine, and the one of them by which it is reached from here.
EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def authority(host: str, port: int) -> str:
    """Host and port as they stand in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listen_tcp(hosts: tuple[str, ...], port: int, unacknowledged_seconds: float) -> list[socket.socket]:
    """A listening socket for each host, all on one port (0: one that is free on all).

    ``::1`` is left out where the machine has none. ``unacknowledged_seconds``: a peer whose machine takes no byte for
    so long is gone, though no packet says so.
    """
    present = [host for host in hosts if host != "::1" or _has_ipv6_loopback()]
    tries = _FREE_PORT_TRIES if port == 0 else 1
    for left in reversed(range(tries)):
        chosen, sockets = port, []
        try:
            for host in present:
                sockets.append(_listen(host, chosen, unacknowledged_seconds))
                chosen = sockets[0].getsockname()[1]
            return sockets
        except BaseException as error:
            for each in sockets:
                each.close()
            if not isinstance(error, AddressTaken) or not left:
                raise
    raise AssertionError("unreachable")


def _listen(host: str, port: int, unacknowledged_seconds: float) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # On macOS one program may listen on all addresses and another on one of them: ask before taking it over silently.
    if sys.platform == "darwin" and port and _answers(host, port, family):
        raise AddressTaken(host, port)
    try:
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            _give_up_after(listener, unacknowledged_seconds)
            listener.bind((host, port))
            # Until it listens, another could still be let in on the same port.
            listener.listen(BACKLOG)
            listener.setblocking(False)
        except BaseException:
            listener.close()
            raise
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise AddressTaken(host, port) from None
        raise AddressUnusable(f"Cannot listen on {authority(host, port)}: {error.strerror}.") from None
    return listener


def _give_up_after(listener: socket.socket, seconds: float) -> None:
    """Connections take this over from the listener; keep-alives then find out a peer that vanished without a word."""
    with contextlib.suppress(OSError):
        if sys.platform == "darwin":
            listener.setsockopt(socket.IPPROTO_TCP, _TCP_RXT_CONNDROPTIME, int(seconds))
        else:
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))


def _answers(host: str, port: int, family: socket.AddressFamily) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0


def _has_ipv6_loopback() -> bool:
    if not socket.has_ipv6:
        return False
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def listen_unix(path: str) -> socket.socket:
    """The Unix socket at ``path``, for this user alone. Call it as the owner of the data folder: one that is left
    there from a hub that died is removed."""
    remove_unix(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Between bind and chmod it would be open to others; nothing else runs yet that could make a file meanwhile.
        before = os.umask(0o177)
        try:
            listener.bind(path)
        finally:
            os.umask(before)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise AddressUnusable(f"Cannot listen on the Unix socket {path}: {error.strerror}.") from None
    return listener


def remove_unix(path: str) -> None:
    """Remove the socket's file, and never anything that is no socket."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise AddressUnusable(f"{path} is in the way: it is no socket. Move it away.")
        os.unlink(path)
