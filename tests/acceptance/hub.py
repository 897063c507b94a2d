"""A real hub: a process of its own on a free port with a fresh data folder, and the sockets to talk to it.

What must stay true: nothing of the developer's own environment reaches the process; a folder is short enough for a
Unix socket; every wait has an end, and what fails shows what the hub said. Nothing is signalled that was not started
here.
"""

import errno
import http.client
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from tests.rigs.wire import Event, Events, Incoming, request

MARGIN = 3  # what is promised in seconds is waited for so many times as long: machines under test are slow
ROOT = Path(__file__).resolve().parent.parent.parent
LOOK_SECONDS = 0.01
READY_SECONDS = 20.0
_kept_ports: dict[int, socket.socket] = {}  # that this process was given: each with what keeps it


def eventually(look: Callable[[], Any], seconds: float = 10.0, what: str = "") -> Any:
    """Look again and again until it is true; what it was then. Fails after ``seconds``."""
    ends = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < ends, f"not within {seconds:g} s: {what or look} (last: {found!r})"
        time.sleep(LOOK_SECONDS)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request was answered with."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of a problem; fails where the answer is none."""
        assert self.headers.get("content-type") == "application/problem+json", (self.status, self.headers, self.body)
        problem = self.json
        assert problem["status"] == self.status, problem
        assert {"type", "title", "status", "code", "detail"} <= set(problem), problem
        return str(problem["code"])


