"""The gates of a real hub: every path, under every form of Host and Origin that somebody may try to come by.

Every request here carries the owner's token and what would do something, so that nothing but the gate stands in the
way. At the end nothing was done; and the same requests under the hub's own names are let in.
"""

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from angelia.doors.http.routes import ROUTES
from tests.acceptance.hub import Answer, Hub, hub
from tests.rigs.wire import Incoming

UPGRADES = ("/api/ws", "/api/hub")
UNKNOWN = ("/", "/nothing", "/v1", "/v1/nothing", "/.env", "/favicon.ico", "//evil.test/v1/down", "/V1/DOWN", "/api")
SEND = {"to": "box", "text": "forged", "from": "sender"}
BODIES: dict[tuple[str, str], Any] = {
    ("POST", "/broadcast"): {"text": "forged"},
    ("POST", "/v1/messages"): SEND,
    ("POST", "/v1/messages/{id}/reply"): {"from": "box", "text": "forged"},
    ("POST", "/v1/ask"): {**SEND, "wait_seconds": 0.1},
    ("PUT", "/v1/agents/{handle}"): {"title": "forged"},
    ("PUT", "/v1/connections/{name}"): {"target": "ws://127.0.0.1:9"},
}
QUERIES = {"/broadcast": "?from=sender&to=box", "/poll": "?agent=box", "/subscribe": "?agent=box", "/v1/search": "?q=x"}

HOSTS = {
    "another": "evil.test",
    "another, our port": "evil.test:{port}",
    "ours before another": "127.0.0.1.evil.test:{port}",
    "ours before another, a name": "localhost.evil.test:{port}",
    "ours behind another": "evil.localhost:{port}",
    "ours as an ending": "notlocalhost:{port}",
    "a dot behind": "localhost.:{port}",
    "a dot behind the number": "127.0.0.1.:{port}",
    "IPv4 in IPv6": "[::ffff:127.0.0.1]:{port}",
    "IPv4 in IPv6, in hex": "[::ffff:7f00:1]:{port}",
    "IPv6 at length": "[0:0:0:0:0:0:0:1]:{port}",
    "IPv6 with a zone": "[::1%25lo]:{port}",
    "IPv6 without brackets": "::1:{port}",
    "a short number": "127.1:{port}",
    "one number": "2130706433:{port}",
    "in hex": "0x7f.0.0.1:{port}",
    "octal": "0177.0.0.1:{port}",
    "every address": "0.0.0.0:{port}",
    "another of loopback": "127.0.0.2:{port}",
    "another port": "localhost:1",
    "a longer port": "localhost:{port}0",
    "a padded port": "localhost:0{port}",
    "no port behind the colon": "localhost:",
    "somebody at ours": "user@localhost:{port}",
    "somebody with a word at ours": "user:word@127.0.0.1:{port}",
    "ours at another": "localhost:{port}@evil.test",
    "a path": "localhost:{port}/",
    "a URL": "http://localhost:{port}",
    "two in one, a comma": "localhost:{port}, evil.test",
    "two in one, a space": "localhost:{port} evil.test",
    "letters that look like it": "l\u043ecalhost:{port}",
    "letters that fold to it": "loc\uff41lhost:{port}",
    "empty": "",
}
ORIGINS = {
    "another": "https://evil.test",
    "another, our port": "http://evil.test:{port}",
    "ours before another": "http://localhost.evil.test:{port}",
    "ours with another behind the port": "http://localhost:{port}.evil.test",
    "ours as somebody at another": "http://localhost:{port}@evil.test",
    "somebody at ours": "http://evil@localhost:{port}",
    "ours behind a #": "http://evil.test#http://localhost:{port}",
    "a slash behind": "http://127.0.0.1:{port}/",
    "a query behind": "http://127.0.0.1:{port}?x",
    "a fragment behind": "http://127.0.0.1:{port}#x",
    "a dot behind": "http://localhost.:{port}",
    "a tab within": "http://127.0.0.1\t:{port}",
    "IPv4 in IPv6": "http://[::ffff:127.0.0.1]:{port}",
    "another port": "http://127.0.0.1:1",
    "the port of http": "http://localhost",
    "the port of http, the number": "http://127.0.0.1",
    "the port of https": "https://localhost",
    "another scheme": "https://127.0.0.1:{port}",
    "another scheme, a name": "https://localhost:{port}",
    "the scheme in capitals": "HTTP://127.0.0.1:{port}",
    "a name in capitals": "http://LOCALHOST:{port}",
    "all in capitals": "HTTP://LOCALHOST:{port}",
    "null": "null",
    "null in capitals": "NULL",
    "no scheme": "127.0.0.1:{port}",
    "no scheme, slashes": "//127.0.0.1:{port}",
    "empty": "",
    "two in one": "http://127.0.0.1:{port} https://evil.test",
}
PROGRAMS = {  # none is a site: a WebSocket with a valid token is let in from there, and nothing else is
    "a file": "file://",
    "an application": "app://hermes",
    "an extension": "chrome-extension://aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "a WebSocket's scheme": "ws://127.0.0.1:{port}",
    "ftp": "ftp://127.0.0.1:{port}",
}
SITES = ("cross-site", "same-site", "Cross-Site", "", "same-origin, none", "none none")
OWN_HOSTS = ("127.0.0.1", "localhost:{port}", "LOCALHOST:{port}", "LocalHost", "[::1]:{port}", "[::1]")
OWN_ORIGINS = ("http://127.0.0.1:{port}", "http://localhost:{port}", "http://[::1]:{port}")

