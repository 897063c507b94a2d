"""Limits hold under attack, and whoever does nothing wrong hardly notices: floods, dribbles and endless things of every
kind, each with ordinary traffic beside it.

Others are measured by a process of its own (`rigs/beside.py`). The machines of tests are slow and shared, so that what
is asserted of them is coarse: nobody is refused, and nobody waits for an attack to end.
"""

import asyncio
import json
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosedError

from angelia.doors.gateway.server import HELLO_SECONDS
from angelia.doors.http.arriving import FREE_BYTES, PACE_BYTES, PACE_SECONDS
from angelia.doors.http.protocol import Patience
from angelia.doors.http.websocket import STRANGERS_BYTES
from angelia.protocol.hub import VERSION
from tests.acceptance.hub import MARGIN, Hub, Stream, eventually, hub
from tests.rigs.beside import Beside, Window
from tests.rigs.flood import Flood, flooded
from tests.rigs.wire import Incoming

MIB = 1024 * 1024
WAIT_SECONDS = 0.5  # that an ordinary message may take, 99 times of 100, while somebody attacks: calm it takes some ms
HALF_SECONDS = 0.1  # and half of them, while it is frames
SPARE_BYTES = 24 * MIB  # that a hub may grow by: what it keeps for good, and the largest requests at work
SECONDS = 0.6  # of an attack, at least
SHARE = 200  # of one sender in one mailbox, in these tests
FLOODS, FLOOD_SECONDS = 5, 1.0
SOME_MILLISECONDS = 0.01
_numbers = count()


@pytest.fixture(scope="module")
def at() -> Iterator[Hub]:
    env = {
        "ANGELIA_LIMITS_MAILBOX_DELIVERIES_PER_SENDER": str(SHARE),
        "ANGELIA_LIMITS_STREAMS": "100",
        "ANGELIA_LIMITS_OPEN_NAMES": "300",
    }
    with hub(env=env) as started:
        yield started


@pytest.fixture(scope="module")
def beside(at: Hub) -> Iterator[Beside]:
    with Beside(at.port) as running:
        yield running


def check(at: Hub, others: Window, before: int, spare: int = SPARE_BYTES) -> None:
    print("others:", others)
    assert others.failed == 0, others
    assert others.count > 0, others
    assert others.p99 < WAIT_SECONDS * MARGIN, others
    assert at.is_ready()
    assert at.memory - before < spare, f"{(at.memory - before) / MIB:.0f} MiB more"


def attacked(at: Hub, beside: Beside, attack: Callable[[], object], spare: int = SPARE_BYTES) -> Window:
    """Attack, and see that the others go on. A short attack is repeated, so that there is something to see."""
    before, ends = at.memory, time.monotonic() + SECONDS
    beside.window()
    attack()
    while time.monotonic() < ends:
        attack()
    others = beside.window()
    check(at, others, before, spare)
    return others


def head(at: Hub, what: str, *lines: str) -> bytes:
    return "\r\n".join([f"{what} HTTP/1.1", f"Host: 127.0.0.1:{at.port}", *lines, "", ""]).encode()


JSON = "Content-Type: application/json"
CHUNKED = "Transfer-Encoding: chunked"


def throw(at: Hub, first: bytes, then: bytes = b"", times: int = 0) -> tuple[int, int]:
    """Send, whatever comes back, until it is cut off or all is sent: the status of the answer, 0 where there was none
    within a second, and how many bytes the hub took."""
    with at.raw(seconds=1.0) as sock:
        sent = 0
        with suppress(OSError):
            sock.sendall(first)
            for _ in range(times):
                sock.sendall(then)
                sent += len(then)
        incoming = Incoming()
        with suppress(OSError):
            while not incoming.complete and (piece := sock.recv(65536)):
                incoming.feed(piece)
        return incoming.status, sent


# ---------------------------------------------------------------------------------------------------------------- slow


