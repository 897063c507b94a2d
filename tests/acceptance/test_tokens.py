"""Tokens on a real hub: how they are made and kept, how they end, and what becomes of whoever guesses."""

import asyncio
import base64
import hashlib
import inspect
import json
import math
import re
import socket
import ssl
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from angelia.bus.directory import Directory
from angelia.doors.http import gatehouse
from angelia.doors.http.connection import TOKEN_ENDED
from angelia.doors.http.guesses import AT_ONCE, LONGEST_SECONDS
from angelia.doors.http.routes import ROUTES
from angelia.doors.http.stream import GOODBYES
from tests.acceptance.hub import MARGIN, Hub, eventually, hub
from tests.rigs.gateway import desktop

WAIT_SECONDS = 30.0
LAST_CHUNK = b"\r\n0\r\n\r\n"  # a stream's end; the connection may be used again


@pytest.fixture(scope="module")
def at() -> Iterator[Hub]:
    with hub() as started:
        yield started


def key(at: Hub, name: str, token: str | None = None) -> dict[str, Any]:
    """A new token of a name: its id, and the token."""
    made = at.call("POST", f"/v1/agents/{name}/token", {}, admin=token is None, token=token)
    assert made.status == 201, made
    return dict(made.json)


def revoke(at: Hub, name: str, made: dict[str, Any]) -> float:
    """End it; when that was answered."""
    assert at.call("DELETE", f"/v1/agents/{name}/token/{made['id']}", admin=True).status == 200
    return time.monotonic()


# ------------------------------------------------------------------------------------------------------ made, and kept


def test_a_token_is_32_random_bytes(at: Hub) -> None:
    made = [str(key(at, f"random{number % 10}")["token"]) for number in range(100)]
    decoded = [base64.urlsafe_b64decode(token + "=") for token in made]
    assert {len(each) for each in decoded} == {32}
    assert len(set(decoded)) == 100
    counts = Counter(byte for each in decoded for byte in each)
    entropy = -sum(n / 3200 * math.log2(n / 3200) for n in counts.values())
    assert entropy > 7.9  # of 8 bits; so many random bytes have 7.94, give or take 0.01


def test_only_its_hash_is_kept() -> None:
    with hub() as at:
        made = [key(at, name) for name in ("ann", "bob")]
        made.append(key(at, "ann"))
        made += [at.post("/v1/desktops/mac/token", {}, admin=True).json for _ in range(2)]
        assert at.post("/v1/backups", {}, admin=True).status == 201
        tokens = [str(each["token"]).encode() for each in made]
        for _ in range(2):
            files = {path: path.read_bytes() for path in at.folder.rglob("*") if path.is_file()}
            written = b"".join(files.values())
            for token in tokens:
                raw = base64.urlsafe_b64decode(token + b"=")
                for form in (token, raw, raw.hex().encode(), base64.b64encode(raw), base64.b64encode(token)):
                    assert not [path for path, data in files.items() if form in data], form
                assert hashlib.sha256(token).digest() in written  # so what was searched is where it would be
            at.stop()
            at.start()
        assert at.get("/v1/agents/ann/inbox", token=str(made[0]["token"])).status == 200


def test_it_is_compared_without_telling_how_much_of_it_was_right() -> None:
    """The time that it takes cannot be measured here; what it is made of can: only digests are ever compared, of which
    a guesser chooses no byte, and the one that is not looked up in a table is compared in constant time."""
    source = inspect.getsource(gatehouse.Gatehouse._caller)
    assert "digest_of(token)" in source
    assert "hmac.compare_digest(digest, self._hub.admin_digest)" in source
    assert "token ==" not in source
    assert "_tokens.get(digest)" in inspect.getsource(Directory._holder)


# ---------------------------------------------------------------------------------------------------------------- ends


LASTING = ("stream", "observer", "seed's stream", "claim", "poll", "receipt", "gateway", "live chat")


