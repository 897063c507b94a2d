"""The floor: a bare ASGI application on uvicorn, uvloop and httptools that reads a message and answers a receipt.

It stores nothing. With one ``fdatasync`` beside it, it is what any durable bus on this stack has to pay.
"""

import os
import socket
import sys
import time
from pathlib import Path

from bench.http_stacks import REQUEST
from bench.peers.peer import Peer, http_whole
from bench.process import Process, connect, free_port

PAGE = 4096
PAGES = 256


class Bare(Peer):
    name = "bare"

    def start(self) -> Process:
        self.port = free_port()
        script = Path(__file__).parents[1] / "http_stacks.py"
        command = [sys.executable, str(script), "--serve", "asgi", "--port", str(self.port)]
        process = Process(command, self.folder / "log", self.port)
        process.wait_for_port()
        return process

    def version(self) -> str:
        return "uvicorn, uvloop, httptools"

    def sender(self, number: int) -> tuple[socket.socket, bytes]:
        return connect(self.port), REQUEST

    def accepted(self, answer: bytes) -> bool:
        return http_whole(answer)


def sync_seconds(folder: Path, count: int) -> list[float]:
    """How long one ``fdatasync`` of one page takes here: over a file that has its size already, as a log in use has."""
    path = folder / "sync"
    took = []
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_TRUNC)
    sync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync
    try:
        os.write(descriptor, bytes(PAGE * PAGES))
        os.fsync(descriptor)
        for number in range(count):
            os.pwrite(descriptor, os.urandom(PAGE), PAGE * (number % PAGES))
            started = time.perf_counter()
            sync(descriptor)
            took.append(time.perf_counter() - started)
    finally:
        os.close(descriptor)
        path.unlink()
    return took
