"""Where the hub is: what an address may look like, and which one is taken.

What must stay true: the values come in as plain arguments; nothing here reads the environment or a file's contents. A
socket that is there is used, and nothing else is tried behind its back: whoever calls an owner's hub must not end up
at somebody else's.
"""

from __future__ import annotations

import os
import stat
from urllib.parse import urlsplit

DEFAULT_URL = "http://127.0.0.1:18900"
_PORTS = {"http": 80, "https": 443}


class BadAddress(ValueError):
    """That is no address of a hub."""


class Address:
    """One way to a hub: a Unix socket (``path``), or host and port, with or without TLS."""

    __slots__ = ("host", "path", "port", "tls")

    def __init__(self, *, path: str = "", host: str = "", port: int = 0, tls: bool = False) -> None:
        self.path = path
        self.host = host
        self.port = port
        self.tls = tls

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


def read(url: str) -> Address:
    """Read ``http://host[:port]``, ``https://host[:port]`` or ``unix:/path``. Raises ``BadAddress``."""
    if url.startswith("unix:"):
        path = url.removeprefix("unix:")
        path = "/" + path.lstrip("/") if path.startswith("//") else path
        if not path.startswith("/") or "\0" in path:
            raise BadAddress(f"'{url}' names no socket: write unix:/path/to/angelia.sock")
        return Address(path=path)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BadAddress(f"'{url}' is no address of a hub: {error}") from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise BadAddress(f"'{url}' is no address of a hub: write http://host:port or unix:/path")
    if parts.path not in ("", "/") or parts.query or parts.fragment or parts.username is not None:
        raise BadAddress(f"'{url}' says too much: a hub's address is http://host:port and nothing after it")
    return Address(host=parts.hostname, port=port or _PORTS[parts.scheme], tls=parts.scheme == "https")


def choose(hub_url: str | None, socket_path: str | None, usual_url: str = DEFAULT_URL) -> Address:
    """The address to call: ``hub_url`` where one is given, else the socket if it is there, else the usual port."""
    if hub_url:
        return read(hub_url)
    if socket_path is not None and is_socket(socket_path):
        return Address(path=socket_path)
    return read(usual_url)


def is_socket(path: str) -> bool:
    """Whether there is a socket of this user: one that somebody else put there is not our hub's."""
    try:
        found = os.stat(path)
    except OSError:
        return False
    return stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid()