class Held:
    """Something that lasts, under a token: when it ended, and what came of it."""

    def __init__(self, at: Hub, name: str, token: str, kind: str, message: str) -> None:
        self.at, self.name, self.token = at, name, token
        path = {
            "stream": f"/v1/agents/{name}/stream?ack=manual",
            "observer": f"/v1/agents/{name}/stream?mode=observe",
            "seed's stream": f"/subscribe?agent={name}",
            "claim": f"/v1/agents/{name}/claim",
            "poll": f"/poll?agent={name}&wait=60",
            "receipt": f"/v1/messages/{message}?wait=60",
        }.get(kind, "/api/ws")
        body = b'{"wait_seconds": 60}' if kind == "claim" else b""
        method = "POST" if body else "GET"
        lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{at.port}", f"Authorization: Bearer {token}"]
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        if path == "/api/ws":
            lines += ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
            lines += ["Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="]
        self.sock = at.raw(seconds=WAIT_SECONDS)
        self.sock.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        self.said, self.ended_at = b"", 0.0
        self.opened = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        if kind not in ("claim", "poll", "receipt"):
            assert self.opened.wait(WAIT_SECONDS)
        else:
            eventually(lambda: at.get(f"/v1/agents/{name}", admin=True).status == 200)
            time.sleep(0.2)  # nothing tells from outside that a call waits

    def _read(self) -> None:
        try:
            while not self.said.endswith(LAST_CHUNK) and (piece := self.sock.recv(65536)):
                self.said += piece
                self.opened.set()
        except OSError:
            pass
        self.ended_at = time.monotonic()
        self.sock.close()

    def ends(self) -> float:
        """When it ended."""
        self._reader.join(WAIT_SECONDS)
        assert not self._reader.is_alive()
        return self.ended_at

    @property
    def lasts(self) -> bool:
        return self._reader.is_alive()

    def drop(self) -> None:
        self.sock.shutdown(socket.SHUT_RDWR)
        self._reader.join(WAIT_SECONDS)


@pytest.mark.parametrize("kind", LASTING[:-1])
def test_what_is_open_under_a_token_ends_within_a_second_of_its_revocation(at: Hub, kind: str) -> None:
    name = f"revoked{LASTING.index(kind)}"
    made, other = key(at, name), key(at, f"other{LASTING.index(kind)}")
    sent = at.call("POST", "/v1/messages", {"to": "hermes", "text": "x"}, token=made["token"]).json["id"]
    held = Held(at, name, made["token"], kind, sent)
    beside = Held(at, other["handle"], other["token"], "gateway", sent)
    begun = revoke(at, name, made)
    ended = held.ends()
    assert ended - begun < 1.0 * MARGIN
    secret = at.call("POST", "/v1/messages", {"to": name, "text": "too late"}, admin=True)
    assert secret.status == 201
    assert b"too late" not in held.said
    assert beside.lasts  # another token's go on
    beside.drop()


def test_a_stream_is_told_why_it_ends(at: Hub) -> None:
    """And never that the hub stops, which would have its reader come back for ever."""
    at.claim("opn")
    first = open_reader(at, "opn", "stream")
    made = key(at, "opn")
    assert goodbye(first.result(WAIT_SECONDS)) == GOODBYES["keyed"]

    replaced = key(at, "opn", made["token"])
    beside = Held(at, "opn", replaced["token"], "seed's stream", "0" * 32)
    revoke(at, "opn", made)
    beside.ends()
    assert goodbye(beside.said) == GOODBYES["revoked"]  # its own is another

    held = Held(at, "opn", replaced["token"], "seed's stream", "0" * 32)
    revoke(at, "opn", replaced)
    held.ends()
    assert goodbye(held.said) == GOODBYES["token"]

    own = key(at, "opn")
    held = Held(at, "opn", own["token"], "seed's stream", "0" * 32)
    assert at.call("DELETE", "/v1/agents/opn", admin=True).status == 200
    held.ends()
    assert goodbye(held.said) == GOODBYES["removed"]


def goodbye(said: bytes) -> str:
    """The reason in the one goodbye of a stream."""
    [data] = re.findall(rb"event: bye\r?\ndata: ([^\r\n]+)", said)
    return str(json.loads(data)["reason"])