class _Unix(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def free_port() -> int:
    """A port that nobody has, on IPv4 and on IPv6, and that nobody else is given while this process lasts.

    It is none of those that the kernel gives to connections as they are made (from 32768 on with Linux, 49152 with
    macOS), so that it is still free when a hub that was killed wants it back. A UDP socket on it keeps it for us: other
    processes of the tests look for that, and it is in no way of TCP.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        kept = socket.socket(type=socket.SOCK_DGRAM)
        with socket.socket() as four, socket.socket(socket.AF_INET6) as six:
            if _binds(kept, "127.0.0.1", port) and _binds(four, "127.0.0.1", port) and _binds(six, "::1", port):
                _kept_ports[port] = kept
                return port
        kept.close()


def _binds(sock: socket.socket, host: str, port: int) -> bool:
    """False where somebody has that port. A machine without IPv6 has nobody on it."""
    try:
        sock.bind((host, port))
    except OSError as error:
        return error.errno != errno.EADDRINUSE
    return True


def give_back_port(port: int) -> None:
    """Others may have it from now on."""
    if (kept := _kept_ports.pop(port, None)) is not None:
        kept.close()


def environment(home: Path, source: Path | str | None = None, **more: str) -> dict[str, str]:
    """An environment of its own for a process: the system's commands, a home, UTF-8, and nothing else."""
    path = os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"])
    return {
        "PATH": path, "HOME": str(home), "LC_ALL": "C.UTF-8", "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1",
        "PYTHONPATH": str(source or ROOT / "src"), **more,
    }  # fmt: skip


@dataclass
class Hub:
    """One hub. ``with Hub() as hub`` starts it and, at the end, kills what is left and removes its folder."""

    env: Mapping[str, str] = field(default_factory=dict)
    args: tuple[str, ...] = ()
    source: Path | None = None  # another src folder: a hub that was broken on purpose
    port: int = field(default_factory=free_port)
    base: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="ang-", dir="/tmp")))
    process: "subprocess.Popen[bytes] | None" = None
    starts: int = 0
    _kept: http.client.HTTPConnection | None = None

    def __enter__(self) -> "Hub":
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill9()
        give_back_port(self.port)
        shutil.rmtree(self.base, ignore_errors=True)

    # ---- the process

    @property
    def folder(self) -> Path:
        return self.base / "d"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def socket_path(self) -> str:
        return str(self.folder / "hub.sock")

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "angelia", "up", "--port", str(self.port), "--data-dir", str(self.folder)]

    def launch(self) -> None:
        """Start the process and do not wait for it."""
        assert self.process is None, "it runs"
        self.starts += 1
        with (self.base / "output").open("ab") as output:
            self.process = subprocess.Popen(
                [*self.command, *self.args],
                env=environment(self.base, self.source, **self.env),
                cwd=self.base,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def start(self) -> float:
        """Start it and wait until it is ready; the seconds that took."""
        begun = time.monotonic()
        self.launch()
        self.wait_ready()
        return time.monotonic() - begun

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        ends = time.monotonic() + seconds
        while not self.is_ready():
            assert self.process is not None
            assert self.process.poll() is None, f"it ended with {self.process.returncode}:\n{self.output()}"
            assert time.monotonic() < ends, f"not ready within {seconds} s:\n{self.output()}"
            time.sleep(LOOK_SECONDS)

    def is_ready(self, *, well: bool = True) -> bool:
        """True when what answers on the port is this process, and says that it is well (which ``well`` asks for)."""
        try:
            answer = self.get("/health", seconds=2)
        except (OSError, http.client.HTTPException):
            return False
        return (answer.status == 200 or not well) and answer.json["pid"] == self.pid

    def kill9(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._forget_connection()
        if self.process is not None:
            self.process.kill()
            self.process.wait(30)
            self.process = None

    def stop(self, seconds: float = 30.0, number: int = signal.SIGTERM) -> tuple[int, float]:
        """A signal, and wait for the end: the exit code, and the seconds that took."""
        assert self.process is not None
        begun = time.monotonic()
        self.process.send_signal(number)
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still there {seconds:g} s after signal {number}:\n{self.output()}") from None
        self.process = None
        self._forget_connection()
        return code, time.monotonic() - begun

    def restart(self) -> float:
        """SIGKILL, and the same folder and port again; the seconds until it was ready."""
        self.kill9()
        return self.start()

    def output(self) -> str:
        """All that its processes said so far, to us and to the log of a hub without a terminal."""
        paths = [path for path in (self.base / "output", self.folder / "hub.log") if path.exists()]
        return "\n".join(path.read_text("utf-8", "replace") for path in paths)

    def run(self, *words: str, seconds: float | str = 30.0, **env: str) -> "subprocess.CompletedProcess[str]":
        """A command of `angelia` beside this hub, which it finds by its folder; ``env`` are further variables."""
        return subprocess.run(
            [sys.executable, "-m", "angelia", *words],
            env=self.cli_environment(**env),
            cwd=self.base,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=float(seconds),
            check=False,
        )

    def cli_environment(self, **more: str) -> dict[str, str]:
        """Of a command that finds this hub by its folder."""
        return environment(self.base, self.source, **{"ANGELIA_DATA_DIR": str(self.folder), **more})

    # ---- what the kernel knows of it

    @property
    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    @property
    def memory(self) -> int:
        """Resident bytes."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    # ---- requests

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        admin: bool = False,
        host: str = "127.0.0.1",
        token: str | None = None,
        seconds: float = 30.0,
    ) -> Answer:
        """One request on a connection of its own. Bytes go out as they are, anything else as JSON."""
        given = dict(headers or {})
        if token:
            given["Authorization"] = f"Bearer {token}"
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        if content is not body:
            given.setdefault("Content-Type", "application/json")
        connection = self.connection(admin=admin, host=host, seconds=seconds)
        try:
            connection.request(method, path, content, given)
            found = connection.getresponse()
            return Answer(found.status, {name.lower(): value for name, value in found.getheaders()}, found.read())
        finally:
            connection.close()

    def connection(
        self, *, admin: bool = False, host: str = "127.0.0.1", seconds: float = 30.0
    ) -> http.client.HTTPConnection:
        if admin:
            return _Unix(self.socket_path, seconds)
        return http.client.HTTPConnection(host, self.port, timeout=seconds)

    def get(self, path: str, **how: Any) -> Answer:
        return self.call("GET", path, **how)

    def post(self, path: str, body: object = None, **how: Any) -> Answer:
        return self.call("POST", path, body, **how)

    def raw(self, *, admin: bool = False, seconds: float = 30.0) -> socket.socket:
        """A bare connection."""
        if admin:
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(seconds)
            sock.connect(self.socket_path)
            return sock
        return socket.create_connection(("127.0.0.1", self.port), seconds)

    def talk(self, data: bytes, *, admin: bool = False, seconds: float = 30.0) -> Answer:
        """Bytes as they are; the first answer to them."""
        with self.raw(admin=admin, seconds=seconds) as sock:
            sock.sendall(data)
            incoming, body = Incoming(), b""
            while not incoming.complete:
                piece = sock.recv(65536)
                if not piece:
                    incoming.end()
                    break
                body += incoming.feed(piece)
        assert incoming.complete, f"cut off after {body[:200]!r}"
        return Answer(incoming.status, incoming.headers, body)

    # ---- the calls that tests make most; each fails unless it was done

    def send(self, to: str, text: str, sender: str, **more: Any) -> dict[str, Any]:
        answer = self.kept("POST", "/v1/messages", {"to": to, "text": text, "from": sender, **more})
        assert answer.status in (200, 201), (answer.status, answer.body)
        return dict(answer.json)

    def broadcast(self, payload: object, sender: str, to: str | None = None) -> dict[str, Any]:
        query = {"from": sender} | ({} if to is None else {"to": to})
        answer = self.kept("POST", f"/broadcast?{urlencode(query)}", payload)
        assert answer.status == 200, (answer.status, answer.body)
        return dict(answer.json)

    def poll(self, agent: str, **query: Any) -> list[dict[str, Any]]:
        answer = self.kept("GET", f"/poll?{urlencode({'agent': agent, **query})}")
        assert answer.status == 200, (answer.status, answer.body)
        return list(answer.json["messages"])

    def claim(self, agent: str, limit: int = 1, **more: Any) -> list[dict[str, Any]]:
        answer = self.kept("POST", f"/v1/agents/{agent}/claim", {"limit": limit, **more})
        assert answer.status == 200, (answer.status, answer.body)
        return list(answer.json["deliveries"])

    def lease(self, token: str, verb: str, **body: Any) -> Answer:
        """ack, nack or renew."""
        return self.kept("POST", f"/v1/leases/{quote(token, safe='')}/{verb}", body)

    def inbox(self, agent: str, **query: Any) -> dict[str, Any]:
        answer = self.kept("GET", f"/v1/agents/{agent}/inbox?{urlencode(query)}")
        assert answer.status == 200, (answer.status, answer.body)
        return dict(answer.json)

    def receipt(self, message_id: str, **query: Any) -> dict[str, Any]:
        answer = self.kept("GET", f"/v1/messages/{message_id}?{urlencode(query)}")
        assert answer.status == 200, (answer.status, answer.body)
        return dict(answer.json)

    def state(self, message_id: str) -> str:
        """The state of a message's one delivery."""
        return str(self.receipt(message_id)["deliveries"][0]["state"])

    def kept(self, method: str, path: str, body: object = None) -> Answer:
        """As ``call``, on one connection that is kept, so that thousands cost no ports. One thread's at a time."""
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        given = {"Content-Type": "application/json"} if content is not None else {}
        if self._kept is None:
            self._kept = self.connection()
        try:
            self._kept.request(method, path, content, given)
            found = self._kept.getresponse()
            return Answer(found.status, {name.lower(): value for name, value in found.getheaders()}, found.read())
        except (OSError, http.client.HTTPException):
            self._forget_connection()
            raise

    def _forget_connection(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None


class Stream:
    """An open event stream on a blocking socket of its own."""

    def __init__(
        self,
        hub: Hub,
        path: str,
        *,
        last_event_id: str | None = None,
        admin: bool = False,
        opens: bool = True,
        receive_bytes: int | None = None,
    ) -> None:
        """``opens``: wait for the 200. ``receive_bytes``: how much the kernel may take in for a reader that is slow."""
        self.incoming, self.events, self._ready = Incoming(), Events(), list[Event]()
        self.ended, self.last_id = False, ""  # the id of what was taken last; more may have come
        headers: dict[str, str] = {}
        self.sock = socket.socket(socket.AF_UNIX if admin else socket.AF_INET)
        if receive_bytes:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.sock.settimeout(30)
        self.sock.connect(hub.socket_path if admin else ("127.0.0.1", hub.port))
        if last_event_id is not None:
            headers["Last-Event-ID"] = last_event_id
        headers["Accept"] = "text/event-stream"
        self.sock.sendall(request("GET", path, None, host=f"127.0.0.1:{hub.port}", headers=headers))
        if opens:
            self.opened()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def opened(self, seconds: float = 10.0) -> None:
        """Wait for the head, and for the first comment behind it: from then on the stream is its agent's."""
        ends = time.monotonic() + seconds
        while not self._ready and not self.ended:
            self._read(ends)
        assert self.incoming.status == 200, (self.incoming.status, self.incoming.headers)
        assert self.incoming.headers["content-type"].startswith("text/event-stream")
        if self._ready[:1] == [Event("comment", "connected")]:
            del self._ready[0]

    def next(self, seconds: float = 10.0, *, comments: bool = False) -> Event:
        """The next event; fails when there is none in time, or the stream has ended."""
        ends = time.monotonic() + seconds
        while True:
            while self._ready:
                event = self._ready.pop(0)
                self.last_id = event.id or self.last_id
                if comments or event.kind != "comment":
                    return event
            assert not self.ended, "the stream has ended"
            self._read(ends)

    def messages(self, count: int, seconds: float = 20.0) -> list[Event]:
        """So many messages; fails on any event of the hub's own."""
        ends = time.monotonic() + seconds
        found = [self.next(max(ends - time.monotonic(), 0.001)) for _ in range(count)]
        assert all(event.kind == "message" for event in found), found
        return found

    def rest(self, seconds: float = 10.0) -> list[Event]:
        """Everything up to its end; fails when it does not end in time."""
        ends = time.monotonic() + seconds
        while not self.ended:
            self._read(ends)
        return self._taken()

    def quiet(self, seconds: float) -> list[Event]:
        """What comes in so many seconds: for what must not come."""
        ends = time.monotonic() + seconds
        with suppress(AssertionError):
            while not self.ended:
                self._read(ends)
        return self._taken()

    def _taken(self) -> list[Event]:
        found, self._ready = self._ready, []
        self.last_id = next((event.id for event in reversed(found) if event.id), self.last_id)
        return [event for event in found if event.kind != "comment"]

    def _read(self, ends: float) -> None:
        self.sock.settimeout(max(ends - time.monotonic(), 0.001))
        try:
            piece = self.sock.recv(65536)
        except TimeoutError:
            raise AssertionError(f"nothing came in time; so far {self.incoming}") from None
        except ConnectionError:
            piece = b""
        self._ready += self.events.feed(self.incoming.feed(piece))
        self.ended = self.incoming.complete or not piece
        if self.ended:
            self.sock.close()

    def close(self) -> None:
        """As a client does that ends."""
        self.sock.close()

    def abort(self) -> None:
        """As a client does that is killed with bytes unread: a reset."""
        with suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


@contextmanager
def hub(**how: Any) -> Iterator[Hub]:
    """A hub for a test: fails when the hub said something that only a fault makes it say."""
    with Hub(**how) as started:
        try:
            yield started
        finally:
            said = started.output()
            print(said)  # pytest shows it where the test failed
        assert "Traceback" not in said
        assert "never retrieved" not in said