class Dribble:
    """A connection that sends a little now and then: what it was answered, and after how many seconds it ended."""

    def __init__(self, at: Hub, first: bytes, piece: bytes, every: float = 0.5) -> None:
        self._at, self._first, self._piece, self._every = at, first, piece, every
        self.status, self.seconds = 0, 0.0

    async def run(self) -> None:
        begun = time.monotonic()
        reader, writer = await asyncio.open_connection("127.0.0.1", self._at.port)
        writer.write(self._first)
        incoming = Incoming()
        try:
            async with asyncio.TaskGroup() as tasks:
                sending = tasks.create_task(self._send(writer))
                with suppress(OSError):
                    while piece := await reader.read(65536):
                        incoming.feed(piece)
                        if incoming.complete and incoming.status < 300:
                            break
                sending.cancel()
        finally:
            self.status, self.seconds = incoming.status, time.monotonic() - begun
            writer.close()

    async def _send(self, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while self._piece:
                await asyncio.sleep(self._every)
                writer.write(self._piece)
                await writer.drain()


UPGRADE = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
           "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")  # fmt: skip


@pytest.mark.timeout(120)
async def test_whoever_dribbles_or_is_silent_is_cut_off_and_whoever_is_only_slow_is_served(
    at: Hub, beside: Beside
) -> None:
    """Heads, bodies and chunks that come a byte at a time, connections that say nothing, and would-be hubs."""
    at.claim("slow")
    message = json.dumps({"to": "slow", "from": "modem", "text": "x" * 180_000}).encode()
    post = "POST /v1/messages"
    kinds: dict[str, tuple[int, bytes, bytes]] = {
        "head": (408, head(at, "GET /health")[:-2], b"X"),
        "lines": (408, head(at, "GET /health")[:-2], b"X: y\r\n"),
        "body": (408, head(at, post, JSON, f"Content-Length: {len(message)}"), b" "),
        "chunks": (408, head(at, post, JSON, CHUNKED), b"1\r\n \r\n"),
        "nothing of a body": (408, head(at, post, JSON, "Content-Length: 9"), b""),
        "silent": (0, b"", b""),  # nothing was asked
        "hub": (0, head(at, "GET /api/hub", *UPGRADE), b""),  # nor here, after the 101
    }
    lines = {kind: [Dribble(at, first, piece) for _ in range(40)] for kind, (_, first, piece) in kinds.items()}
    slow = Dribble(at, head(at, post, JSON, f"Content-Length: {len(message)}") + message[:1000], b"", 0)
    before = at.memory
    await asyncio.to_thread(beside.window)
    async with asyncio.TaskGroup() as tasks:
        for dribble in [*(each for kind in lines.values() for each in kind), slow]:
            tasks.create_task(dribble.run())
        honest = tasks.create_task(_at_the_pace_of_a_modem(at, message))
    others = await asyncio.to_thread(beside.window)
    for kind, (status, _, _) in kinds.items():
        assert {each.status for each in lines[kind]} == {status}, kind
        longest = max(each.seconds for each in lines[kind])
        assert longest < max(Patience().head_seconds, Patience().body_seconds, HELLO_SECONDS) * MARGIN, (kind, longest)
    assert honest.result() == 201
    assert slow.status == 408
    check(at, others, before)


async def _at_the_pace_of_a_modem(at: Hub, message: bytes) -> int:
    """Somewhat faster than the slowest that is served; the whole takes longer than any wait alone may."""
    reader, writer = await asyncio.open_connection("127.0.0.1", at.port)
    writer.write(head(at, "POST /v1/messages", JSON, f"Content-Length: {len(message)}"))
    size = len(message) // int(Patience().body_seconds * 1.2 / 0.25)
    for start in range(0, len(message), size):
        await asyncio.sleep(0.25)
        writer.write(message[start : start + size])
    incoming = Incoming()
    while not incoming.complete:
        incoming.feed(await reader.read(65536))
    writer.close()
    return incoming.status


# --------------------------------------------------------------------------------------------------- heads and bodies


@pytest.mark.parametrize(
    ("start", "more"),
    [
        ("GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n", "a: b\r\n" * 5000),
        ("GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ", "a" * 50_000),
        ("GET /health?", "a" * 50_000),
        ("", "\r\n" * 50_000),
        ("GET /health HTTP/1.1\r\n", "Host: 127.0.0.1\r\n" * 5000),
    ],
    ids=["lines", "one line", "a path", "nothing", "hosts"],
)
def test_an_endless_head_is_refused(at: Hub, beside: Beside, start: str, more: str) -> None:
    """100,000 header lines and more, on connections of their own, again and again."""

    def attack() -> None:
        status, _ = throw(at, start.encode(), more.encode(), 20)
        assert status in (431, 0), status  # 0: cut off while it still sent, so that its own kernel dropped the answer

    attacked(at, beside, attack)