async def test_a_live_chat_ends_with_its_token(at: Hub) -> None:
    made = key(at, "chatty")
    async with desktop(at.port, query=f"?token={made['token']}") as peer:
        await peer.result("session.open", profile="chatty", title="Bot Chat")
        await asyncio.to_thread(revoke, at, "chatty", made)
        async with asyncio.timeout(1.0 * MARGIN):
            await peer.socket.wait_closed()
        assert (peer.socket.close_code, peer.socket.close_reason) == (1008, TOKEN_ENDED)
        with pytest.raises(ConnectionClosed):
            await peer.socket.send("{}")
    at.send("chatty", "waits", "sender")
    new = key(at, "chatty")
    [taken] = at.call("POST", "/v1/agents/chatty/claim", {}, token=new["token"]).json["deliveries"]
    assert (taken["message"]["text"], taken["attempt"]) == ("waits", 1)


async def test_a_live_chat_of_an_open_name_is_told_that_the_name_is_keyed(at: Hub) -> None:
    async with desktop(at.port) as peer:
        session = (await peer.result("session.open", profile="chatters", title="Bot Chat"))["session_id"]
        await asyncio.to_thread(key, at, "chatters")
        async with asyncio.timeout(1.0 * MARGIN):
            assert await peer.event("session.ended") == {"session_id": session, "reason": "keyed"}


def test_what_is_open_under_a_token_ends_when_its_name_is_removed(at: Hub) -> None:
    made = key(at, "leaving")
    held = Held(at, "leaving", made["token"], "gateway", "0" * 32)
    assert at.call("DELETE", "/v1/agents/leaving", admin=True).status == 200
    begun = time.monotonic()
    assert held.ends() - begun < 1.0 * MARGIN


def test_an_agent_that_revokes_its_own_token_still_has_the_answer(at: Hub) -> None:
    for number in range(3):
        made = key(at, f"own{number}")
        answer = at.call("DELETE", f"/v1/agents/own{number}/token/{made['id']}", token=made["token"])
        assert (answer.status, answer.json) == (200, {"revoked": made["id"]})
        assert at.get(f"/v1/agents/own{number}/inbox", token=made["token"]).status == 401


@pytest.mark.parametrize("kind", ["claim", "poll", "stream"])
def test_whoever_read_an_open_name_reads_no_more_once_it_is_keyed(at: Hub, kind: str) -> None:
    name = f"keyed{LASTING.index(kind)}"
    at.claim(name)
    held = open_reader(at, name, kind)
    made = key(at, name)
    assert at.call("POST", "/v1/messages", {"to": name, "text": "too late"}, admin=True).status == 201
    said = held.result(WAIT_SECONDS)
    assert b"too late" not in said
    [taken] = at.call("POST", f"/v1/agents/{name}/claim", {}, token=made["token"]).json["deliveries"]
    assert (taken["message"]["text"], taken["attempt"]) == ("too late", 1)


def open_reader(at: Hub, name: str, kind: str) -> Any:
    """Whoever reads without a token, until the hub ends it."""
    path = {"claim": f"/v1/agents/{name}/claim", "poll": f"/poll?agent={name}&wait=60"}.get(
        kind, f"/subscribe?agent={name}"
    )
    body = {"wait_seconds": 60} if kind == "claim" else None
    pool = ThreadPoolExecutor(1)
    reading = pool.submit(lambda: at.call("POST" if body else "GET", path, body).body)
    pool.shutdown(wait=False)
    if kind == "stream":
        eventually(lambda: at.get(f"/v1/agents/{name}").json["presence"] == "online")
    else:
        time.sleep(0.3)  # nothing tells from outside that a call waits
    return reading


# -------------------------------------------------------------------------------------------------------------- guesses


