"""What a hop between two hubs costs: the time it adds to a message, how many a link carries, what idle links take."""

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from angelia.bus.beat import PING_SECONDS
from angelia.links.hub_link import ROSTER_SECONDS
from bench.figures import Bench, Figure, Measured, microseconds, spread
from bench.load import Crowd, latencies, median
from bench.peers.angelia import READER, Angelia
from bench.peers.far_ends import far_ends
from bench.peers.peer import TEXT, BadAnswer, http_request
from bench.process import connect, has_proc

SLICE = 20
BATCH = 100
MANY = 20_000
LINKS = 200
LINK_SECONDS = 60.0
LOOK_SECONDS = 0.02
ADDED = (
    "Each hub stores the message before it goes on, so a hop is one more commit, two more hand-overs between threads, "
    "and a frame of JSON each way."
)
HOP = Figure("hop", "one hop between two hubs, p50 added to send → stream", 3, 1.5, "ms", ADDED)
HOP_99 = Figure("hop-99", "the same, p99 over the p50 of one hub", 50, 10, "ms", ADDED)
LINK = Figure(
    "link", "messages/s through one link", 5_000, 10_000, "/s",
    "Python at both ends: a claim, a frame, a row and an outcome for each message, on two cores that the hubs share.",
    higher_is_better=True,
)  # fmt: skip
IDLE_LINKS = Figure(
    "idle-links", f"CPU of an idle hub with {LINKS} links", 1, 0.5, "% of a core",
    "A wake-up every 10 s; pings and one look for all links at every third, rosters once a minute.",
)  # fmt: skip
FIGURES = (HOP, HOP_99, LINK, IDLE_LINKS)


def measure(bench: Bench) -> list[Measured]:
    """All of them."""
    found = []
    with two_hubs(bench) as (near, far):
        found += _latency(bench, near, far)
        found.append(_throughput(bench, near, far))
    if has_proc():
        found.append(_idle(bench))
    return found


@contextmanager
def two_hubs(bench: Bench) -> Iterator[tuple[Angelia, Angelia]]:
    """A near hub that is linked to a far one."""
    with ExitStack() as stack:
        near, far = (
            Angelia(bench.place(name), settings=(f'hub_name = "{name}"', 'hermes_home = "off"'))
            for name in ("near", "far")
        )
        stack.callback(near.stop)
        stack.callback(far.stop)
        dial(near, far)
        yield near, far


def dial(near: Angelia, far: Angelia) -> None:
    """Link them (anew), and wait until the near one knows the far one's agents."""
    far.know([READER])
    owner(near, "PUT", "/v1/connections/far", {"target": f"ws://127.0.0.1:{far.port}", "speaks": "hub"})
    ends = time.monotonic() + LINK_SECONDS
    while not any(row["agents"] for row in owner(near, "GET", "/v1/connections")["connections"]):
        if time.monotonic() > ends:
            raise BadAnswer(f"no link after {LINK_SECONDS} s")
        time.sleep(LOOK_SECONDS)