def _body(content: bytes) -> Callable[[Hub], bytes]:
    return lambda at: head(at, "POST /v1/messages", JSON, f"Content-Length: {len(content)}") + content


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 1_000_000,
        b'{"a":' * 200_000,
        b'{"to":"a","from":"b","text":"c","body":' + b"[" * 500_000 + b"]" * 500_000 + b"}",
        b'{"to":"a","from":"b","text":"c","body":' + b"9" * 1_000_000 + b"}",
        b'{"to":"a","from":"b","text":"' + b"\\u0041" * 150_000 + b"\\",
        json.dumps({"to": "a", "from": "b", "text": "c", **{f"k{n}": n for n in range(60_000)}}).encode(),
    ],
    ids=["arrays", "objects", "balanced", "a number", "unended", "members"],
)
def test_a_body_that_would_hurt_a_parser_is_refused(at: Hub, beside: Beside, content: bytes) -> None:
    request = _body(content)(at)

    def attack() -> None:
        status, _ = throw(at, request)
        assert status in (400, 413), status

    attacked(at, beside, attack)


@pytest.mark.parametrize("chunk", [b"1\r\n \r\n" * 5000, b"10000\r\n" + b" " * 65536 + b"\r\n"], ids=["tiny", "large"])
def test_a_body_without_an_end_is_refused(at: Hub, beside: Beside, chunk: bytes) -> None:
    """Chunks for ever: refused beyond the bound, and then cut off."""
    first, most = head(at, "POST /v1/messages", JSON, CHUNKED), 64 * MIB

    def attack() -> None:
        _, taken = throw(at, first, chunk, (most if len(chunk) > MIB // 16 else MIB) // len(chunk))
        assert taken < most, "it was taken without a bound"

    attacked(at, beside, attack)


def test_requests_that_never_end_take_no_more_memory_together_than_is_theirs() -> None:
    """Each is within its bound. Whoever sends one whole is served meanwhile, and all is free when they are gone."""
    most, piece = 32 * MIB, b" " * (8 * MIB - 1000)
    with hub(env={"ANGELIA_LIMITS_ARRIVING_BYTES": str(most)}) as own, ExitStack() as lines:
        before = own.memory
        for _ in range(24):
            sock = lines.enter_context(own.raw())
            sock.settimeout(10)
            with suppress(OSError):  # one that is refused is not read to its end
                sock.sendall(head(own, "POST /v1/messages", JSON, f"Content-Length: {8 * MIB - 1}") + piece)
        assert own.memory - before < 3 * most, f"{(own.memory - before) / MIB:.0f} MiB more"
        assert own.call("POST", "/v1/messages", {"to": "hermes", "from": "eve", "text": "small"}).status == 201
        refused = own.call("POST", "/v1/messages", {"to": "hermes", "from": "eve", "text": "x" * (MIB - 100)})
        assert refused.status in (201, 429)
        lines.close()
        eventually(
            lambda: own.call("POST", "/v1/messages", {"to": "hermes", "from": "e", "text": "x" * MIB}).status == 201
        )


# ---------------------------------------------------------------------------------------------------------- WebSockets


def frame(opcode: int, data: bytes, *, last: bool = True) -> bytes:
    """A frame of a client, masked with zeros."""
    size = len(data)
    if size < 126:
        length = bytes([0x80 | size])
    elif size < 65536:
        length = b"\xfe" + size.to_bytes(2, "big")
    else:
        length = b"\xff" + size.to_bytes(8, "big")
    return bytes([(0x80 if last else 0) | opcode]) + length + bytes(4) + data


MORE, TEXT, PING = 0, 1, 9


def opened(at: Hub, path: str = "/api/ws") -> socket.socket:
    sock = at.raw(seconds=30)
    sock.sendall(head(at, f"GET {path}", *UPGRADE))
    assert sock.recv(65536).startswith(b"HTTP/1.1 101"), path
    return sock


def pour(sock: socket.socket, blob: bytes, seconds: float = 1.0) -> int:
    """Send the same again and again and read nothing; how many bytes went before it was cut off."""
    ends, sent = time.monotonic() + seconds, 0
    sock.settimeout(0.2)
    while time.monotonic() < ends:
        try:
            sent += sock.send(blob)
        except TimeoutError:
            continue
        except OSError:
            break
    return sent


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (frame(TEXT, b"x", last=False), frame(MORE, b"x", last=False)),
        (frame(TEXT, b"", last=False), frame(MORE, b"", last=False)),
        (b"", frame(PING, b"p" * 100)),
        (b"", frame(PING, b"")),
        (b"", frame(TEXT, b"")),
        (b"", frame(TEXT, b"{}")),
        (b"", frame(TEXT, b'{"jsonrpc":"2.0","id":1,"method":"no.such"}')),
        (b"", frame(TEXT, b'{"jsonrpc":"2.0","id":1,"method":"bot_relay.roster.get","params":{}}')),
        (b"", frame(TEXT, b'{"jsonrpc":"2.0","id":1,"method":"x","params":' + b"[" * 50_000 + b"}")),
    ],
    ids=[
        "fragments",
        "empty fragments",
        "pings",
        "empty pings",
        "blanks",
        "no calls",
        "unknown calls",
        "calls",
        "deep calls",
    ],
)
def test_frames_without_end_hold_up_nobody(at: Hub, beside: Beside, first: bytes, then: bytes) -> None:
    """Thousands of frames at once, from a peer that reads nothing of what it is answered."""
    blob = then * max(1, 60_000 // len(then))
    with opened(at) as sock:
        sock.sendall(first)
        others = attacked(at, beside, lambda: pour(sock, blob))
    assert others.p50 < HALF_SECONDS * MARGIN, others


def test_many_who_send_frames_without_end_hold_up_nobody(at: Hub, beside: Beside) -> None:
    """However many they are, they wait for each other, and nobody else for them."""
    before, blob = at.memory, frame(MORE, b"", last=False) * 10_000
    beside.window()
    with ExitStack() as lines, ThreadPoolExecutor() as at_once:
        pouring = [lines.enter_context(opened(at)) for _ in range(8)]
        for line in pouring:
            line.sendall(frame(TEXT, b"", last=False))
        list(at_once.map(lambda line: pour(line, blob), pouring))
        others = beside.window()
    check(at, others, before)
    assert others.p50 < HALF_SECONDS * MARGIN, others


def test_a_message_of_a_frame_each_is_bounded_as_a_whole(at: Hub, beside: Beside) -> None:
    with opened(at) as sock:
        sock.sendall(frame(TEXT, b"x" * 60_000, last=False))
        more = frame(MORE, b"x" * 60_000, last=False)

        def attack() -> None:
            with suppress(OSError):
                for _ in range(200):  # 12 MB, where 8 MiB is the most
                    sock.sendall(more)

        attacked(at, beside, attack)
        assert _is_cut(sock)


def _is_cut(sock: socket.socket) -> bool:
    sock.settimeout(10)
    try:
        while sock.recv(65536):
            pass
    except ConnectionError:
        return True
    return True


def test_a_message_in_many_frames_arrives_whole(at: Hub) -> None:
    """What is only unusual works: a call in a frame for each of its letters, with pings in between."""
    call = json.dumps({"jsonrpc": "2.0", "id": "é", "method": "no.such"}, ensure_ascii=False).encode()
    with opened(at) as sock:
        sock.sendall(frame(TEXT, call[:1], last=False))
        for letter in call[1:-1]:
            sock.sendall(frame(PING, b"p") + frame(MORE, bytes([letter]), last=False))
        sock.sendall(frame(MORE, call[-1:]))
        assert '"id":"é"'.encode() in _until(sock, b"no.such")


def _until(sock: socket.socket, what: bytes) -> bytes:
    """All that comes, up to this."""
    found = b""
    while what not in found:
        piece = sock.recv(65536)
        assert piece, found
        found += piece
    return found


def test_would_be_hubs_guess_one_after_another(at: Hub, beside: Beside) -> None:
    """A guess takes 32 MiB and a core. However many come at once, one is at work."""
    assert at.post("/v1/pairing", admin=True).status in (200, 201)
    hello = {"version": VERSION, "hub": "0" * 32, "name": "stranger", "nonce": "0" * 64, "by": "code"}
    call = frame(TEXT, json.dumps({"jsonrpc": "2.0", "id": 1, "method": "hub.hello", "params": hello}).encode())
    before, highest = at.memory, _highest(at)
    beside.window()
    with ExitStack() as lines:
        asking = [lines.enter_context(opened(at, "/api/hub")) for _ in range(12)]
        for line in asking:
            line.sendall(call)
        for line in asking[:6]:
            assert b'"nonce"' in _until(line, b'"nonce"')
        others = beside.window()
    check(at, others, before, 48 * MIB)
    assert _highest(at) - max(before, highest) < 2 * 32 * MIB, "many guesses were at work at once"


async def test_a_stranger_is_told_that_it_sends_too_much(at: Hub) -> None:
    """In one frame or in many small ones; from whoever was let in, more is read."""
    for piece in (100_000, 1_000):
        async with connect(f"ws://127.0.0.1:{at.port}/api/hub", ping_interval=None) as line:
            assert "gateway.ready" in str(await line.recv())
            with pytest.raises(ConnectionClosedError) as closed:
                await asyncio.wait_for(_send_and_hear(line, ["x" * piece] * (100_000 // piece)), MARGIN)
            assert closed.value.rcvd is not None
            assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (
                1009, f"prove who you are first, within {STRANGERS_BYTES} bytes"
            )  # fmt: skip
    async with connect(f"ws://127.0.0.1:{at.port}/api/ws") as line:
        await line.recv()
        await line.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "no.such", "params": {"x": "x" * 4_000_000}}))
        assert "no.such" in str(await line.recv())


@pytest.mark.parametrize("path", ["/api/ws", "/api/hub", "/api/none"])
@pytest.mark.parametrize("size", [10_000, 100_000], ids=["no frames", "too much"])
def test_what_comes_ahead_of_the_handshake_leaves_no_fault_in_the_log(at: Hub, path: str, size: int) -> None:
    with at.raw() as sock:
        sock.sendall(head(at, f"GET {path}", *UPGRADE) + b"x" * size)
        assert _is_cut(sock)
    assert at.is_ready()
    assert "Traceback" not in at.output()


async def _send_and_hear(line: ClientConnection, pieces: list[str]) -> None:
    await line.send(pieces)
    await line.recv()


def test_strangers_who_begin_the_largest_frame_cost_little(at: Hub, beside: Beside) -> None:
    """A hundred at once, each with a frame of 8 MiB of which most is here."""
    head_of_it, most = b"\x81\xff" + (8 * MIB).to_bytes(8, "big") + bytes(4), b"x" * (STRANGERS_BYTES - 2000)
    before = at.memory
    beside.window()
    with ExitStack() as lines:
        holding = [lines.enter_context(opened(at, "/api/hub")) for _ in range(100)]
        for line in holding:
            line.sendall(head_of_it + most)
        check(at, beside.after(SECONDS), before, 100 * 2 * STRANGERS_BYTES)
        for line in holding:
            with suppress(OSError):  # it is cut off meanwhile
                for _ in range(7 * MIB // len(most)):
                    line.sendall(most)
        assert at.memory - before < SPARE_BYTES, f"{(at.memory - before) / MIB:.0f} MiB more"
        assert all(map(_is_cut, holding))


def test_frames_that_never_end_take_no_more_memory_together_than_is_theirs() -> None:
    """Each is within its bound, of callers who may be here. Small calls are served meanwhile, large ones afterwards."""
    most, head_of_it = 32 * MIB, b"\x81\xff" + (8 * MIB - 1).to_bytes(8, "big") + bytes(4)
    ping = frame(TEXT, json.dumps({"jsonrpc": "2.0", "id": 1, "method": "gateway.ping", "params": {}}).encode())
    large = frame(TEXT, json.dumps({"jsonrpc": "2.0", "id": 2, "method": "none", "params": "x" * 4 * MIB}).encode())
    with hub(env={"ANGELIA_LIMITS_ARRIVING_BYTES": str(most)}) as own, ExitStack() as lines:
        before = own.memory
        holding = [lines.enter_context(opened(own, "/api/ws")) for _ in range(24)]
        for line in holding:
            with suppress(OSError):  # one that is refused is not read to its end
                line.sendall(head_of_it + b"x" * (8 * MIB - 1000))
        assert own.memory - before < 3 * most, f"{(own.memory - before) / MIB:.0f} MiB more"
        with opened(own, "/api/ws") as small:
            small.sendall(ping)
            assert b'"id":1' in _until(small, b'"id":1')
        assert b"too much has come" in b"".join(_said(line) for line in holding)
        lines.close()

        def is_heard() -> bool:
            with opened(own, "/api/ws") as line:
                line.sendall(large)
                return b'"id":2' in _until(line, b'"id":2')

        eventually(is_heard)


def test_a_frame_that_stops_coming_is_cut_in_time_and_a_slow_one_is_not(at: Hub) -> None:
    head_of_it = b"\x81\xff" + (8 * MIB).to_bytes(8, "big") + bytes(4)
    with opened(at, "/api/ws") as silent, opened(at, "/api/ws") as slow:
        for line in (silent, slow):
            _said(line)
            line.sendall(head_of_it + b"x" * 2 * FREE_BYTES)
        begun, why, heard = time.monotonic(), f"{PACE_BYTES} bytes in {PACE_SECONDS:g} s".encode(), b""
        while why not in heard:
            assert time.monotonic() - begun < PACE_SECONDS * MARGIN
            slow.sendall(b"x" * (PACE_BYTES // 10))  # so that in each ten seconds it is a little more
            heard += _said(silent)
        assert why not in _said(slow)


def _said(line: socket.socket) -> bytes:
    """What a line that was held has been told, if anything."""
    line.settimeout(0.2)
    with suppress(OSError):
        return line.recv(1 << 20)
    return b""


def _highest(at: Hub) -> int:
    """The most memory that it ever had."""
    status = Path(f"/proc/{at.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


# ------------------------------------------------------------------------------------------- too much of what is fine


def test_beyond_its_bound_on_streams_the_hub_turns_away_and_serves_who_is_there(at: Hub, beside: Beside) -> None:
    """300 streams of as many names, where 100 is the most; those beyond are told to come back later."""
    for number in range(10):
        at.claim(f"w{number}")
    beside.window()
    before = at.memory
    mine = Stream(at, "/v1/agents/w0/stream")
    opened_ones: list[Stream] = []
    try:
        for number in range(300):
            opened_ones.append(Stream(at, f"/v1/agents/w{number % 10}/stream?mode=observe", opens=False))
        eventually(lambda: at.get("/status").json["streams"] == 100, 20)
        at.send("w0", "still here", "sender")
        assert mine.next(2 * MARGIN).json["message"]["text"] == "still here"
    finally:
        for each in [mine, *opened_ones]:
            each.close()
    check(at, beside.window(), before)
    eventually(lambda: at.get("/status").json["streams"] < 20, 20)


def test_a_flooding_sender_fills_its_share_and_no_more(at: Hub, beside: Beside) -> None:
    """The others' p99 at most doubles, and never mind some milliseconds: calm and flood take turns, so that whatever
    else the machine does is beside both, and the middle ones count."""
    calm: list[float] = []
    flooded: list[float] = []
    for _ in range(FLOODS):
        name, before = f"flooded{next(_numbers)}", at.memory
        at.claim(name)
        calm.append(beside.after(FLOOD_SECONDS).p99)
        flood = Flood(at.port, name, "flooder")
        flood.run(FLOOD_SECONDS)
        others = beside.window()
        flooded.append(others.p99)
        check(at, others, before)
        assert flood.statuses[201] == SHARE, flood.statuses
        assert set(flood.statuses) == {201, 429}, flood.statuses
        assert at.inbox(name)["total"] == SHARE
        assert at.send(name, "there is room for me", "neighbour")
    print("calm:", calm, "flooded:", flooded)
    assert statistics.median(flooded) < 2 * statistics.median(calm) + SOME_MILLISECONDS, (calm, flooded)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_minute_of_floods_at_most_doubles_the_p99_of_others() -> None:
    result = flooded(1, 12)
    print(result.figures)
    assert result.good, "\n".join([*result.breaches, str(result.figures)])


def test_a_loop_that_makes_up_names_ends(at: Hub, beside: Beside) -> None:
    statuses: list[int] = []

    def attack() -> None:
        for _ in range(400):
            statuses.append(at.kept("POST", f"/v1/agents/made-up-{next(_numbers)}/claim", {"limit": 1}).status)

    attacked(at, beside, attack)
    assert set(statuses) == {200, 429}, set(statuses)
    assert len(at.get("/v1/agents").json["agents"]) < 320
