"""One connection to a hub, over TCP, TLS or its Unix socket: a request out, an answer in, one after another.

What must stay true: every request that passes here may be made again (reads; and writes that carry an id or a lease),
so a kept connection that turns out to be dead costs a second try and nothing else. Nothing is tried a second time on a
fresh connection: whoever knows what a repeat means decides that (``calls.py``). Every wait has an end.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from contextlib import suppress

from angelia.client.errors import ClientError, HubError, LostHub, NoHub, NotAHub, TimedOut
from angelia.client.find import Address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CONNECT_SECONDS = 10.0
# A page of the largest messages fits many times; beyond this it is no hub that talks.
MAX_ANSWER_BYTES = 256 * 1024 * 1024


class UnixHTTPConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connect; called by the first request."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(self.timeout)
            sock.connect(self._path)
        except OSError:
            sock.close()
            raise
        self.sock = sock


class Connection:
    """The way to one hub. It opens on the first request, stays open between requests, and is one thread's at a time."""

    def __init__(self, address: Address, token: str = "") -> None:
        self.address = address
        self.token = token
        self._http: http.client.HTTPConnection | None = None
        # http.client gives socket and answer away when the hub will close; who ends them early has to know them.
        self._sock: socket.socket | None = None
        self._answered: http.client.HTTPResponse | None = None

    def close(self) -> None:
        """Let go of the connection; the next request opens another."""
        if self._answered is not None:
            self._answered.close()
        if self._http is not None:
            self._http.close()
        self._http = self._sock = self._answered = None

    def call(self, method: str, path: str, body: object = None, *, seconds: float) -> dict[str, Any]:
        """Make one request under ``/v1`` or beside it. Out: the JSON object answered with 2xx.

        Raises ``HubError`` for any other answer, ``NoHub`` and its kin, or ``TimedOut``.
        """
        status, content = self.request(method, path, body, seconds=seconds)
        found = json_object(content)
        if 200 <= status < 300:
            if not content:  # http.client takes a head that was cut off for a whole one
                raise LostHub(str(self.address), "the answer was cut off")
            if found is None:
                raise NotAHub(str(self.address), "what answers there does not speak JSON")
            return found
        raise refusal(status, found, str(self.address))

    def request(self, method: str, path: str, body: object = None, *, seconds: float) -> tuple[int, bytes]:
        """Make one request. In: a path with its query, encoded; a body for JSON. Out: status and the answer's bytes."""
        content = None if body is None else _json(body)
        kept = self._http is not None and not _closed_meanwhile(self._http.sock)
        if not kept:
            self.close()
        try:
            return self._once(method, path, content, seconds)
        except LostHub as error:
            if not kept:
                raise
            lost = error
        try:
            return self._once(method, path, content, seconds)
        except NoHub as error:
            if isinstance(error, LostHub | NotAHub):
                raise
            raise lost from None  # nobody takes a second call, but the first may have been heard

    def open(self, path: str, headers: dict[str, str], *, seconds: float) -> http.client.HTTPResponse:
        """GET something that goes on: out comes the answer once its head is there, to be read with ``read1``.

        ``seconds`` bounds every later read, too. The answer ends with ``close``.
        """
        self.close()
        return self._answer("GET", path, None, headers, seconds)

    def shutdown(self) -> None:
        """End what another thread is reading, now; that thread sees an end of the stream."""
        sock = self._sock
        if sock is not None:
            with suppress(OSError):  # it has ended already, which is what was wanted
                sock.shutdown(socket.SHUT_RDWR)

    def _once(self, method: str, path: str, content: bytes | None, seconds: float) -> tuple[int, bytes]:
        answer = self._answer(method, path, content, {}, seconds)
        try:
            too_large = (answer.length or 0) > MAX_ANSWER_BYTES
            # Only a read without a bound notices that an answer of known length was cut off.
            whole = b"" if too_large else answer.read() if answer.length else answer.read(MAX_ANSWER_BYTES + 1)
        except TimeoutError:
            self.close()
            raise TimedOut(f"the hub at {self.address}", seconds) from None
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise LostHub(str(self.address), why(error)) from None
        if too_large or len(whole) > MAX_ANSWER_BYTES:
            self.close()
            raise NotAHub(str(self.address), "its answer is larger than any hub's")
        if answer.will_close:
            self.close()
        return answer.status, whole

    def _answer(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str], seconds: float
    ) -> http.client.HTTPResponse:
        connection = self._http or self._connected()
        connection.sock.settimeout(seconds)
        head = {"Accept": "application/json", **headers}
        if self.token:
            head["Authorization"] = f"Bearer {self.token}"
        if content is not None:
            head["Content-Type"] = "application/json"
        try:
            with suppress(ConnectionError):  # a hub that refuses early closes early; its answer may be there to read
                connection.request(method, path, content, head)
            self._answered = connection.getresponse()
            return self._answered
        except TimeoutError:
            self.close()
            raise TimedOut(f"the hub at {self.address}", seconds) from None
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise _broken(error, self.address) from None

    def _connected(self) -> http.client.HTTPConnection:
        where = self.address
        connection: http.client.HTTPConnection
        if where.path:
            connection = UnixHTTPConnection(where.path, CONNECT_SECONDS)
        elif where.tls:
            connection = http.client.HTTPSConnection(where.host, where.port, timeout=CONNECT_SECONDS)
        else:
            connection = http.client.HTTPConnection(where.host, where.port, timeout=CONNECT_SECONDS)
        try:
            connection.connect()
        except (OSError, UnicodeError) as error:  # UnicodeError: a host name that cannot be one
            connection.close()
            raise NoHub(str(where), why(error)) from None
        self._http, self._sock = connection, connection.sock
        return connection


def refusal(status: int, problem: dict[str, Any] | None, where: str) -> ClientError:
    """The error for an answer that is no 2xx. In: its status, its JSON object if it had one, and who answered."""
    if problem is None or not isinstance(problem.get("code"), str):
        if status in (502, 503, 504):
            return LostHub(where, f"a proxy on the way says {status}")
        return NotAHub(where, f"what answers there says {status}, and not as a hub would")
    extra = {key: value for key, value in problem.items() if key not in ("type", "title", "status", "code", "detail")}
    title, detail = str(problem.get("title") or ""), str(problem.get("detail") or "")
    return HubError(status, problem["code"], title, detail, extra)


def _json(body: object) -> bytes:
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def json_object(content: bytes) -> dict[str, Any] | None:
    """An answer's bytes as a JSON object, or None where they are none."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _closed_meanwhile(sock: socket.socket | None) -> bool:
    """Whether the hub has closed a kept connection: then there is an end, or something unasked, to read."""
    if sock is None:
        return True
    if isinstance(sock, ssl.SSLSocket):
        return False  # it cannot be looked into without reading; the second try covers it
    try:
        sock.settimeout(0)
        sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _broken(error: Exception, where: Address) -> NoHub:
    if isinstance(error, http.client.BadStatusLine) and not isinstance(error, http.client.RemoteDisconnected):
        return NotAHub(str(where), "what answers there does not speak HTTP")
    return LostHub(str(where), why(error))


def why(error: Exception) -> str:
    """What the system or http.client says of a connection that failed, in a few words."""
    if isinstance(error, http.client.IncompleteRead):
        return "the answer was cut off"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
