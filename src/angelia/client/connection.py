"""One connection to a hub, over TCP, TLS or its Unix socket: a request out, an answer in, one after another; blocking.

What must stay true: nothing is tried a second time here; whoever knows what a repeat means decides that
(``core/posting.py``), and is told whether the connection that broke had been kept from an earlier request. Every wait
has an end.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from contextlib import suppress

from angelia.client.core.answers import CONNECT_SECONDS, MAX_ANSWER_BYTES, json_bytes
from angelia.client.core.steps import Exchange
from angelia.client.errors import ClientError, LostHub, NoHub, NotAHub, TimedOut
from angelia.client.find import Address


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

    def request(self, method: str, path: str, body: object = None, *, seconds: float) -> tuple[int, bytes]:
        """Make one request. In: a path with its query, encoded; a body for JSON. Out: status and the answer's bytes."""
        return self.exchange(Exchange(method, path, None if body is None else json_bytes(body), {}, seconds))

    def exchange(self, step: Exchange) -> tuple[int, bytes]:
        """Make one request. Out: status and the answer's bytes.

        Raises ``NoHub``, ``LostHub`` (``kept``: over a connection from before), ``NotAHub`` or ``TimedOut``.
        """
        kept = self._http is not None and not _closed_meanwhile(self._http.sock)
        if not kept:
            self.close()
        try:
            return self._once(step)
        except LostHub as error:
            error.kept = kept
            raise

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

    def _once(self, step: Exchange) -> tuple[int, bytes]:
        answer = self._answer(step.method, step.path, step.content, step.headers, step.seconds)
        try:
            too_large = (answer.length or 0) > MAX_ANSWER_BYTES
            # Only a read without a bound notices that an answer of known length was cut off.
            whole = b"" if too_large else answer.read() if answer.length else answer.read(MAX_ANSWER_BYTES + 1)
        except TimeoutError:
            self.close()
            raise TimedOut(f"the hub at {self.address}", step.seconds) from None
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


def _broken(error: Exception, where: Address) -> ClientError:
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
