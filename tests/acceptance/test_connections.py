"""The hub's sockets and connections, with a stand-in application behind them: bounds, peers, upgrades, the stop."""

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from angelia.doors.http.connection import connection_of
from angelia.doors.http.listen import AddressTaken, AddressUnusable, listen_tcp, listen_unix
from angelia.doors.http.protocol import Patience
from angelia.doors.http.server import HubServer

MARGIN = 3  # what is promised in seconds is waited for so many times as long: machines under test are slow


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": uvloop.new_event_loop}


class Seen:
    """What the application saw."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.gone = 0
        self.stop = asyncio.Event()

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        """/stream streams until the stop or the client's end, /stay only until the client's; all else echoes."""
        body = b""
        if scope["path"] in ("/stream", "/stay"):
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": b"begun\n", "more_body": True})
            await self._until_gone(receive, stops=scope["path"] == "/stream")
            with suppress(Exception):
                await send({"type": "http.response.body", "body": b"bye\n", "more_body": False})
            return
        while scope["path"] != "/refuse":
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        connection = connection_of(scope)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        seen = {"path": scope["path"], "body": body.decode(), "headers": headers, "by_socket": connection.by_socket}
        seen["local_admin"] = connection.local_admin
        self.requests.append(seen)
        answer = json.dumps(seen).encode()
        length = (b"content-length", str(len(answer)).encode())
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": answer})

    async def _until_gone(self, receive: Any, *, stops: bool) -> None:
        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            self.gone += 1

        async with asyncio.TaskGroup() as tasks:
            ends = [tasks.create_task(gone())]
            if stops:
                ends.append(tasks.create_task(self.stop.wait()))  # type: ignore[arg-type]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                end.cancel()


@asynccontextmanager
async def serving(tmp_path: Path, most: int = 1000, **patience: Any) -> AsyncIterator[tuple[Seen, HubServer, int]]:
    tcp, unix = listen_tcp(("127.0.0.1",), 0, 10), listen_unix(str(tmp_path / "hub.sock"))
    port = tcp[0].getsockname()[1]
    seen = Seen()
    server = HubServer(seen.app, tcp, [unix], patience=Patience(**patience), most_connections=most)
    await server.start()
    try:
        yield seen, server, port
    finally:
        await server.stop(0)


async def talk(port: int, data: bytes, until: Callable[[bytes], bool] | None = None) -> bytes:
    """Send, and read to the end, or until it is enough."""
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        answer = b""
        try:
            while piece := await reader.read(65536):
                answer += piece
                if until is not None and until(answer):
                    break
        except ConnectionError:
            pass
        writer.close()
        return answer


async def until(true: Callable[[], bool], seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 - it looks from outside
            await asyncio.sleep(0.01)


async def test_who_comes_by_the_unix_socket_as_the_hubs_user_is_admin(tmp_path: Path) -> None:
    async with serving(tmp_path) as (seen, _, port):
        assert (tmp_path / "hub.sock").stat().st_mode & 0o777 == 0o600
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "hub.sock"))
        writer.write(b"GET /socket HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        await reader.read()
        writer.close()
        await talk(port, b"GET /tcp HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert [(s["path"], s["by_socket"], s["local_admin"]) for s in seen.requests] == [
            ("/socket", True, True),
            ("/tcp", False, False),
        ]


async def test_beyond_so_many_connections_only_the_owner_gets_in(tmp_path: Path) -> None:
    async with serving(tmp_path, most=3) as (_, server, port):
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        await until(lambda: server.connections == 3)
        request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        assert await talk(port, request) == b""
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "hub.sock"))
        writer.write(request)
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        for each in [*(writer for _, writer in held), writer]:
            each.close()
        await until(lambda: server.connections == 0)
        assert (await talk(port, request)).startswith(b"HTTP/1.1 200 ")


async def test_there_is_a_date_and_no_server_header(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, _, port):
        answer = (await talk(port, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).lower()
        assert b"\r\ndate: " in answer
        assert b"\r\nserver: " not in answer


@pytest.mark.parametrize("ending", [b"\r\n\r\n", b""], ids=["whole", "endless"])
@pytest.mark.parametrize("size", [70_000, 1_000_000])
async def test_a_head_that_is_too_large_is_refused(tmp_path: Path, size: int, ending: bytes) -> None:
    async with serving(tmp_path) as (seen, _, port):
        answer = await talk(port, b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * size + ending)
        assert answer.startswith(b"HTTP/1.1 431 ")
        assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["code"] == "too_large"
        assert seen.requests == []


async def test_a_large_head_within_the_bound_passes(tmp_path: Path) -> None:
    async with serving(tmp_path) as (seen, _, port):
        head = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX: " + b"a" * 60_000 + b"\r\n\r\n"
        assert (await talk(port, head)).startswith(b"HTTP/1.1 200 ")
        assert len(seen.requests) == 1


async def test_a_head_that_trickles_is_refused_in_time(tmp_path: Path) -> None:
    async with serving(tmp_path, head_seconds=0.3) as (_, server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(0.3 * MARGIN + 2):
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n")
            trickle = 0
            answer = b""
            while not answer:
                writer.write(b"X-%d: y\r\n" % trickle)
                trickle += 1
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        answer = await reader.read(65536)
        assert answer.startswith(b"HTTP/1.1 408 ")
        writer.close()
        await until(lambda: server.connections == 0)


async def test_a_connection_that_says_nothing_is_closed(tmp_path: Path) -> None:
    async with serving(tmp_path, head_seconds=0.2, idle_seconds=0.2) as (_, _, port):
        assert await talk(port, b"") == b""
        twice = b"GET /1 HTTP/1.1\r\nHost: x\r\n\r\n"
        assert (await talk(port, twice)).count(b"HTTP/1.1 200") == 1  # read to the end: it closed


async def test_a_body_after_the_answer_is_not_waited_for_without_end(tmp_path: Path) -> None:
    async with serving(tmp_path, head_seconds=0.3) as (seen, _, port):
        head = b"POST /stream HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nabc"
        seen.stop.set()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head)
        async with asyncio.timeout(10):
            await reader.readuntil(b"bye\n\r\n0\r\n\r\n")
            while not reader.at_eof():
                writer.write(b"x")
                with suppress(TimeoutError, ConnectionError):
                    async with asyncio.timeout(0.05):
                        await reader.read(1)
        writer.close()


@pytest.mark.parametrize("connection", ["close", "keep-alive"])
async def test_who_is_answered_while_still_sending_gets_the_answer(tmp_path: Path, connection: str) -> None:
    async with serving(tmp_path) as (_, server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST /refuse HTTP/1.1\r\nHost: x\r\nConnection: {connection}\r\nContent-Length: 9000000\r\n\r\n"
        writer.write(head.encode())
        for _ in range(90):
            writer.write(b"x" * 100_000)
            await writer.drain()
            await asyncio.sleep(0.001)
        assert b"/refuse" in await reader.readuntil(b"}")
        writer.close()
        await until(lambda: server.connections == 0)


async def test_a_stream_outlasts_every_patience(tmp_path: Path) -> None:
    async with serving(tmp_path, head_seconds=0.1, idle_seconds=0.1) as (seen, _, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"begun\n\r\n")
        await asyncio.sleep(0.5)
        seen.stop.set()
        async with asyncio.timeout(5):
            assert b"bye" in await reader.readuntil(b"0\r\n\r\n")
        writer.close()


async def test_trailers_become_nobodys_headers(tmp_path: Path) -> None:
    async with serving(tmp_path) as (seen, _, port):
        first = b"POST /1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Late: 1\r\n\r\n"
        await talk(port, first + b"GET /2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert [(s["path"], s["body"], "x-late" in s["headers"]) for s in seen.requests] == [
            ("/1", "abc", False),
            ("/2", "", False),
        ]


async def test_endless_trailers_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, server, port):
        head = b"POST /1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Late: "
        await talk(port, head + b"a" * 1_000_000)
        await until(lambda: server.connections == 0)


@pytest.mark.parametrize("count", [64, 66, 5000])
async def test_however_many_requests_sent_ahead_are_answered_in_order(tmp_path: Path, count: int) -> None:
    async with serving(tmp_path) as (seen, server, port):
        ahead = [b"POST /%d HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello" % place for place in range(count)]
        last = b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        answer = await talk(port, b"".join([*ahead, last]))
        assert answer.count(b"HTTP/1.1 200 ") == count + 1
        assert [each["path"] for each in seen.requests] == [*(f"/{place}" for place in range(count)), "/last"]
        assert {each["body"] for each in seen.requests[:-1]} == {"hello"}
        await until(lambda: server.connections == 0)


async def test_what_is_sent_ahead_of_a_long_answer_is_not_read_without_bound(tmp_path: Path) -> None:
    async with serving(tmp_path) as (seen, server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
        count = 100_000
        writer.write(b"GET /1 HTTP/1.1\r\nHost: x\r\n\r\n" * count)
        await reader.readuntil(b"begun\n\r\n")
        await asyncio.sleep(0.3)
        connection: Any = next(iter(server._state.connections))
        assert len(connection.pipeline) < 200
        assert len(connection._unread) < 1_000_000
        seen.stop.set()
        answers = 0
        async with asyncio.timeout(40):
            while answers < count:
                await reader.readuntil(b"}")  # of the headers in the answer
                await reader.readuntil(b"}")
                answers += 1
        assert len(seen.requests) == count
        writer.close()


async def test_a_large_body_passes_whole(tmp_path: Path) -> None:
    async with serving(tmp_path) as (seen, _, port):
        body = bytes(97 + place % 26 for place in range(300_000))
        first = b"POST /1 HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        second = b"POST /2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        await talk(port, first + second + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        assert [each["body"].encode() == body for each in seen.requests] == [True, True]


async def test_what_is_wrong_is_told_behind_the_answers_that_are_due(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, server, port):
        answer = await talk(port, b"GET /1 HTTP/1.1\r\nHost: x\r\n\r\n" * 3 + b"hello\r\n\r\n")
        assert re.findall(rb"HTTP/1.1 (\d+) ", answer) == [b"200", b"200", b"200", b"400"]
        await until(lambda: server.connections == 0)


@pytest.mark.parametrize(
    "sent", [b"POST /1 HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhel", b"POST /1 HTTP/1.1\r\nHost: "]
)
async def test_a_request_cut_short_by_a_half_close_is_told_so(tmp_path: Path, sent: bytes) -> None:
    async with serving(tmp_path) as (_, server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        await asyncio.sleep(0.05)
        writer.write_eof()
        async with asyncio.timeout(5):
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"ended before it was whole" in answer
        writer.close()
        await until(lambda: server.connections == 0)


_HEAD = b" HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        ("GET /ü".encode() + _HEAD + b"\r\n", "percent-encode"),
        ("GET /?q=ü".encode() + _HEAD + b"\r\n", "percent-encode"),
        (b"FETCH /" + _HEAD + b"\r\n", "method"),
        (b"POST /" + _HEAD + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\na", "more than one Content-Length"),
        (b"POST /" + _HEAD + b"Content-Length: x\r\n\r\na", "no number"),
        (b"POST /" + _HEAD + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\na", "not both"),
        (b"POST /" + _HEAD + b"Transfer-Encoding: identity\r\n\r\nhello", "is chunked"),
        (b"POST /" + _HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\nhello", "is chunked"),
        (b"POST /" + _HEAD + b"Transfer-Encoding: chunked\r\n\r\nhello", "chunks"),
        (b"GET /" + _HEAD + b"a b: c\r\n\r\n", "header"),
    ],
)
async def test_the_reason_of_a_refusal_is_true(tmp_path: Path, sent: bytes, why: str) -> None:
    async with serving(tmp_path) as (seen, _, port):
        answer = await talk(port, sent)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert why in json.loads(answer.split(b"\r\n\r\n", 1)[1])["detail"]
        assert seen.requests == []


async def test_a_lost_connection_is_told_to_every_request_on_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as (seen, server, port):
        ahead = b"GET /stay HTTP/1.1\r\nHost: x\r\n\r\nGET /1 HTTP/1.1\r\nHost: x\r\n\r\n"
        await talk(port, ahead, until=lambda answer: b"begun" in answer)
        await until(lambda: seen.gone == 1)
        assert server.connections == 0


@pytest.mark.parametrize("cut", [None, 30, 140])
async def test_an_offer_to_upgrade_to_http2_costs_the_request_nothing(tmp_path: Path, cut: int | None) -> None:
    request = (
        b"POST /1 HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nContent-Length: 5\r\nHost: x\r\n"
        b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\nUpgrade: h2c\r\n\r\nhello"
        b"GET /2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    async with serving(tmp_path) as (seen, _, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request[:cut])
        if cut is not None:
            await asyncio.sleep(0.05)
            writer.write(request[cut:])
        async with asyncio.timeout(5):
            assert (await reader.read(65536)).startswith(b"HTTP/1.1 200 ")
            await reader.read()
        writer.close()
        assert [(s["path"], s["body"]) for s in seen.requests] == [("/1", "hello"), ("/2", "")]


@pytest.mark.parametrize(
    "garbage", [b"hello\r\n\r\n", b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00"]
)
async def test_what_is_no_request_is_told_so(tmp_path: Path, garbage: bytes) -> None:
    async with serving(tmp_path) as (_, server, port):
        answer = await talk(port, garbage)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"application/problem+json" in answer
        await until(lambda: server.connections == 0)


async def test_the_stop_lets_streams_end_and_cuts_off_the_rest(tmp_path: Path) -> None:
    async with serving(tmp_path) as (seen, server, port):
        clients = []
        for path in ["/stream"] * 200 + ["/stay"] * 200:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            clients.append((path, reader, writer))
        for _, reader, _ in clients:
            await reader.readuntil(b"begun\n\r\n")
        idle = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: server.connections == 401)
        seen.stop.set()
        loop = asyncio.get_running_loop()
        begun = loop.time()
        assert await server.stop(0.3) == 200
        assert loop.time() - begun < (0.3 + 0.5) * MARGIN
        assert server.connections == 0
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", port)
        for path, reader, writer in [*clients, ("idle", *idle)]:
            rest = b""
            with suppress(ConnectionError):
                rest = await reader.read()
            assert (b"bye" in rest) is (path == "/stream")
            writer.close()


def test_a_port_is_had_on_every_address_or_on_none() -> None:
    pair = listen_tcp(("127.0.0.1", "::1"), 0, 10)
    assert len({each.getsockname()[1] for each in pair}) == 1
    port = pair[0].getsockname()[1]
    pair[0].close()
    if len(pair) == 2:
        with pytest.raises(AddressTaken, match=rf"\[::1\]:{port}"):
            listen_tcp(("127.0.0.1", "::1"), port, 10)
        pair[1].close()
    for each in listen_tcp(("127.0.0.1", "::1"), port, 10):
        each.close()


def test_an_address_of_another_machine_is_told() -> None:
    with pytest.raises(AddressUnusable, match="192\\.0\\.2\\.1"):
        listen_tcp(("192.0.2.1",), 0, 10)


def test_only_a_socket_is_removed_for_the_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "hub.sock"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    listen_unix(str(path)).close()
    path.unlink()
    path.write_text("mine")
    with pytest.raises(AddressUnusable, match="is in the way"):
        listen_unix(str(path))
    assert path.read_text() == "mine"


async def test_a_request_that_does_not_heed_the_end_is_given_up_without_a_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    begun = asyncio.Event()

    async def never(scope: Any, receive: Any, send: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    tcp = listen_tcp(("127.0.0.1",), 0, 10)
    server = HubServer(never, tcp, [], patience=Patience(), most_connections=10)
    await server.start()
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        tasks.create_task(talk(tcp[0].getsockname()[1], b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"))
        await begun.wait()
        assert await server.stop(0.05) == 1
    assert "a request was given up, as the hub stops: GET /slow" in caplog.messages
    assert not [record for record in caplog.records if record.exc_info]