def test_guesses_are_slow_and_the_right_token_never_is() -> None:
    with hub() as at:
        made = key(at, "ann")
        statuses: list[int] = []
        took: list[float] = []
        for _ in range(AT_ONCE):
            begun = time.monotonic()
            statuses.append(at.get("/v1/agents/ann/inbox", token="x" * 43).status)
            took.append(time.monotonic() - begun)
        is_not_slowed(took)
        assert statuses == [401] * AT_ONCE
        with ThreadPoolExecutor(60) as pool:  # they all come at once
            begun = time.monotonic()
            guessed = [pool.submit(guess, at, begun) for _ in range(60)]
            eventually(lambda: sum(each.done() for each in guessed) >= 40)
            took.clear()
            for _ in range(20):  # and meanwhile whoever has the right one notices nothing, from the same address
                started = time.monotonic()
                assert at.get("/v1/agents/ann/inbox", token=made["token"]).status == 200
                assert at.get("/status").status == 200
                took.append(time.monotonic() - started)
            is_not_slowed(took)
            ended = [each.result() for each in guessed]
        waited = sorted(seconds for status, seconds, _ in ended if status == 401)
        assert len(waited) <= LONGEST_SECONDS + 2  # one a second, so many of them as may wait
        assert all(seconds >= place * 0.9 for place, seconds in enumerate(waited)), waited
        many = [retry for status, _, retry in ended if status == 429]
        assert len(many) == 60 - len(waited)
        assert all(1 <= int(retry) <= LONGEST_SECONDS + 1 for retry in many)
        # the owner's socket is no address, and is not slowed
        begun = time.monotonic()
        assert [at.get("/status", admin=True, token="wrong").status for _ in range(AT_ONCE + 5)] == [401] * (
            AT_ONCE + 5
        )
        assert time.monotonic() - begun < 5.0  # slowed, they would take one second each


