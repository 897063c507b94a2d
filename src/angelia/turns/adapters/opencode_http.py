"""Asks OpenCode's server one thing over HTTP/1.1.

What must stay true: whoever calls is told whether the request can have reached the server. ``Unreached``: it cannot.
``Cut``: it may have. One connection for each request, which ends with it in whatever way; an answer is bounded.
"""

import asyncio
import base64
import ssl
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from angelia.client.aio.answer import Answer

# A whole session is read when it is looked back at: each message is at most a reply's 5 MiB, most have some kB.
LIMIT_BYTES = 64 * 1024 * 1024
CONNECT_SECONDS = 10.0
_USER = "opencode"  # the server's own default; the password alone is secret


class Unreached(Exception):
    """There was no connection: nothing was asked."""


class Cut(Exception):
    """The connection ended, or spoke no HTTP, before the answer was whole."""


class Calls:
    """``url``: http(s)://host[:port]. ``folder``: the project that is meant, where the server has several."""

    def __init__(self, url: str, password: str | None, folder: str | None) -> None:
        """Opens nothing."""
        parts = urlsplit(url)
        self._host, self._secure = parts.hostname or "", parts.scheme == "https"
        self._port = parts.port or (443 if self._secure else 80)
        self._prefix = parts.path.rstrip("/")
        self._name = parts.netloc.rpartition("@")[2]
        self._password = password
        self._query = f"directory={quote(folder, safe='')}" if folder else ""

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Send a request and wait for its answer, however long. Out: the status and the JSON, None where there is none.
        Raises ``Unreached`` or ``Cut``."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(
                    self._host, self._port, ssl=ssl.create_default_context() if self._secure else None
                )
        except (OSError, TimeoutError) as error:
            raise Unreached(str(error)) from error
        try:
            writer.write(self._request(method, path, body))
            await writer.drain()
            status, content = await _read(reader)
        except OSError as error:
            raise Cut(str(error)) from error
        finally:
            writer.transport.abort()
        return status, _json(content)

    def _request(self, method: str, path: str, body: object) -> bytes:
        content = b"" if body is None else msgspec.json.encode(body)
        target = f"{self._prefix}{path}"
        if self._query:
            target += ("&" if "?" in path else "?") + self._query
        head = [f"{method} {target} HTTP/1.1", f"Host: {self._name}", "Connection: close", "Accept: application/json"]
        if self._password is not None:
            head.append("Authorization: Basic " + base64.b64encode(f"{_USER}:{self._password}".encode()).decode())
        if body is not None:
            head.append("Content-Type: application/json")
        head.append(f"Content-Length: {len(content)}")
        return "\r\n".join([*head, "", ""]).encode() + content


async def _read(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    answer = Answer()
    content = bytearray()
    while not answer.complete:
        data = await reader.read(65536)
        if not data and answer.ends_with_connection:
            break
        if not data:
            raise Cut("it hung up")
        answer.feed(data)
        content += answer.take()
        if answer.wrong:
            raise Cut("it speaks no HTTP/1.1")
        if len(content) > LIMIT_BYTES:
            raise Cut("its answer is too long")
    return answer.status, bytes(content)


def _json(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content)
    except (msgspec.MsgspecError, RecursionError):
        return None
