"""Angelia itself: one hub with a data folder of its own, and the calls that the measurements make.

Limits that exist to protect a hub from its callers are raised, since here one caller fills it on purpose.
"""

import contextlib
import json
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.load import Audience
from bench.peers.peer import TEXT, BadAnswer, Peer, http_request, http_whole, read_until
from bench.process import NotReady, Process, connect, free_port

LIMITS = {
    "mailbox_deliveries": 10_000_000,
    "mailbox_deliveries_per_sender": 10_000_000,
    "mailbox_bytes": 100 * 1024**3,
    "mailbox_bytes_per_sender": 100 * 1024**3,
    "open_names": 20_000,
}
READER = "openclaw"
# The code beside this bench, whatever is installed: so a copy of the tree measures itself.
SOURCE = Path(__file__).parents[2] / "src"
READY_SECONDS = 60.0
EVENT_END = b"\n\n\r\n"  # an event's and its chunk's; a keep-alive has one line feed
QUIET_SECONDS = 0.5
PATIENCE_SECONDS = 10.0


class Angelia(Peer):
    name = "angelia"

    def __init__(self, folder: Path, source: Path = SOURCE, settings: Sequence[str] = ()) -> None:
        """``settings``: further lines of its settings file."""
        self.source, self._settings = source, settings
        super().__init__(folder)

    def start(self) -> Process:
        self.port = free_port()
        settings = self.folder / "angelia.toml"
        lines = [*self._settings, "[limits]", *(f"{name} = {value}" for name, value in LIMITS.items())]
        settings.write_text("\n".join(lines) + "\n")
        return self._up()

    def _up(self) -> Process:
        # A clean environment, so that nothing that a developer has set reaches the hub.
        command = ["env", "-i", f"HOME={self.folder}", f"ANGELIA_CONFIG={self.folder / 'angelia.toml'}"]
        command += [f"PYTHONPATH={self.source}"]
        command += [sys.executable, "-m", "angelia", "up", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--data-dir", str(self.data_dir), "--log-level", "warning"]
        process = Process(command, self.folder / "log", self.port)
        self.ready_seconds = self._wait_until_ready(process)
        return process

    @property
    def data_dir(self) -> Path:
        """The hub's own folder."""
        return self.folder / "data"

    @property
    def database(self) -> Path:
        """The file that everything is in."""
        return self.data_dir / "angelia.db"

    def restart(self) -> None:
        """Kill it where it stands, and start it again on the same folder."""
        self.process.kill()
        self.resume()

    def resume(self) -> None:
        """Start it again on the same folder, once it was killed."""
        self.process = self._up()

    def _wait_until_ready(self, process: Process) -> float:
        """Seconds from the start until ``/health`` says 200."""
        started = time.monotonic()
        process.wait_for_port(READY_SECONDS)
        while time.monotonic() - started < READY_SECONDS:
            status, _ = self.call("GET", "/health", seconds=READY_SECONDS)
            if status == 200:
                return time.monotonic() - started
            time.sleep(0.01)
        raise NotReady(process.said())

    def version(self) -> str:
        status, health = self.call("GET", "/health")
        return str(health.get("version", status))

    # ------------------------------------------------------------------------------------------------- what it is asked

    def call(self, method: str, path: str, body: object = None, seconds: float = 30.0) -> tuple[int, dict[str, Any]]:
        """One request on a connection of its own."""
        with connect(self.port, seconds) as connection:
            return self.call_on(connection, method, path, body)

    def call_on(
        self, connection: socket.socket, method: str, path: str, body: object = None
    ) -> tuple[int, dict[str, Any]]:
        """One request on a connection that stays open."""
        content = b"" if body is None else json.dumps(body).encode()
        connection.sendall(http_request(method, path, self.port, content))
        return self.answer_on(connection)

    def answer_on(self, connection: socket.socket) -> tuple[int, dict[str, Any]]:
        """The next answer on a connection."""
        answer = b""
        while not http_whole(answer, good=(answer[9:12],)):
            piece = connection.recv(1 << 20)
            if not piece:
                raise BadAnswer(f"the connection ended after {answer[:200]!r}")
            answer += piece
        content = answer.partition(b"\r\n\r\n")[2]
        return int(answer[9:12]), json.loads(content) if content else {}

    def know(self, names: list[str]) -> None:
        """Make these names known, each with a mailbox."""
        with connect(self.port) as connection:
            for name in names:
                status, answer = self.call_on(connection, "POST", f"/v1/agents/{name}/claim", {"limit": 1})
                if status != 200:
                    raise BadAnswer(str(answer))

    def batch(self, count: int, to: str) -> bytes:
        """One request with ``count`` messages."""
        messages = [{"from": "filler", "to": to, "text": TEXT} for _ in range(count)]
        return http_request("POST", "/v1/messages", self.port, json.dumps({"messages": messages}).encode())

    def sender(self, number: int) -> tuple[socket.socket, bytes]:
        body = json.dumps({"from": f"sender{number}", "to": READER, "text": TEXT}).encode()
        return connect(self.port), http_request("POST", "/v1/messages", self.port, body)

    def accepted(self, answer: bytes) -> bool:
        return http_whole(answer)

    def reader(self) -> socket.socket:
        connection = self.stream(READER)
        read_until(connection, b"retry: ")
        connection.settimeout(QUIET_SECONDS)
        with contextlib.suppress(TimeoutError):  # what has waited comes at once, and is read before the clock starts
            while connection.recv(1 << 20):
                pass
        connection.settimeout(PATIENCE_SECONDS)
        return connection

    def stream(self, name: str) -> socket.socket:
        """Ask for a stream; its head is not read yet."""
        connection = connect(self.port)
        connection.sendall(http_request("GET", f"/subscribe?agent={name}", self.port))
        return connection

    def audience(self, first: int, count: int) -> Audience:
        """The streams of so many agents, once all of them are open and quiet."""
        audience = Audience([self.stream(f"agent{number}") for number in range(first, first + count)], EVENT_END)
        ends = time.monotonic() + READY_SECONDS
        while self.call("GET", "/status")[1]["streams"] < first + count:
            if time.monotonic() > ends:
                raise NotReady(f"{count} streams were not open after {READY_SECONDS} s")
            audience.drain(0.5)
        audience.drain(1.0)
        return audience

    def arrived(self, data: bytes) -> bool:
        return EVENT_END in data