def owner(hub: Angelia, method: str, path: str, body: object = None) -> dict[str, Any]:
    """A call as the hub's owner."""
    connection = http.client.HTTPConnection("localhost", timeout=LINK_SECONDS)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(LINK_SECONDS)
    connection.sock.connect(str(hub.data_dir / "hub.sock"))
    headers = {} if body is None else {"Content-Type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    if answer.status not in (200, 201):
        raise BadAnswer(content.decode("utf-8", "replace"))
    found: dict[str, Any] = json.loads(content)
    return found


def _latency(bench: Bench, near: Angelia, far: Angelia) -> list[Measured]:
    """Send at the far hub, and at the near one, in turn; both arrive at the same stream of the far one."""
    body = json.dumps({"from": "sender0", "to": f"{READER}@far", "text": TEXT}).encode()
    ways = {
        "one hub": far.sender(0),
        "two hubs": (connect(near.port), http_request("POST", "/v1/messages", near.port, body)),
    }
    reader = far.reader()
    took: dict[str, list[float]] = {name: [] for name in ways}
    for sender in ways.values():
        latencies(far, sender, reader, 10 * SLICE)  # until both are warm
    for number in bench.rounds(60, 15):
        for name, sender in ways.items():
            took[name] += latencies(far, sender, reader, SLICE)[0]
        if number % 15 == 14:
            bench.tell(", ".join(f"{name} {microseconds(median(values))}" for name, values in took.items()))
    reader.close()
    for connection, _ in ways.values():
        connection.close()
    found = spread(took)
    middle = {name: median(values) for name, values in took.items()}
    told = ", ".join(f"{name} {microseconds(value)}" for name, value in middle.items())
    slowest = ", ".join(f"{name} {microseconds(values[-1])}" for name, values in found.items())
    return [
        Measured(HOP, (middle["two hubs"] - middle["one hub"]) * 1000, told, found),
        Measured(HOP_99, (found["two hubs"][-1] - middle["one hub"]) * 1000, f"p99: {slowest}", found),
    ]


def _throughput(bench: Bench, near: Angelia, far: Angelia) -> Measured:
    """Fill a mailbox at the near hub while the far one is away; then count what is stored at the far one."""
    rates = []
    count = MANY // 4 if bench.quick else MANY
    batch = json.dumps({"messages": [{"from": "filler", "to": f"{READER}@far", "text": TEXT}] * BATCH}).encode()
    request = http_request("POST", "/v1/messages", near.port, batch)
    for number in bench.rounds(3):
        far.process.kill()
        crowd = Crowd(near, [(connect(near.port), request) for _ in range(2)])
        crowd.run_count(count // BATCH)
        crowd.close()
        far.resume()
        rates.append(_crossing(near, far, count))
        bench.tell(f"round {number + 1}: {rates[-1]:,.0f}/s")
    return Measured(LINK, median(rates), f"{count:,} that had waited, stored at the far hub", {"messages/s": rates})


def _crossing(near: Angelia, far: Angelia, count: int) -> float:
    """Messages a second, from the first that is seen at the far hub until all are there."""
    with connect(far.port) as connection:
        before = _queued(far, connection)
        owner(near, "PUT", "/v1/connections/far", {"target": f"ws://127.0.0.1:{far.port}", "speaks": "hub"})
        ends = time.monotonic() + LINK_SECONDS
        first, started, seen, at = 0, 0.0, 0, 0.0
        while seen < count:
            seen, at = _queued(far, connection) - before, time.perf_counter()
            if seen and not first:
                first, started = seen, at
            if time.monotonic() > ends:
                raise BadAnswer(f"{seen} of {count} crossed in {LINK_SECONDS} s")
            time.sleep(LOOK_SECONDS)
    return (count - first) / max(at - started, LOOK_SECONDS)


def _queued(far: Angelia, connection: socket.socket) -> int:
    """What waits for the far hub's reader."""
    found: int = far.call_on(connection, "GET", "/status")[1]["queues"][READER]
    return found


def _idle(bench: Bench) -> Measured:
    """A hub with so many links on which nothing happens."""
    hub = Angelia(bench.place("angelia"), settings=('hub_name = "middle"', 'hermes_home = "off"'))
    rest, seconds = (0.0, 10.0) if bench.quick else (PING_SECONDS, ROSTER_SECONDS)
    try:
        with far_ends(hub, LINKS):
            bench.tell(f"{LINKS} links are up; watching for {seconds:.0f} s, once each has been pinged")
            time.sleep(rest)
            used, started = hub.process.cpu_seconds(), time.perf_counter()
            time.sleep(seconds)
            share = (hub.process.cpu_seconds() - used) / (time.perf_counter() - started) * 100
    finally:
        hub.stop()
    return Measured(IDLE_LINKS, share, f"over {seconds:.0f} s, in which all that is done by time alone comes round")
