"""Redis streams with ``appendfsync always``, where a redis-server is installed; shown beside the others, no figure.

A send is an XADD; the recipient is a consumer group's blocked XREADGROUP, acknowledged and asked again by XACK.
"""

import shutil
import socket
import subprocess

from bench.peers.peer import PAYLOAD, BadAnswer, Peer, read_until
from bench.process import Process, connect, free_port


def program() -> str | None:
    """Where the server is installed."""
    return shutil.which("redis-server")


def command(*words: bytes) -> bytes:
    """One command in Redis' own encoding."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


READ = command(b"XREADGROUP", b"GROUP", b"readers", b"one", b"BLOCK", b"0", b"STREAMS", b"openclaw", b">")


class Redis(Peer):
    name = "redis"

    @classmethod
    def missing(cls) -> str | None:
        return None if program() else "is not installed here"

    def start(self) -> Process:
        self.port = free_port()
        path = program()
        assert path is not None
        self._program = path
        words = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder), "--save", ""]
        words += ["--appendonly", "yes", "--appendfsync", "always"]
        process = Process([path, *words], self.folder / "log", self.port)
        process.wait_for_port()
        with connect(self.port) as connection:
            connection.sendall(command(b"XGROUP", b"CREATE", b"openclaw", b"readers", b"$", b"MKSTREAM"))
            read_until(connection, b"+OK")
        return process

    def version(self) -> str:
        told = subprocess.run([self._program, "--version"], capture_output=True, text=True).stdout
        return next((word[2:] for word in told.split() if word.startswith("v=")), "?")

    def sender(self, number: int) -> tuple[socket.socket, bytes]:
        return connect(self.port), command(b"XADD", b"openclaw", b"*", b"payload", PAYLOAD)

    def accepted(self, answer: bytes) -> bool:
        if answer.startswith(b"-"):
            raise BadAnswer(repr(answer[:300]))
        return answer.count(b"\r\n") == 2

    def reader(self) -> socket.socket:
        connection = connect(self.port)
        connection.sendall(command(b"XGROUP", b"SETID", b"openclaw", b"readers", b"$"))
        read_until(connection, b"+OK")
        connection.sendall(READ)
        return connection

    def arrived(self, data: bytes) -> bool:
        return data.endswith(b"}\r\n")

    def settle(self, reader: socket.socket, data: bytes) -> None:
        entry = next(word for word in data.split(b"\r\n") if word.replace(b"-", b"", 1).isdigit() and b"-" in word)
        reader.sendall(command(b"XACK", b"openclaw", b"readers", entry))
        read_until(reader, b"\r\n")
        reader.sendall(READ)
