"""What a request costs in each HTTP stack: the measurement behind docs/adr/0003-dependencies.md.

One server process (uvicorn, uvloop, httptools, no access log) answers a small JSON POST; this process loads it over
loopback from raw keep-alive sockets, which costs far less than any server here. Rounds go in turn over the stacks, so
that a slow moment of the machine falls on all of them. The server's CPU time for one request is the figure to compare:
it hardly feels what else the machine is doing. Stacks that are not installed are left out.

    python bench/http_stacks.py
"""

import argparse
import importlib.util
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from typing import Any

import msgspec

# What the hub does most: a message of some 300 bytes comes in, a receipt goes out.
MESSAGE = {"to": "openclaw", "intent": "inform", "text": "x" * 200, "body": {"step": 3, "tags": ["a", "b"]}}
PAYLOAD = json.dumps(MESSAGE).encode()
REQUEST = (
    b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(PAYLOAD), PAYLOAD)
)
NEEDS = {
    "asgi": "uvicorn",
    "asgi+router": "starlette",
    "starlette": "starlette",
    "litestar": "litestar",
    "fastapi": "fastapi",
}
SOCKETS = 16  # enough that the server never waits for the client
ROUNDS, ROUND_SECONDS, WARM_UP_SECONDS = 3, 2.5, 0.5  # five stacks: about 45 s


def receipt(to: str) -> dict[str, Any]:
    return {
        "id": "0" * 32,
        "thread": "0" * 32,
        "deliveries": [{"to": to, "seq": 1, "state": "queued"}],
        "duplicate": False,
    }


# ------------------------------------------------------------------------------------ one app, in the way of each stack


async def bare_endpoint(scope: Any, receive: Any, send: Any) -> None:
    """The endpoint that Angelia's HTTP door is made of: no request object, bytes in and bytes out."""
    body, more = b"", True
    while more:
        event = await receive()
        body += event.get("body", b"")
        more = event.get("more_body", False)
    answer = msgspec.json.encode(receipt(msgspec.json.decode(body)["to"]))
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 201, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


class BareEndpoint:
    """The same as an object: Starlette's Route wraps a function into its request layer, and leaves an object alone."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await bare_endpoint(scope, receive, send)


def routed_app() -> Any:
    from starlette.routing import Route, Router

    return Router([Route("/v1/messages", BareEndpoint(), methods=["POST"])])


def starlette_app() -> Any:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def send_message(request: Request) -> JSONResponse:
        return JSONResponse(receipt((await request.json())["to"]), status_code=201)

    return Starlette(routes=[Route("/v1/messages", send_message, methods=["POST"])])


def fastapi_app() -> Any:
    from fastapi import FastAPI
    from pydantic import create_model

    app = FastAPI()
    # create_model, because annotations must be real types here, and pydantic is imported only now.
    message = create_model("message", to=(str, ...), intent=(str, ...), text=(str, ...), body=(dict[str, Any], ...))

    async def send_message(message: Any) -> dict[str, Any]:
        return receipt(message.to)

    send_message.__annotations__ = {"message": message, "return": dict[str, Any]}
    app.post("/v1/messages", status_code=201)(send_message)
    return app


def litestar_app() -> Any:
    from litestar import Litestar, post

    message = msgspec.defstruct("message", [("to", str), ("intent", str), ("text", str), ("body", dict[str, Any])])

    async def send_message(data: Any) -> dict[str, Any]:
        return receipt(data.to)

    send_message.__annotations__ = {"data": message, "return": dict[str, Any]}
    return Litestar([post("/v1/messages")(send_message)])


def serve(stack: str, port: int) -> None:
    import uvicorn

    apps = {"asgi+router": routed_app, "starlette": starlette_app, "fastapi": fastapi_app, "litestar": litestar_app}
    app = bare_endpoint if stack == "asgi" else apps[stack]()
    before = time.process_time()
    uvicorn.run(app, host="127.0.0.1", port=port, loop="uvloop", http="httptools", access_log=False, log_level="error")
    print(time.process_time() - before)


# ------------------------------------------------------------------------------------------------------------- the load


def answer_size(connection: socket.socket) -> int:
    """Ask once and read to the end by content-length. Every later answer is as long, so the load only counts bytes."""
    connection.sendall(REQUEST)
    seen = b""
    while b"\r\n\r\n" not in seen:
        seen += connection.recv(65536)
    head, _, body = seen.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 201"), head
    length = next(
        int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
    )
    while len(body) < length:
        body += connection.recv(65536)
    assert json.loads(body)["deliveries"][0]["to"] == "openclaw", body
    return len(head) + 4 + length


def load(port: int, seconds: float) -> tuple[int, float]:
    """How many requests, in how many seconds, with one always under way on each socket."""
    connections = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(SOCKETS)]
    size = 0
    for connection in connections:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        size = answer_size(connection)
        connection.sendall(REQUEST)
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        for connection in connections:
            missing = size
            while missing:
                got = len(connection.recv(missing))
                assert got, "the server closed the connection"
                missing -= got
            connection.sendall(REQUEST)
        count += SOCKETS
    elapsed = time.perf_counter() - started
    for connection in connections:
        connection.close()
    return count, elapsed


def measure(stack: str) -> tuple[float, float]:
    """(requests per second, microseconds of the server's CPU for one)."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, __file__, "--serve", stack, "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            for _ in range(200):
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except ConnectionRefusedError:
                    time.sleep(0.05)
            warm_up, _ = load(port, WARM_UP_SECONDS)
            count, seconds = load(port, ROUND_SECONDS)
        finally:
            server.send_signal(signal.SIGINT)  # uvicorn then returns, and the server can tell its CPU time
            said, _ = server.communicate(timeout=10)
    return count / seconds, float(said) / (warm_up + count) * 1e6


def main() -> None:
    """Measure every installed stack and print one line for each."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--serve", choices=NEEDS)
    arguments.add_argument("--port", type=int, default=0)
    options = arguments.parse_args()
    if options.serve:
        serve(options.serve, options.port)
        return
    stacks = [stack for stack, package in NEEDS.items() if importlib.util.find_spec(package)]
    rounds: dict[str, list[tuple[float, float]]] = {stack: [] for stack in stacks}
    for _ in range(ROUNDS):
        for stack in stacks:
            rounds[stack].append(measure(stack))
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, {SOCKETS} sockets, medians of {ROUNDS} rounds")
    print(f"{'':12} {'requests/s':>10} {'CPU µs each':>12} {'against asgi+router':>20}")
    medians = {
        stack: [statistics.median(column) for column in zip(*rows, strict=True)] for stack, rows in rounds.items()
    }
    for stack, (rate, cpu) in medians.items():
        print(f"{stack:12} {rate:10,.0f} {cpu:12.1f} {cpu / medians['asgi+router'][1]:19.2f}×")


if __name__ == "__main__":
    main()