def is_not_slowed(took: list[float]) -> None:
    """A guess waits for a second at least; a busy machine may hold up some requests, and not most of them."""
    assert sorted(took)[len(took) // 2] < 1.0 / MARGIN, took
    assert max(took) < 1.0 * MARGIN, took


def guess(at: Hub, begun: float) -> tuple[int, float, str]:
    answer = at.get("/v1/agents/ann/inbox", token="y" * 43)
    assert answer.code == ("token_required" if answer.status == 401 else "rate_limited")
    return answer.status, time.monotonic() - begun, answer.headers.get("retry-after", "")


def test_a_websockets_guesses_are_counted_with_the_others() -> None:
    with hub() as at:
        for _ in range(AT_ONCE):
            assert at.get("/status", token="wrong").status == 401
        asked = (
            f"GET /api/ws?token=wrong HTTP/1.1\r\nHost: 127.0.0.1:{at.port}\r\nConnection: Upgrade\r\n"
            "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        begun = time.monotonic()
        assert at.talk(asked.encode()).status == 401
        assert time.monotonic() - begun > 0.8


# ------------------------------------------------------------------------------------------------------ beyond loopback


def started(at: Hub, *words: str) -> "subprocess.CompletedProcess[str]":
    return at.run("up", "--port", str(at.port), *words)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_where_others_could_reach_it_a_hub_without_tls_does_not_start(host: str) -> None:
    at = Hub()
    try:
        refused = started(at, "--host", host)
        assert refused.returncode == 78
        assert "TLS" in refused.stderr
        assert "--behind-proxy" in refused.stderr
        assert not at.folder.exists() or not list(at.folder.iterdir())  # nothing was begun
    finally:
        at.__exit__()


def every_call_takes_a_token(at: Hub, get: Any) -> None:
    """``get`` asks by a way that reaches beyond this machine."""
    admin = (at.folder / "admin.token").read_text().strip()
    places = {"handle": "box", "id": "0" * 32, "token": "x", "name": "far"}
    for route in [*ROUTES]:
        path = route.path.format(**places)
        status, body = get(route.method, path, None)
        if path in ("/health", "/api/hub"):
            assert status in (200, 400), path
        else:
            assert (status, b"token_required" in body) == (401, True), (path, status)
    for path in ("/openapi.json", "/nothing", "/"):
        assert get("GET", path, None)[0] == 401, path
    assert get("GET", "/status", admin)[0] == 200
    assert get("GET", "/status", "x" * 64)[0] == 401


def test_behind_a_proxy_every_call_takes_a_token_though_it_comes_from_loopback() -> None:
    with hub(args=("--behind-proxy",)) as at:

        def get(method: str, path: str, token: str | None) -> tuple[int, bytes]:
            answer = at.call(method, path, {} if method in ("POST", "PUT") else None, token=token)
            return answer.status, answer.body

        every_call_takes_a_token(at, get)
        forwarded = {"X-Forwarded-For": "127.0.0.1", "Forwarded": "for=127.0.0.1", "X-Real-IP": "127.0.0.1"}
        assert at.get("/status", headers=forwarded).status == 401
        assert at.get("/status", admin=True).status == 200  # the owner's socket is none of it


def test_with_tls_every_call_takes_a_token(tmp_path: Path) -> None:
    certificate, private = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", private, "-out", certificate],
        capture_output=True, check=False,
    )  # fmt: skip
    if made.returncode:
        pytest.skip("there is no openssl to make a certificate with")
    env = {"ANGELIA_TLS_CERTIFICATE": str(certificate), "ANGELIA_TLS_KEY": str(private)}
    at = Hub(env=env, args=("--host", "0.0.0.0"))
    context = ssl.create_default_context(cafile=certificate)
    try:
        at.launch()
        eventually(lambda: Path(at.socket_path).exists() and at.get("/health", admin=True).status == 200, 30)

        def get(method: str, path: str, token: str | None) -> tuple[int, bytes]:
            with context.wrap_socket(at.raw(), server_hostname="localhost") as sock:
                shown = f"Authorization: Bearer {token}\r\n" if token else ""
                kind = "Content-Type: application/json\r\nContent-Length: 2\r\n" if method in ("POST", "PUT") else ""
                body = "{}" if kind else ""
                head = (
                    f"{method} {path} HTTP/1.1\r\nHost: localhost:{at.port}\r\nConnection: close\r\n{shown}{kind}\r\n"
                )
                sock.sendall((head + body).encode())
                said = b""
                while piece := sock.recv(65536):
                    said += piece
            return int(said.split(b" ")[1]), said

        every_call_takes_a_token(at, get)
        for scheme, status in (("https", 200), ("http", 403), ("HTTPS", 403)):
            with context.wrap_socket(at.raw(), server_hostname="localhost") as sock:
                origin = f"Host: localhost:{at.port}\r\nOrigin: {scheme}://localhost:{at.port}"
                sock.sendall(f"GET /health HTTP/1.1\r\n{origin}\r\nConnection: close\r\n\r\n".encode())
                assert sock.recv(4096).startswith(f"HTTP/1.1 {status} ".encode()), scheme
        with at.raw() as plain:  # and nothing is said in the clear
            plain.sendall(f"GET /health HTTP/1.1\r\nHost: localhost:{at.port}\r\n\r\n".encode())
            assert b"HTTP/1.1 200" not in plain.recv(4096)
    finally:
        at.__exit__()


# ---------------------------------------------------------------------------------------------------------------- files


def test_a_folder_or_a_secret_that_is_open_to_others_is_refused_with_the_command_that_mends_it() -> None:
    at = Hub()
    try:
        at.start()
        assert at.run("join", "ann").returncode == 0
        made = (at.folder / "tokens" / "ann").read_text().strip()
        modes = {path: path.lstat().st_mode & 0o777 for path in [at.folder, *at.folder.rglob("*")]}
        assert not {str(path): oct(mode) for path, mode in modes.items() if mode & 0o077}
        assert (at.folder / "tokens" / "ann") in modes
        umask = Path(f"/proc/{at.pid}/status")
        if umask.exists():
            assert "Umask:\t0077" in umask.read_text()
        at.stop()
        for path, mode in ((at.folder, 0o755), (at.folder / "admin.token", 0o644), (at.folder / "link.key", 0o640)):
            path.chmod(mode)
            refused = at.run("up", "--port", str(at.port))
            assert refused.returncode == 78, refused.stderr
            assert path.stat().st_mode & 0o777 == mode  # it is told, and not mended behind anybody's back
            command = refused.stderr.partition(": chmod ")[2].split(". ")[0].strip()
            subprocess.run(["/bin/sh", "-c", f"chmod {command}"], check=True)
        at.start()
        (at.folder / "tokens" / "ann").chmod(0o644)
        refused = at.run("inbox", "--as", "ann")
        assert refused.returncode != 0
        assert f"chmod 600 {at.folder}/tokens/ann" in refused.stderr
        assert made not in refused.stderr
        (at.folder / "tokens" / "ann").chmod(0o600)
        assert at.run("inbox", "--as", "ann").returncode == 0
    finally:
        at.__exit__()
