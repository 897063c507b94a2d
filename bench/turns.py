"""What a turn costs beside its agent: from the accepted message to the child's start, from its end to the answer."""

import http.client
import json
import shutil
import socket
import time

from bench.figures import Bench, Figure, Measured, spread
from bench.load import median
from bench.peers.angelia import Angelia

OVERHEAD = Figure(
    "turn", "a turn beside its agent, p50", 15, 8, "ms",
    "Two commits (the hand-over, the answer), the start of a process from one of the hub's size, its exit, threads.",
)  # fmt: skip
FIGURES = (OVERHEAD,)
# Says when it starts, and ends with that: both moments are one. Its own start, 1 to 2 ms, counts as the hub's.
AGENT = "printf %s $EPOCHREALTIME"


def measure(bench: Bench) -> list[Measured]:
    """The figure."""
    bash = shutil.which("bash")
    assert bash is not None, "there is no bash here, which tells microseconds without starting anything"
    hub = Angelia(bench.place("angelia"))
    took: dict[str, list[float]] = {"to the start": [], "to the answer": []}
    try:
        adapter = {"kind": "command", "argv": [bash, "-c", AGENT]}
        _call(hub, "PUT", "/v1/agents/quick", {"adapter": adapter}, unix=True)
        with socket.create_connection(("127.0.0.1", hub.port)) as stream:
            stream.sendall(b"GET /v1/agents/me/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            lines = stream.makefile("rb")
            while b": connected" not in lines.readline():
                pass
            for _ in range(20 if bench.quick else 300):
                _call(hub, "POST", "/v1/messages", {"to": "quick", "from": "me", "text": "?", "intent": "request"})
                accepted = time.time()
                line = b""
                while not line.startswith(b"data: "):
                    line = lines.readline()
                arrived = time.time()
                said = float(json.loads(line[6:])["message"]["text"])
                took["to the start"].append(said - accepted)
                took["to the answer"].append(arrived - said)
    finally:
        hub.stop()
    parts = {name: median(values) for name, values in took.items()}
    whole = [sum(pair) for pair in zip(*took.values(), strict=True)]
    told = ", ".join(f"{value * 1000:.1f} ms {name}" for name, value in parts.items())
    return [Measured(OVERHEAD, median(whole) * 1000, told, spread(took))]


def _call(hub: Angelia, method: str, path: str, body: object, *, unix: bool = False) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", hub.port, timeout=10)
    if unix:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(hub.folder / "data" / "hub.sock"))
    connection.request(method, path, json.dumps(body), {"Content-Type": "application/json", "Host": "127.0.0.1"})
    answer = connection.getresponse()
    assert answer.status in (200, 201), answer.read()
    answer.read()
    connection.close()