Lines = list[tuple[str, str]]
OWN: Lines = [("Host", "127.0.0.1:{port}")]


class Gates:
    """A hub with somebody's mail in it, and every request that there is to it."""

    def __init__(self, at: Hub) -> None:
        self.at = at
        self.token = (at.folder / "admin.token").read_text().strip()
        at.claim("box")
        at.send("box", "one", "sender")
        self.waits = str(at.send("box", "two", "sender")["id"])
        [taken] = at.claim("box", lease_seconds=600)
        self.lease = str(taken["lease"]["token"])

    def requests(self) -> Iterator[tuple[str, str, bytes]]:
        """Every method and path, and a body that means something there."""
        places = {"handle": "box", "id": self.waits, "token": self.lease, "name": "far"}
        paths = dict.fromkeys(route.path for route in ROUTES)
        for route in ROUTES:
            body = BODIES.get((route.method, route.path), {} if route.method in ("POST", "PUT") else None)
            content = b"" if body is None else json.dumps(body).encode()
            yield route.method, route.path.format(**places) + QUERIES.get(route.path, ""), content
        for path in [*paths, "/openapi.json", *UNKNOWN]:
            yield "OPTIONS", path.format(**places), b""
        for path in ("/openapi.json", *UNKNOWN):
            yield "GET", path, b""
        yield "POST", "/v1/down?x=1", b"{}"

    def head(self, method: str, target: str, lines: Lines, body: bytes = b"", *, token: bool = True) -> bytes:
        given = [f"{name}: {value.format(port=self.at.port)}" for name, value in lines]
        if token:
            given.append(f"Authorization: Bearer {self.token}")
        if body:
            given += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return "\r\n".join([f"{method} {target} HTTP/1.1", *given, "", ""]).encode() + body

    def answers(self, lines: Lines) -> Iterator[tuple[str, Answer]]:
        """What each of them is answered with under these headers, over as few connections as the hub allows."""
        sock = self.at.raw()
        try:
            for method, path, body in self.requests():
                sock.sendall(self.head(method, path, lines, body))
                answer = read(sock)
                yield f"{method} {path}", answer
                if answer.headers.get("connection") == "close":
                    sock.close()
                    sock = self.at.raw()
        finally:
            sock.close()

    def upgrade(self, path: str, lines: Lines, *, token: bool) -> Answer:
        asked = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")]
        given = [*lines, *asked, ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==")]
        with self.at.raw() as sock:
            sock.sendall(self.head("GET", path, given, token=token))
            return read(sock)

    def state(self) -> object:
        """All that a request could have changed."""
        agents = [
            {key: agent[key] for key in ("handle", "title", "keyed", "presence", "queued")}
            for agent in self.at.get("/v1/agents", admin=True).json["agents"]
        ]
        status = self.at.get("/status", admin=True).json
        inbox = self.at.get("/v1/agents/box/inbox?state=queued,leased,delivered,failed,dead", admin=True).json
        return (
            agents,
            status["queues"],
            status["pid"],
            status["dead"],
            [(row["state"], row["attempt"], row["seq"]) for row in inbox["deliveries"]],
            self.at.get("/v1/connections", admin=True).json,
            sorted(path.name for path in self.at.folder.rglob("*") if path.suffix not in (".db-wal", ".log")),
        )


def read(sock: socket.socket) -> Answer:
    """One answer; 101 and no more, where that is it."""
    incoming, body = Incoming(), b""
    while not incoming.complete:
        piece = sock.recv(65536)
        if piece.startswith(b"HTTP/1.1 101 "):
            return Answer(101, {}, b"")
        if not piece:
            assert incoming.end(), f"cut off after {body[:200]!r}"
            break
        body += incoming.feed(piece)
    return Answer(incoming.status, incoming.headers, body)


@pytest.fixture(scope="module")
def gates() -> Iterator[Gates]:
    with hub() as at:
        found = Gates(at)
        before = found.state()
        yield found
        assert found.state() == before  # of all that was tried in this file


def refused(gates: Gates, lines: Lines, *, by: tuple[tuple[int, str], ...], token: bool = True) -> None:
    """Every path refuses these headers, and tells a page nothing."""
    count = 0
    for asked, answer in gates.answers(lines):
        count += 1
        assert (answer.status, answer.code) in by, asked
        assert not [name for name in answer.headers if name.startswith("access-control")], asked
    assert count > 2 * len(ROUTES)
    for path in UPGRADES:
        for with_token in {token, False}:
            answer = gates.upgrade(path, lines, token=with_token)
            # That it is no WebSocket at all is found before the gate.
            assert (answer.status, answer.code) in (*by, NO_REQUEST), (path, with_token)


WRONG_HOST, FOREIGN, NO_REQUEST = (421, "wrong_host"), (403, "foreign_origin"), (400, "bad_request")


@pytest.mark.parametrize("form", HOSTS)
def test_no_path_answers_for_another_host(gates: Gates, form: str) -> None:
    refused(gates, [("Host", HOSTS[form])], by=(WRONG_HOST,))


@pytest.mark.parametrize(
    "hosts",
    [[], ["127.0.0.1", "127.0.0.1"], ["127.0.0.1:{port}", "evil.test"], ["evil.test", "127.0.0.1:{port}"]],
    ids=len,
)
def test_a_host_is_said_once(gates: Gates, hosts: list[str]) -> None:
    refused(gates, [("Host", host) for host in hosts], by=(WRONG_HOST, NO_REQUEST))


def test_a_host_is_on_one_line(gates: Gates) -> None:
    for lines in ([("Host", "evil.test\r\n 127.0.0.1")], [("Host ", "127.0.0.1")], [("X-Forwarded-Host", "127.0.0.1")]):
        refused(gates, lines, by=(WRONG_HOST, NO_REQUEST))


@pytest.mark.parametrize("where", ["http://evil.test", "http://u@localhost:{port}", "https://127.0.0.1:{port}", "x:"])
def test_a_whole_url_for_a_path_is_no_request(gates: Gates, where: str) -> None:
    """Whose Host would count: the one in it, or the header's? A client of a proxy, and a trick, ask so; nobody else."""
    for method, path, body in gates.requests():
        target = where.format(port=gates.at.port) + path
        answer = gates.at.talk(gates.head(method, target, OWN, body))
        assert (answer.status, answer.code) == NO_REQUEST, target
    for path in UPGRADES:
        answer = gates.upgrade(where.format(port=gates.at.port) + path, OWN, token=True)
        assert answer.status == 400, path


@pytest.mark.parametrize("form", [*ORIGINS, *PROGRAMS])
def test_no_path_answers_a_page_of_another_origin(gates: Gates, form: str) -> None:
    lines = [*OWN, ("Origin", (ORIGINS | PROGRAMS)[form])]
    refused(gates, lines, by=(FOREIGN,), token=form not in PROGRAMS)


@pytest.mark.parametrize("origins", [["http://127.0.0.1:{port}", "https://evil.test"], ["null", OWN_ORIGINS[0]]])
def test_an_origin_is_said_once(gates: Gates, origins: list[str]) -> None:
    refused(gates, [*OWN, *(("Origin", origin) for origin in origins)], by=(FOREIGN,))


@pytest.mark.parametrize("site", SITES)
def test_no_path_answers_what_a_browser_says_comes_from_another_site(gates: Gates, site: str) -> None:
    refused(gates, [*OWN, ("Sec-Fetch-Site", site)], by=(FOREIGN,))
    refused(gates, [*OWN, ("Origin", OWN_ORIGINS[0]), ("Sec-Fetch-Site", site)], by=(FOREIGN,))
    refused(gates, [*OWN, ("Sec-Fetch-Site", "same-origin"), ("Sec-Fetch-Site", site)], by=(FOREIGN,))


@pytest.mark.parametrize("form", PROGRAMS)
def test_an_application_of_its_own_opens_a_websocket_with_a_token_alone(gates: Gates, form: str) -> None:
    lines = [*OWN, ("Origin", PROGRAMS[form])]
    for path in UPGRADES:
        assert gates.upgrade(path, lines, token=True).status == 101
        assert gates.upgrade(path, [("Host", "evil.test"), lines[1]], token=True).status == 421


def test_the_same_requests_under_our_own_names_are_let_in_and_do_what_they_say() -> None:
    lines = [*OWN, ("Origin", OWN_ORIGINS[0]), ("Sec-Fetch-Site", "same-origin")]
    found: dict[str, int] = {}
    with hub() as at:  # one of its own, since much of it does something
        gates = Gates(at)
        for method, path, body in gates.requests():
            if path.startswith(("/v1/down", "/subscribe", "/v1/events")) or path.endswith("/stream"):
                continue  # ends the hub, or does not end
            answer = at.talk(gates.head(method, path, lines, body))
            assert answer.status != 421, (method, path, answer)
            assert b'"code":"foreign_origin"' not in answer.body, (method, path, answer)
            found[f"{method} {path}"] = answer.status
        for path in UPGRADES:
            assert gates.upgrade(path, lines, token=True).status == 101
        assert at.talk(gates.head("POST", "/v1/down", lines, b"{}")).status == 202
    does = {
        "POST /v1/messages": 201, "POST /broadcast?from=sender&to=box": 200, "PUT /v1/agents/box": 200,
        "POST /v1/agents/box/token": 201, "DELETE /v1/agents/box": 200, "POST /v1/backups": 201,
        "PUT /v1/connections/far": 200,
    }  # fmt: skip
    assert {asked: found[asked] for asked in does} == does
    assert {status for asked, status in found.items() if asked.startswith("OPTIONS")} == {404, 405}


@pytest.mark.parametrize("host", OWN_HOSTS)
@pytest.mark.parametrize("origin", OWN_ORIGINS)
def test_every_spelling_of_our_own_names_is_let_in(gates: Gates, host: str, origin: str) -> None:
    lines = [("Host", host), ("Origin", origin), ("Sec-Fetch-Site", "same-origin")]
    assert gates.at.talk(gates.head("GET", "/status", lines)).status == 200
    assert gates.upgrade("/api/ws", lines, token=False).status == 101


def test_a_name_that_the_settings_add_is_one_of_ours_and_no_other() -> None:
    with hub(env={"ANGELIA_ALLOWED_HOSTS": "bus.example"}) as at:
        gates = Gates(at)
        for origin in ("https://bus.example", "http://bus.example:{port}"):
            lines = [("Host", "Bus.Example"), ("Origin", origin)]
            assert at.talk(gates.head("GET", "/status", lines)).status == 200
        for host, origin, status in (
            ("bus.example.evil.test", "https://bus.example", 421),
            ("bus.example.", "https://bus.example", 421),
            ("bus.example", "https://bus.example.evil.test", 403),
            ("bus.example", "https://sub.bus.example", 403),
            ("bus.example", "http://localhost", 403),
            ("bus.example", "HTTPS://BUS.EXAMPLE", 403),
            ("bus.example", "https://localhost:{port}", 403),
        ):
            answer = at.talk(gates.head("GET", "/status", [("Host", host), ("Origin", origin)]))
            assert answer.status == status, (host, origin)
