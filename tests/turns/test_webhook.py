"""An agent behind an HTTP endpoint: what is posted, what counts as an answer, what each failure is. Real sockets."""

import asyncio
import base64
import os
import shutil
import ssl
import struct
import subprocess
import time
from email.utils import formatdate
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET
from typing import Any

import pytest
import uvloop

from angelia.model.envelope import Kind as MessageKind
from angelia.model.failure import Reason
from angelia.protocol.webhooks import verify
from angelia.turns.adapters.port import Accepted, Answered, Failed, Lost, Outcome, Turn
from angelia.turns.adapters.secret_file import UnfitSecret
from angelia.turns.adapters.webhook import KIND, refusal
from angelia.turns.adapters.webhook_options import WebhookOptions
from tests.turns.endpoint import Endpoint, endpoint
from tests.turns.turn import envelope, tools, turn
from tests.turns.watching import eventually

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER = "whsec_" + base64.b64encode(bytes(32)).decode()
QUICK = 5.0
MIB = 1024 * 1024
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
HARD_TEXT = "-x \"quotes\" 'more' \\ \0 \x01\x1b[31m\x7f \r\n\t 👩‍👩‍👧 é \u202e " + "x" * 200_000


@pytest.fixture(scope="module", params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": uvloop.new_event_loop} if request.param == "uvloop" else {}


async def posted(base: Path, url: str, of: Turn | None = None, **options: Any) -> Outcome:
    """What comes of a turn that is posted there."""
    given = {"secret": SECRET, "allow_private": True, **options}
    adapter = KIND.make(WebhookOptions(url=url, **given), tools(base))
    return await adapter.run(of or turn())


async def outcome(base: Path, says: bytes | None, **endpoints: Any) -> Outcome:
    """What comes of a turn when an endpoint behaves so."""
    async with endpoint() as there:
        if says is not None:
            there.says = says
        for name, value in endpoints.items():
            setattr(there, name, value)
        return await posted(base, there.url())


# ------------------------------------------------------------------------------------------------------ what is posted


async def test_a_message_is_posted_signed_under_both_sets_of_names(tmp_path: Path) -> None:
    message = envelope("hi", b'{"n":1}', in_reply_to="0" * 32, kind=MessageKind.REPLY, verified=True)
    async with endpoint() as there:
        await posted(tmp_path, there.url(), turn("hi", message))
    assert there.requests == ["POST /hook?a=b HTTP/1.1"]
    headers, body = there.headers[0], there.bodies[0]
    assert headers["host"] == f"127.0.0.1:{there.port}"
    assert headers["content-type"] == "application/json"
    for prefix in ("webhook", "svix"):
        own = {name: value for name, value in headers.items() if name.startswith(prefix)}
        assert verify([SECRET], own, body, time.time()) == message.id
    assert there.data == {
        "type": "message",
        "timestamp": "2027-01-15T08:00:00.000Z",
        "data": {
            "id": message.id, "from": "alice", "to": "bot", "verified": True, "intent": "request", "kind": "reply",
            "thread": message.thread, "in_reply_to": "0" * 32, "text": "hi", "body": {"n": 1}, "conversation": "bot",
            "reply_url": f"http://127.0.0.1:18900/v1/messages/{message.id}/reply",
        },
    }  # fmt: skip


async def test_any_text_arrives_as_it_was_sent(tmp_path: Path) -> None:
    async with endpoint() as there:
        await posted(tmp_path, there.url(), turn(HARD_TEXT))
    assert there.data["data"]["text"] == HARD_TEXT
    assert there.data["data"]["body"] is None


async def test_an_attempt_after_another_is_the_same_post(tmp_path: Path) -> None:
    once = turn()
    async with endpoint() as there:
        await posted(tmp_path, there.url(), once)
        await posted(tmp_path, there.url(), once)
    assert there.headers[0]["webhook-id"] == there.headers[1]["webhook-id"] == once.message.id
    assert there.bodies[0] == there.bodies[1]


async def test_while_a_secret_is_replaced_both_sign(tmp_path: Path) -> None:
    async with endpoint() as there:
        await posted(tmp_path, there.url(), secret=f"{SECRET} {OTHER}")
    for secret in (SECRET, OTHER):
        verify([secret], there.headers[0], there.bodies[0], time.time())


# -------------------------------------------------------------------------------------------------------- what it means


@pytest.mark.parametrize(
    ("status", "kind", "body", "comes"),
    [
        (200, "application/json", '{"text": "hi"}', Answered("hi", "webhook")),
        (201, "application/json; charset=utf-8", '{"reply": "hi"}', Answered("hi", "webhook")),
        (200, "application/problem+json", '{"text": "a", "reply": "b"}', Answered("a", "webhook")),
        (200, "application/json", '{"text": ""}', Answered("", "webhook")),
        (200, "text/plain", "hé\n", Answered("hé\n", "webhook")),
        (200, "TEXT/PLAIN; charset=utf-8", "hi", Answered("hi", "webhook")),
        (204, "", "", Accepted("webhook")),
        (200, "", "", Accepted("webhook")),
        (200, "text/plain", "", Accepted("webhook")),
        (202, "application/json", '{"text": "queued"}', Accepted("webhook")),
        (200, "application/json", '{"status": "duplicate"}', Accepted("webhook")),
        (200, "application/json", '{"text": 7}', Accepted("webhook")),
        (200, "application/json", "[]", Accepted("webhook")),
    ],
)
async def test_an_answer_stands_in_the_response_or_comes_later(
    tmp_path: Path, status: int, kind: str, body: str, comes: Outcome
) -> None:
    async with endpoint() as there:
        there.answer(status, kind, body.encode())
        assert await posted(tmp_path, there.url()) == comes


async def test_an_endpoint_may_always_answer_later(tmp_path: Path) -> None:
    async with endpoint() as there:
        there.answer(200, "text/plain", b"ok")
        assert await posted(tmp_path, there.url(), answer="later") == Accepted("webhook")


@pytest.mark.parametrize(
    ("kind", "body", "reason", "output"),
    [
        ("text/html", b"<h1>Sign in", Reason.MISSING_CONFIG, ""),
        ("", b"hi", Reason.MISSING_CONFIG, ""),
        ("application/json", b"{", None, "{"),
        ("application/json", b"[" * 100_000, None, "[" * 100_000),
    ],
)
async def test_a_status_alone_is_no_answer(
    tmp_path: Path, kind: str, body: bytes, reason: Reason | None, output: str
) -> None:
    async with endpoint() as there:
        there.answer(200, kind, body)
        came = await posted(tmp_path, there.url())
    assert isinstance(came, Failed)
    assert (came.reason, came.output, came.began) == (reason, output, True)


@pytest.mark.parametrize(
    ("status", "reason", "began"),
    [
        (301, Reason.MISSING_CONFIG, False), (308, Reason.MISSING_CONFIG, False), (400, None, True),
        (401, Reason.PROVIDER_AUTH_OR_ACCESS, False), (402, Reason.PROVIDER_QUOTA_LIMIT, False),
        (403, Reason.PROVIDER_AUTH_OR_ACCESS, False), (404, Reason.MISSING_CONFIG, False),
        (410, Reason.MISSING_CONFIG, False), (413, Reason.TOO_LARGE, False),
        (429, Reason.PROVIDER_RATE_LIMIT, False), (500, Reason.PROVIDER_SERVER_ERROR, True),
        (502, Reason.PROVIDER_SERVER_ERROR, True), (503, Reason.PROVIDER_SERVER_ERROR, True),
        (599, Reason.PROVIDER_SERVER_ERROR, True),
    ],
)  # fmt: skip
async def test_every_refusal_has_its_reason(tmp_path: Path, status: int, reason: Reason | None, began: bool) -> None:
    async with endpoint() as there:
        there.answer(status, "text/plain", b"because", Location=there.url(path="/elsewhere"))
        came = await posted(tmp_path, there.url())
    assert isinstance(came, Failed)
    assert (came.reason, came.began, came.wait_seconds) == (reason, began, None)
    assert came.output == ("because" if reason is None else "")
    assert str(status) in came.text
    assert there.connections == 1  # a redirect is not followed


@pytest.mark.parametrize(
    ("status", "retry_after", "reason", "wait"),
    [
        (429, "120", Reason.PROVIDER_RATE_LIMIT, 120.0),
        (503, "7", Reason.PROVIDER_RATE_LIMIT, 7.0),
        (503, formatdate(1_800_000_060, usegmt=True), Reason.PROVIDER_RATE_LIMIT, 60.0),
        (429, formatdate(1_700_000_000, usegmt=True), Reason.PROVIDER_RATE_LIMIT, 0.0),
        (429, "soon", Reason.PROVIDER_RATE_LIMIT, None),
        (503, "-5", Reason.PROVIDER_SERVER_ERROR, None),
        (500, "5", Reason.PROVIDER_SERVER_ERROR, 5.0),
        (429, "9" * 400, Reason.PROVIDER_RATE_LIMIT, float("inf")),
    ],
)
def test_an_endpoint_says_how_long_to_wait(status: int, retry_after: str, reason: Reason, wait: float | None) -> None:
    came = refusal(status, retry_after, "", 1_800_000_000)
    assert (came.reason, came.wait_seconds) == (reason, wait)


# ----------------------------------------------------------------------------------------------- how an answer may come


async def test_an_answer_may_come_in_pieces_after_others_and_end_with_the_connection(tmp_path: Path) -> None:
    for says in (
        CHUNKED + b"1\r\nh\r\n1\r\ni\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nhi",
    ):
        assert await outcome(tmp_path, says) == Answered("hi", "webhook")


async def test_the_largest_answer_is_kept_whole(tmp_path: Path) -> None:
    async with endpoint() as there:
        there.answer(200, "text/plain", b"x" * 5 * MIB)
        assert await posted(tmp_path, there.url()) == Answered("x" * 5 * MIB, "webhook")


async def pour(writer: asyncio.StreamWriter, piece: bytes) -> None:
    while True:
        writer.write(piece)
        await writer.drain()


@pytest.mark.parametrize(
    ("says", "piece"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n", b"x" * 65536),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5242881\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nX: ", b"x" * 1000),
        (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 1000),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
        (CHUNKED + b"0\r\n", b"Trailer: " + b"x" * 1000 + b"\r\n"),
    ],
    ids=["body", "length", "header", "headers", "continue", "trailers"],
)
async def test_what_an_endpoint_sends_is_bounded(tmp_path: Path, says: bytes, piece: bytes) -> None:
    async def after(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await (pour(writer, piece) if piece else reader.read())

    async with asyncio.timeout(QUICK):
        came = await outcome(tmp_path, says, after=after)
    assert isinstance(came, Failed)
    assert (came.reason, came.began) == (Reason.TOO_LARGE, True)


async def test_a_refusal_is_heard_before_all_is_sent(tmp_path: Path) -> None:
    async def after(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)

    async with endpoint() as there:
        there.reads = False
        there.answer(413, "text/plain", b"no")
        there.after = after
        came = await posted(tmp_path, there.url(), turn("x" * 20 * MIB))
    assert isinstance(came, Failed)
    assert came.reason is Reason.TOO_LARGE


async def test_what_does_not_speak_http_is_no_endpoint(tmp_path: Path) -> None:
    came = await outcome(tmp_path, b"SSH-2.0-OpenSSH_9.2\r\n")
    assert isinstance(came, Failed)
    assert came.reason is Reason.MISSING_CONFIG


# ------------------------------------------------------------------------- what nobody knows of, and what is certain


async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Break the connection as a process does that dies with unread bytes."""
    writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@pytest.mark.parametrize(
    "says",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Ty",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n\r\nhal",
        CHUNKED + b"3\r\nhal\r\n",
        CHUNKED + b"zz\r\n",
    ],
)
@pytest.mark.parametrize("after", [None, cut])
async def test_a_connection_that_is_cut_leaves_the_outcome_open(tmp_path: Path, says: bytes, after: Any) -> None:
    assert isinstance(await outcome(tmp_path, says, after=after), Lost)


async def test_an_endpoint_that_stays_silent_is_out_of_time_and_not_asked_again(tmp_path: Path) -> None:
    async def after(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with endpoint() as there:
        there.says, there.after = b"", after
        came = await posted(tmp_path, there.url(), turn(seconds=1))
    text = "The endpoint took the message and gave no answer within 0.95 s."
    assert came == Failed(text, "webhook", reason=Reason.DELIVERY_TIMEOUT)


async def test_where_nobody_listens_no_turn_ran(tmp_path: Path) -> None:
    async with endpoint() as there:
        url = there.url()
    for nowhere in (url, "http://nobody.invalid/", "https://nobody.invalid/"):
        came = await posted(tmp_path, nowhere)
        assert isinstance(came, Failed)
        assert (came.reason, came.began) == (Reason.RUNTIME_OFFLINE, False)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "0x7f.1", "[::ffff:127.0.0.1]"])
async def test_this_machine_is_not_reached_unless_a_person_said_so(tmp_path: Path, host: str) -> None:
    async with endpoint() as there:
        came = await posted(tmp_path, there.url(host), allow_private=False)
        assert isinstance(came, Failed)
        assert (came.reason, came.began) == (Reason.MISSING_CONFIG, False)
        assert there.connections == 0
        assert await posted(tmp_path, there.url(host)) == Accepted("webhook")


async def test_a_clouds_credentials_are_not_reached_at_all(tmp_path: Path) -> None:
    for host in ("169.254.169.254", "[::ffff:169.254.169.254]", "2852039166"):
        came = await posted(tmp_path, f"http://{host}/latest/meta-data", allow_private=True)
        assert isinstance(came, Failed)
        assert (came.reason, came.began) == (Reason.MISSING_CONFIG, False)


class _Rebinding(asyncio.SelectorEventLoop):
    """A loop whose name server knows a host under this machine's address once, and under another ever after."""

    asked = 0

    async def getaddrinfo(self, host: Any, port: Any, **more: Any) -> Any:
        assert host == "rebinding.example"
        self.asked += 1
        return [(2, 1, 6, "", ("127.0.0.1" if self.asked == 1 else "127.0.0.2", port))]


def test_the_address_that_was_checked_is_the_one_that_is_connected_to(tmp_path: Path) -> None:
    async def once() -> tuple[Outcome, Endpoint]:
        async with endpoint() as there:
            return await posted(tmp_path, there.url("rebinding.example")), there

    loop = _Rebinding()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        came, there = runner.run(once())
    assert came == Accepted("webhook")
    assert loop.asked == 1
    assert there.headers[0]["host"] == f"rebinding.example:{there.port}"


# ------------------------------------------------------------------------------------------------------------------ TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    """A certificate for ``localhost`` alone, and a server's context that shows it."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificate, is not here")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-keyout", folder / "key", "-out", folder / "cert", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert", folder / "key")
    return folder / "cert", context


async def test_a_certificate_is_one_for_the_hosts_name(
    tmp_path: Path, certificate: tuple[Path, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, context = certificate
    async with endpoint(context) as there:
        there.answer(200, "text/plain", b"hi")
        came = await posted(tmp_path, there.url("localhost", "https"))
        assert isinstance(came, Failed)  # nobody of trust has signed it
        assert (came.reason, came.began) == (Reason.MISSING_CONFIG, False)
        monkeypatch.setenv("SSL_CERT_FILE", str(path))
        assert await posted(tmp_path, there.url("localhost", "https")) == Answered("hi", "webhook")
        came = await posted(tmp_path, there.url("127.0.0.1", "https"))
        assert isinstance(came, Failed)
        assert (came.reason, came.began) == (Reason.MISSING_CONFIG, False)
        assert len(there.bodies) == 1


async def test_what_does_not_speak_tls_got_nothing(tmp_path: Path) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert HARD_TEXT[:100].encode() not in await reader.read(1000)
        writer.write(b"HTTP/1.1 400 Bad\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        came = await posted(tmp_path, f"https://127.0.0.1:{port}/", turn(HARD_TEXT))
    assert isinstance(came, Failed)
    assert (came.reason, came.began) == (Reason.RUNTIME_OFFLINE, False)


# ------------------------------------------------------------------------------------------------ stopping, and options


async def test_nothing_is_left_open(tmp_path: Path) -> None:
    async def after(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with endpoint() as there:
        before = _open()
        for _ in range(3):
            await posted(tmp_path, there.url())
        there.says, there.after = b"", after
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(posted(tmp_path, there.url()))
            await eventually(lambda: len(there.bodies) == 4)
            task.cancel()
        assert task.cancelled()
        await eventually(lambda: _open() == before)


def _open() -> tuple[int, int]:
    return len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd"))


async def test_a_secret_may_lie_in_a_private_file_or_a_variable(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(f"{SECRET}\n")
    path.chmod(0o600)
    lent = tools(tmp_path, HOOK_SECRET=OTHER)
    async with endpoint() as there:
        by_file = KIND.make(WebhookOptions(url=there.url(), secret_file=str(path), allow_private=True), lent)
        by_name = KIND.make(WebhookOptions(url=there.url(), secret_env="HOOK_SECRET", allow_private=True), lent)
        for adapter, secret in ((by_file, SECRET), (by_name, OTHER)):
            await adapter.run(turn())
            verify([secret], there.headers[-1], there.bodies[-1], time.time())
        path.write_text(OTHER)
        await by_file.run(turn())
        verify([OTHER], there.headers[-1], there.bodies[-1], time.time())
        path.chmod(0o640)
        with pytest.raises(UnfitSecret, match=f"chmod 600 {path};") as told:
            await by_file.run(turn())
    assert OTHER not in str(told.value)
    assert len(there.bodies) == 3


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"url": "ftp://host/"}, "url begins with http"),
        ({"url": "https:///path"}, "url begins with http"),
        ({"url": "host/path"}, "url begins with http"),
        ({"url": "http://host:99999/"}, "url begins with http"),
        ({"url": "http://host:0/"}, "url begins with http"),
        ({"url": "http://[::1/"}, "url begins with http"),
        ({"url": "https://host/#part"}, "no part after a #"),
        ({"url": "https://me:pass@host/"}, "no name or password"),
        ({"url": "https://host/a b"}, "printable ASCII"),
        ({"url": "https://host/\r\nX: y"}, "printable ASCII"),
        ({"url": "https://hóst/"}, "printable ASCII"),
        ({"secret": None}, "one of: secret, secret_file, secret_env."),
        ({"secret_env": "A"}, "one of: secret, secret_file, secret_env."),
        ({"secret": ""}, "no secret where one should be"),
        ({"secret": "swordfish"}, "has a secret that is none: a secret is whsec_"),
        ({"secret": None, "secret_env": "A"}, "no secret where one should be"),
        ({"secret": None, "secret_file": "here"}, "secret_file is a whole path."),
        ({"secret": None, "secret_file": "/nowhere"}, "cannot be read"),
        ({"url": "http://[::1]:8080"}, None),
        ({"url": "https://host.example:8443/a/b?c=d"}, None),
    ],
)
def test_options_are_checked(tmp_path: Path, options: dict[str, Any], says: str | None) -> None:
    given = {"url": "https://host.example/", "secret": SECRET, **options}
    wrong = KIND.check(WebhookOptions(**given), tools(tmp_path))
    assert (wrong is None) if says is None else (wrong is not None and says in wrong)
    assert wrong is None or "swordfish" not in wrong


async def test_a_look_tells_whether_the_host_can_be_reached(tmp_path: Path) -> None:
    async def look(url: str, **options: Any) -> str | None:
        found = await KIND.detect(WebhookOptions(url=url, secret=SECRET, **options), tools(tmp_path))
        assert found.ways == (() if found.problem else ("webhook",))
        return found.problem

    assert await look("http://127.0.0.1:1/", allow_private=True) is None
    assert "allow_private" in (await look("http://127.0.0.1:1/") or "")
    assert "cannot be found" in (await look("http://nobody.invalid/") or "")


async def test_posting_again_is_how_an_endpoint_is_asked(tmp_path: Path) -> None:
    adapter = KIND.make(WebhookOptions(url="http://nobody.invalid/", secret=SECRET), tools(tmp_path))
    assert await adapter.recall(turn()) is None
    await adapter.close()
