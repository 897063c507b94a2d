"""The seed's server: the same calls as its text shows them. It stores nothing on disk."""

import socket
import sys
from pathlib import Path

from bench.peers.peer import PAYLOAD, BadAnswer, Peer, http_request, read_until
from bench.process import Process, connect, free_port


class Seed(Peer):
    name = "seed"
    fresh = True  # it speaks HTTP/1.0: a connection a request

    def start(self) -> Process:
        self.port = free_port()
        script = Path(__file__).with_name("seed_server.py")
        process = Process([sys.executable, str(script), str(self.port)], self.folder / "log", self.port)
        process.wait_for_port()
        return process

    def version(self) -> str:
        return "as the seed's text tells it"

    def sender(self, number: int) -> tuple[socket.socket, bytes]:
        return connect(self.port), http_request("POST", "/broadcast?from=hermes&to=openclaw", self.port, PAYLOAD)

    def accepted(self, answer: bytes) -> bool:
        if answer and not answer.startswith(b"HTTP/1.0 200"):
            raise BadAnswer(repr(answer[:300]))
        return answer.endswith(b"}")

    def reader(self) -> socket.socket:
        with connect(self.port) as connection:  # what was sent while nobody read stays there until it is polled
            connection.sendall(http_request("GET", "/poll?agent=openclaw", self.port))
            while connection.recv(1 << 20):
                pass
        connection = connect(self.port)
        connection.sendall(http_request("GET", "/subscribe?agent=openclaw", self.port))
        read_until(connection, b"\r\n\r\n")
        return connection

    def arrived(self, data: bytes) -> bool:
        return data.endswith(b"\n\n")
