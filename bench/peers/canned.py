"""The least that a server can do: whatever comes, it answers with the same bytes. It shows how fast the load is.

Run it with `python bench/peers/canned.py PORT`.
"""

import asyncio
import socket
import sys
from pathlib import Path

import uvloop

from bench.peers.peer import Peer, http_request, http_whole
from bench.process import Process, connect, free_port

BODY = b'{"id":"0123456789abcdef0123456789abcdef","deliveries":[{"to":"openclaw","seq":1,"state":"queued"}]}'
ANSWER = b"HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)


class Canned(Peer):
    name = "canned"

    def start(self) -> Process:
        port = free_port()
        root = Path(__file__).parents[2]
        command = ["env", f"PYTHONPATH={root}", sys.executable, __file__, str(port)]
        process = Process(command, self.folder / "log", port)
        process.wait_for_port()
        return process

    def version(self) -> str:
        return "uvloop"

    def sender(self, number: int) -> tuple[socket.socket, bytes]:
        port = self.process.port
        return connect(port), http_request("POST", "/v1/messages", port, b"x" * 300)

    def accepted(self, answer: bytes) -> bool:
        return http_whole(answer)


class _Answer(asyncio.Protocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(ANSWER)


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Answer, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
