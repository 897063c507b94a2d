"""The load: one process, raw sockets, one request under way on each. It measures and knows no peer's words.

What must stay true: the load costs far less than what it measures. It says what it used of a core (``own``), and
``--only generator`` holds it against a server in C that answers at once. Every loop is bounded by a count or by time,
and every wait by a timeout.
"""

import select
import socket
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.peers.peer import BadAnswer, Peer

PATIENCE_SECONDS = 20.0
LOST = b"lost"


@dataclass(frozen=True, slots=True)
class Rate:
    """How many, in how many seconds, and which part of one core the load itself took."""

    count: int
    seconds: float
    own: float

    @property
    def each_second(self) -> float:
        """The figure."""
        return self.count / self.seconds


Sender = tuple[socket.socket, bytes]


def latencies(peer: Peer, sender: Sender, reader: socket.socket, count: int) -> tuple[list[float], Sender]:
    """Seconds from the first byte of a send until the message is whole at the reader; and the sender to go on with."""
    took = []
    for _ in range(count):
        if peer.fresh:
            sender[0].close()
            sender = peer.sender(0)
        connection, request = sender
        started = time.perf_counter()
        connection.sendall(request)
        data = reader.recv(65536)
        while not peer.arrived(data):
            data += _some(reader)
        took.append(time.perf_counter() - started)
        answer = b""
        while not peer.accepted(answer):
            answer += _some(connection)
        peer.settle(reader, data)
    return took, sender


def round_trips(peer: Peer, sender: socket.socket, request: bytes, count: int) -> list[float]:
    """Seconds from the first byte of a request until its whole answer."""
    took = []
    for _ in range(count):
        started = time.perf_counter()
        sender.sendall(request)
        answer = sender.recv(65536)
        while not peer.accepted(answer):
            answer += _some(sender)
        took.append(time.perf_counter() - started)
    return took


def _some(connection: socket.socket) -> bytes:
    piece = connection.recv(65536)
    if not piece:
        raise BadAnswer("the connection ended")
    return piece


class Crowd:
    """Many connections to one peer, each with one request under way whenever the clock runs."""

    def __init__(self, peer: Peer, pairs: Sequence[tuple[socket.socket, bytes]]) -> None:
        self._peer = peer
        self._pairs = {connection.fileno(): (connection, request) for connection, request in pairs}

    def run(self, seconds: float) -> Rate:
        """Count the answers of so many seconds; what is still under way then is waited for."""
        return self._run(seconds, 1 << 62)

    def run_count(self, most: int) -> Rate:
        """Send so many and wait for all of them."""
        return self._run(PATIENCE_SECONDS * 10, most)

    def _run(self, seconds: float, most: int) -> Rate:
        answers = dict.fromkeys(self._pairs, b"")
        poll = select.poll()
        own, started = time.process_time(), time.perf_counter()
        ends = started + seconds
        for number, (connection, request) in self._pairs.items():
            poll.register(number, select.POLLIN)
            connection.sendall(request)
        count, under_way, now = 0, len(self._pairs), started
        sent = under_way
        accepted = self._peer.accepted
        while under_way:
            ready = poll.poll(PATIENCE_SECONDS * 1000)
            if not ready:
                raise BadAnswer(f"{self._peer.name} did not answer for {PATIENCE_SECONDS} s")
            now = time.perf_counter()
            for number, _ in ready:
                connection, request = self._pairs[number]
                answer = answers[number] + _some(connection)
                if not accepted(answer):
                    answers[number] = answer
                    continue
                answers[number] = b""
                count += 1
                if now < ends and sent < most:
                    sent += 1
                    connection.sendall(request)
                else:
                    under_way -= 1
        return Rate(count, now - started, (time.process_time() - own) / (now - started))

    def run_fresh(self, seconds: float, connections: int) -> Rate:
        """The same where every request takes a new connection; what is under way at the end is dropped."""
        first, request = self._peer.sender(0)
        first.close()
        poll = select.poll()
        under_way: dict[int, tuple[socket.socket, bytes]] = {}

        def begin() -> None:
            connection = socket.socket()
            connection.setblocking(False)  # who has no room lets callers wait for a second; the others go on meanwhile
            connection.connect_ex(("127.0.0.1", self._peer.process.port))
            under_way[connection.fileno()] = (connection, b"")
            poll.register(connection.fileno(), select.POLLOUT)

        def step(number: int, event: int) -> bytes | None:
            """Go on with one; its answer when it is at its end."""
            connection, answer = under_way[number]
            try:
                if event & select.POLLOUT:
                    connection.send(request)
                    poll.modify(number, select.POLLIN)
                    return None
                piece = connection.recv(65536)
            except OSError:  # the queue of those who wait to be let in was full, and the kernel gave this one up
                return LOST
            under_way[number] = (connection, answer + piece)
            return None if piece else answer

        own, started = time.process_time(), time.perf_counter()
        ends = started + seconds
        count, now = 0, started
        for _ in range(connections):
            begin()
        while now < ends:
            ready = poll.poll((ends - now) * 1000)
            now = time.perf_counter()
            for number, event in ready:
                answer = step(number, event)
                if answer is None:
                    continue
                poll.unregister(number)
                under_way.pop(number)[0].close()
                if answer is not LOST:
                    if not self._peer.accepted(answer):
                        raise BadAnswer(f"{self._peer.name} ended a connection after {answer[:200]!r}")
                    count += 1
                begin()
        for connection, _ in under_way.values():
            connection.close()
        return Rate(count, now - started, (time.process_time() - own) / (now - started))

    def close(self) -> None:
        """Let go of all of them."""
        for connection, _ in self._pairs.values():
            connection.close()


class Audience:
    """Many live streams, read as fast as they write; what they get is counted by the end of an event."""

    def __init__(self, streams: Sequence[socket.socket], mark: bytes) -> None:
        self._streams = {stream.fileno(): stream for stream in streams}
        self._mark = mark
        self._poll = select.poll()
        for number, stream in self._streams.items():
            stream.setblocking(False)
            self._poll.register(number, select.POLLIN)

    def __len__(self) -> int:
        return len(self._streams)

    def count(self, wanted: int, seconds: float) -> int:
        """Read until so many events have come, at most so long; how many came."""
        seen = 0
        ends = time.perf_counter() + seconds
        streams, mark = self._streams, self._mark
        while seen < wanted and (left := ends - time.perf_counter()) > 0:
            for number, _ in self._poll.poll(left * 1000):
                data = streams[number].recv(65536)
                if not data:
                    raise BadAnswer("a stream ended")
                seen += data.count(mark)
        return seen

    def hear(self, sender: socket.socket, requests: bytes, wanted: int, seconds: float) -> int:
        """Send, and count what arrives; the answers are read as they come, so that nobody waits for that."""
        sender.setblocking(False)
        self._streams[sender.fileno()] = sender
        self._poll.register(sender.fileno(), select.POLLIN)
        sender.sendall(requests)
        try:
            return self.count(wanted, seconds)
        finally:
            self._poll.unregister(sender.fileno())
            del self._streams[sender.fileno()]

    def drain(self, seconds: float = 0.3) -> None:
        """Read until nothing has come for so long."""
        while self.count(1, seconds):
            pass

    def close(self) -> None:
        """Let go of all of them."""
        for stream in self._streams.values():
            stream.close()


def median(values: Sequence[float]) -> float:
    """The middle one."""
    return statistics.median(values)
