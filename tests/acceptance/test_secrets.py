"""Every secret that a full run makes, looked for in everything that the run says.

Joins, rotations, turns, webhooks, links, pairing, desktops, secrets out of files and out of the hub's environment,
wrong tokens, tokens in the wrong place; then the output and the log of the hubs, the note about them, what every
command printed, every answer, every page, the events, the command lines of all processes and the environment of each
child. A token stands in the one answer that makes it, and in its own file.
"""

import asyncio
import base64
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw
import pytest

from tests.acceptance.hub import Hub, Stream, environment, eventually
from tests.acceptance.linked import connect, hubs, wait_knows
from tests.links.stand_ins.server import hermes, served
from tests.rigs.gateway import desktop
from tests.turns.endpoint import endpoint
from tests.turns.stand_ins import openclaw_server

SECONDS = 30.0
HOOK = "whsec_" + base64.b64encode(bytes(range(64, 96))).decode()
LOOK_SECONDS = 0.01
CHILD = """
import os, sys
sys.stdin.read()
print(" ".join(f"{name}={value}" for name, value in sorted(os.environ.items())))
"""
# Secrets that the hub finds in its environment, by the variables that it finds them in.
VARIABLES = {
    "BOX_TOKEN": "bxt_" + os.urandom(16).hex(),
    "BOX_PASSWORD": "bxp_" + os.urandom(16).hex(),
    "HOOK_KEY": "whsec_" + base64.b64encode(os.urandom(32)).decode(),
    "ANGELIA_TOKEN": "of-whoever-started-the-hub-" + os.urandom(8).hex(),
}
# What its programs need of it.
NEEDED = {"SSH_AUTH_SOCK": "/run/agent.sock", "DOCKER_HOST": "unix:///run/box.sock", "PROVIDER_API_KEY": "theirs-2026"}
OF_A_TURN = {
    f"ANGELIA_{name}"
    for name in (
        "AGENT",
        "URL",
        "TOKEN",
        "FROM",
        "VERIFIED",
        "ID",
        "THREAD",
        "INTENT",
        "KIND",
        "ATTEMPT",
        "CONVERSATION",
    )
}
ITS_ENVIRONMENT = "the environment of"
PROGRAMS = ("carrier", "ssh", "coder")  # of a link, of a tunnel, and one that is asked for its version
SAYS_ITS_ENVIRONMENT = '#!/bin/sh\nenv > "$0.environment"\nexit 1\n'


class Watch:
    """The command lines of all processes, as anybody on the machine sees them, while it runs."""

    def __init__(self) -> None:
        self.lines: set[str] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    self.lines.add(path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
                except OSError:
                    continue


class Run:
    """What was made in secret, and what was said, by where."""

    def __init__(self) -> None:
        self.secrets: dict[str, bytes] = {}
        self.said: dict[str, str] = {}

    def secret(self, name: str, value: str | bytes) -> str:
        data = value.encode() if isinstance(value, str) else value
        assert len(data) >= 12, name
        self.secrets[name] = data
        return value if isinstance(value, str) else value.hex()

    def say(self, where: str, what: object) -> None:
        self.said[where] = self.said.get(where, "") + "\n" + (what if isinstance(what, str) else repr(what))

    def command(self, at: Hub, *words: str, **env: str) -> str:
        done = at.run(*words, **env)
        self.say(f"angelia {' '.join(words)}", done.stdout + done.stderr)
        return done.stdout

    def found(self, said: Mapping[str, str]) -> list[tuple[str, str]]:
        """Which secret stands where, in any of the forms that it might have."""
        hits = []
        for name, secret in self.secrets.items():
            forms = {secret, secret.hex().encode(), base64.b64encode(secret), base64.urlsafe_b64encode(secret)}
            forms |= {form.rstrip(b"=") for form in forms} | {quote(secret).encode(), quote(secret, safe="").encode()}
            if name == "the code":
                forms |= {secret.replace(b"-", b""), secret.lower()}
            for where, what in said.items():
                if any(form.decode("latin-1") in what for form in forms):
                    hits.append((name, where))
        return hits


def key(run: Run, at: Hub, name: str, token: str | None = None) -> str:
    made = at.call("POST", f"/v1/agents/{name}/token", {}, admin=token is None, token=token).json
    return run.secret(f"a token of {name} ({made['id']})", str(made["token"]))


def wrong_places(run: Run, at: Hub, token: str, caller: str) -> None:
    """What somebody might do with a token by mistake, and what the hub says to it: without saying it again."""
    for path in (
        f"/status?token={token}", f"/v1/agents/{token}", f"/v1/agents/{token}/inbox", f"/v1/agents/{token}/claim",
        f"/v1/agents/{token}/token", f"/v1/agents/ann/token/{token}", f"/v1/leases/{token}/ack", f"/poll?agent={token}",
        f"/broadcast?from={token}&to=ann", f"/broadcast?from=ann2&to={token}", f"/broadcast?to=ann&kind={token}",
        f"/v1/messages/{token}", f"/v1/messages/{token}/cancel", f"/nothing/{token}", f"/v1/agents?token={token}",
        f"/subscribe?agent={token}", f"/v1/connections/{token}", f"/v1/threads/{token}", f"/v1/turns?agent={token}",
        f"/api/ws?token={token}", f"/v1/search?q=x&agent={token}", f"/v1/agents/_{token}", f"/poll?agent=x {token}",
    ):  # fmt: skip
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            for how in ({"token": caller}, {"admin": True}, {}):
                answer = at.call(method, quote(path, safe="/?=&"), None if method == "GET" else {}, **how)
                run.say(f"{method} {path.replace(token, 'TOKEN')}", answer.body.decode() + repr(answer.headers))
    for body in (
        {"to": token, "from": "ann2", "text": "hi"}, {"to": "ann", "from": token, "text": "hi"},
        {"to": f"{token}@two", "from": "ann2", "text": "hi"}, {"to": f"#{token}", "from": "ann2", "text": "hi"},
        {"to": "ann", "from": "ann2", "text": "hi", "in_reply_to": token}, {"to": "ann", token: 1},
        {"to": "ann", "from": "ann2", "text": "hi", "intent": token}, {"to": "ann", "from": "ann2", "lane": token},
        {"to": [token], "from": "ann2", "text": "hi"}, {"messages": [{"to": token, "from": "ann2", "text": "hi"}]},
        {"agent": token, "text": "hi"}, {"target": "ws://127.0.0.1:1", "share": [token]}, {"target": f"exec:{token}"},
    ):  # fmt: skip
        for path in ("/v1/messages", "/v1/ask", "/v1/agents/ann/claim", "/v1/agents/ann2"):
            for how in ({"token": caller}, {"admin": True}, {}):
                answer = at.post(path, body, **how)
                run.say(f"POST {path} {json.dumps(body)}".replace(token, "TOKEN"), answer.body.decode())
    for shown in (f"Basic {token}", f"Bearer  {token} x", token, f"bearer\t{token}"):
        run.say("a header with a token", at.get("/status", headers={"Authorization": shown}).body.decode())
    run.say("a wrong token", at.get("/status", token=token[:-1] + "x").body.decode())


def pages(run: Run, at: Hub, token: str) -> None:
    for path in (
        "/status", "/health", "/openapi.json", "/v1/agents", "/v1/connections", "/v1/dead-letters", "/v1/turns",
        "/v1/threads", "/v1/search?q=x", "/api/status", "/v1/agents/worker", "/v1/agents/worker/check",
        "/v1/agents/worker/briefing", "/v1/agents/hook/check", "/v1/agents/ann/inbox",
    ):  # fmt: skip
        for how in ({"admin": True}, {"token": token}, {}):
            answer = at.get(path, **how)
            run.say(path, answer.body.decode() + repr(answer.headers))
    with Stream(at, "/v1/events?last=2000", admin=True) as events:
        run.say("/v1/events", repr(events.quiet(1.0)))
    run.say("hub.json", "".join(p.read_text() for p in at.folder.glob("hub.*") if p.is_file()))
    run.say("the log and the output", at.output())
    run.say("the names of files", " ".join(str(path) for path in at.folder.rglob("*")))


async def mistaken(run: Run, at: Hub, token: str, caller: str) -> None:
    """The same at the gateway."""
    said: dict[str, Any] = {"title": "x", "message": "hi", "text": "hi", "agents": []}
    async with desktop(at.port, query=f"?token={caller}") as peer:
        for method, name in (
            ("session.open", "profile"), ("bot_relay.deliver", "profile"), ("prompt.submit", "session_id"),
            ("bot_relay.reply", "id"), ("bot_relay.roster.sync", "name"), ("nothing", token), (token, "x"),
        ):  # fmt: skip
            params = {**said, name: token}
            answer = await peer.call(method, **params)
            run.say(f"the gateway to {method} with {name}".replace(token, "TOKEN"), repr(answer))


async def by_file(run: Run, at: Hub, folder: Path) -> None:
    """A secret that stands in a file: of an agent that is reached with it, refused with it, and looked at meanwhile."""
    token = run.secret("the token in a file", f"oct_{os.urandom(16).hex()}")
    file = folder / "claw.token"
    file.touch(0o600)
    file.write_text(token)

    async def looked(what: str) -> None:
        sent = await asyncio.to_thread(at.send, "claw", what, "asker", intent="request")
        await asyncio.to_thread(eventually, lambda: at.state(sent["id"]) in ("answered", "failed"), SECONDS)
        for path in ("/v1/agents/claw", "/v1/agents/claw/check", "/v1/turns", f"/v1/messages/{sent['id']}"):
            answer = await asyncio.to_thread(at.get, path, admin=True)
            run.say(f"{path} {what}", answer.body.decode())

    async with openclaw_server.serving() as server:
        server.token = token
        spec = {"kind": "openclaw", "home": str(folder), "url": server.url, "token_file": str(file)}
        put = await asyncio.to_thread(at.call, "PUT", "/v1/agents/claw", {"adapter": spec}, admin=True)
        run.say("/v1/agents/claw", put.body.decode())
        await looked("with the right one")
        assert len(server.begun) == 1
        server.token = "another"
        await looked("with the wrong one")
        file.chmod(0o644)
        await looked("with one that others can read")
        put = await asyncio.to_thread(at.call, "PUT", "/v1/agents/claw", {"adapter": spec}, admin=True)
        assert (put.status, len(server.begun)) == (400, 1)
        run.say("/v1/agents/claw", put.body.decode())


async def desktops(run: Run, at: Hub) -> str:
    """A desktop with a token of its own. Out: that token."""
    made = [await asyncio.to_thread(at.run, "desktop", "mac") for _ in range(2)]  # the second one rotates
    old, token = (run.secret(f"a desktop's token {number}", each.stdout.strip()) for number, each in enumerate(made))
    run.say("angelia desktop mac", made[0].stderr + made[1].stderr)
    assert old != token
    async with desktop(at.port, query=f"?token={token}") as peer:
        agents = [{"profile": "ops", "connection_id": "vps-1", "title": "Ops"}]
        run.say("the gateway to a desktop", repr(await peer.call("bot_relay.roster.sync", agents=agents)))
        run.say("the gateway to a desktop", repr(await peer.call("session.open", profile="ops", title="x")))
        sent = await asyncio.to_thread(at.send, "ops@vps-1", "hi", "asker", intent="request")
        await peer.event("bot_relay.outbox.pending")
        run.say("the gateway to a desktop", repr(await peer.drain()))
        run.say("the gateway to a desktop", repr(await peer.call("bot_relay.reply", id=sent["id"], reply="yes")))
    return token


async def by_variable(run: Run, at: Hub, tools: Path) -> None:
    """Secrets that stand in the hub's environment, made known while it runs; and each program that it then starts."""
    for name in PROGRAMS:
        (tools / name).write_text(SAYS_ITS_ENVIRONMENT)
        (tools / name).chmod(0o700)
    hook = {"kind": "webhook", "url": "https://example.invalid/", "secret_env": "HOOK_KEY"}
    coder = {"kind": "claude_code", "program": str(tools / "coder")}

    def put(path: str, body: object) -> None:
        answer = at.call("PUT", path, body, admin=True)
        run.say(path, answer.body.decode())
        assert answer.status in (200, 201), answer.body

    await asyncio.to_thread(put, "/v1/agents/envhook", {"adapter": hook})
    await asyncio.to_thread(put, "/v1/agents/coder", {"adapter": coder})
    async with served(hermes(token=VARIABLES["BOX_TOKEN"])) as box:
        there = {"target": f"ws://127.0.0.1:{box.port}", "token_variable": "BOX_TOKEN"}
        await asyncio.to_thread(put, "/v1/connections/box", there)
        used = [asked.query.get("token") for asked in box.asked if asked.path == "/api/ws"]
        assert used[0] == [VARIABLES["BOX_TOKEN"]]
        far = {"target": "ssh://ada@127.0.0.1:1?forward=9119", "user": "ada", "password_variable": "BOX_PASSWORD"}
        await asyncio.to_thread(put, "/v1/connections/far", far)
        await asyncio.to_thread(put, "/v1/connections/pipe", {"target": f"exec:{tools / 'carrier'}"})
    looked = await asyncio.to_thread(at.get, "/v1/agents/coder/check", admin=True)
    run.say("/v1/agents/coder/check", looked.body.decode())
    for name in PROGRAMS:
        run.say(f"{ITS_ENVIRONMENT} {name}", (tools / f"{name}.environment").read_text())


async def a_full_run(run: Run, one: Hub, two: Hub, tools: Path) -> None:
    for name, value in VARIABLES.items():
        run.secret(f"the variable {name}", value)
    for at in (one, two):
        for name in ("admin.token", "link.key"):
            run.secret(f"{name} of {at.port}", (at.folder / name).read_text().strip())
    program = one.base / "child.py"
    program.write_text(CHILD)
    run.command(one, "join", "worker", "--command", f"{sys.executable} {program}")
    run.command(one, "join", "ann")
    run.command(one, "join", "ann")  # rotates
    for name in ("worker", "ann"):
        run.secret(f"the token of {name}", (one.folder / "tokens" / name).read_text().strip())
    ann = key(run, one, "ann")
    ann = key(run, one, "ann", ann)
    bob = key(run, one, "bob")
    async with endpoint() as there:
        there.answer(200, "text/plain", b"heard")
        spec = {"kind": "webhook", "url": there.url(), "secret": run.secret("a webhook's", HOOK), "allow_private": True}
        await asyncio.to_thread(one.call, "PUT", "/v1/agents/hook", {"adapter": spec}, admin=True)
        sent = await asyncio.to_thread(one.send, "hook", "hi", "asker", intent="request")
        await asyncio.to_thread(eventually, lambda: one.receipt(sent["id"]).get("reply"), SECONDS)
        run.say("what the endpoint got", repr((there.requests, there.bodies, there.headers)))
    await by_variable(run, one, tools)
    await by_file(run, one, tools)
    mac = await desktops(run, one)
    await asyncio.to_thread(commands, run, one)
    async with desktop(one.port, query=f"?token={ann}") as peer:
        run.say("the gateway", repr(await peer.call("profiles.list")))
        run.say("the gateway", repr(await peer.call("session.open", profile="bob", title="x")))
    await asyncio.to_thread(links, run, one, two)
    owner = (one.folder / "admin.token").read_text().strip()
    for token, caller in ((bob, bob), (owner, mac)):
        await asyncio.to_thread(wrong_places, run, one, token, caller)
        await mistaken(run, one, token, caller)
    for at in (one, two):
        await asyncio.to_thread(pages, run, at, ann if at is one else "")


def commands(run: Run, one: Hub) -> None:
    child = run.command(one, "ask", "worker", "what do you have?")
    assert "ANGELIA_AGENT=worker" in child
    own = (one.folder / "tokens" / "worker").read_text().strip()
    assert child.count(own) <= 1
    # its own token is a child's to have, and is nobody else's
    run.said["angelia ask worker what do you have?"] = child.replace(own, "MY OWN TOKEN")
    for words in (("status",), ("agents",), ("inbox", "ann"), ("doctor",), ("connections",), ("send", "ann", "hi")):
        run.command(one, *words)
    run.command(one, "inbox", "--as", "ann", ANGELIA_TOKEN="x" * 43)
    typed = "aVery1Kn0wnToken-of_43_signs-LikeOthers8888"  # not one that is secret: whoever types it shows it himself
    for mistake in (f"send {typed} hi", f"inbox {typed}", f"join {typed}", f"leave _{typed}", f"send a b {typed}"):
        done = one.run(*mistake.split())
        assert done.returncode
        assert typed not in done.stdout + done.stderr, mistake


def links(run: Run, one: Hub, two: Hub) -> None:
    code = run.secret("the code", str(two.post("/v1/pairing", {}, admin=True).json["code"]))
    wrong = one.call(
        "PUT", "/v1/connections/two", {"target": f"ws://127.0.0.1:{two.port}", "code": "A" * 12}, admin=True
    )
    run.say("a wrong code", wrong.body.decode())
    connect(one, "two", f"ws://127.0.0.1:{two.port}", code=code)
    two.claim("far")
    wait_knows(one, "far")
    one.send("far@two", "hello", "ann2")
    eventually(lambda: two.claim("far"), SECONDS)
    run.command(one, "disconnect", "nobody")
    for at in (one, two):
        with closing(apsw.Connection(f"{at.folder}/angelia.db", flags=apsw.SQLITE_OPEN_READONLY)) as store:
            for table, column in secret_columns(store):
                for (value,) in store.execute(f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL"):
                    if isinstance(value, bytes) and len(value) >= 16:
                        run.secret(f"{table}.{column} {value[:2].hex()} of {at.port}", value)
            for name, value in store.execute("SELECT name, value FROM note WHERE name LIKE 'connection:%'"):
                kept = json.loads(value)
                if isinstance(kept, dict) and kept.get("key"):
                    run.secret(f"the key of the link {name}", base64.b64decode(kept["key"]))


def secret_columns(store: apsw.Connection) -> Iterator[tuple[str, str]]:
    """Where the store keeps keys."""
    for (table,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        for row in store.execute(f"PRAGMA table_info({table})").fetchall():
            if row[1] in ("key", "secret", "digest") and table in ("connection", "hub", "token", "meta"):
                yield str(table), str(row[1])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Watch]:
    run, tools = Run(), tmp_path_factory.mktemp("tools")
    path = os.pathsep.join([str(tools), environment(tools)["PATH"]])
    with (
        Watch() as watch,
        hubs("one", "two", ANGELIA_LOG_LEVEL="debug", PATH=path, **VARIABLES, **NEEDED) as (one, two),
    ):
        asyncio.run(a_full_run(run, one, two, tools))
        one.stop(), two.stop()
        run.say("the last words", one.output() + two.output())
        time.sleep(2 * LOOK_SECONDS)
    return run, watch


def test_the_run_made_secrets_and_said_much(whole: tuple[Run, Watch]) -> None:
    run, watch = whole
    assert len(run.secrets) >= 16, sorted(run.secrets)
    assert sum(name.startswith("the key of the link") for name in run.secrets) == 2
    assert len(run.said) >= 30
    assert sum(map(len, run.said.values())) > 50_000
    assert any("angelia up" in line for line in watch.lines)
    assert any("child.py" in line for line in watch.lines)


def test_no_secret_is_in_anything_that_was_said(whole: tuple[Run, Watch]) -> None:
    run, _ = whole
    hits = run.found(run.said)
    assert hits == [], hits


def test_no_secret_is_on_a_command_line(whole: tuple[Run, Watch]) -> None:
    run, watch = whole
    assert run.found({"a command line": "\n".join(watch.lines)}) == []


def test_a_child_has_its_own_token_and_no_other_secret(whole: tuple[Run, Watch]) -> None:
    run, _ = whole
    said = run.said["angelia ask worker what do you have?"]
    assert {word.partition("=")[0] for word in said.split() if word.startswith("ANGELIA_")} == OF_A_TURN
    assert said.count("MY OWN TOKEN") == 1
    assert "ANGELIA_TOKEN=MY OWN TOKEN" in said


@pytest.mark.parametrize("program", ["the turn", *PROGRAMS])
def test_no_program_gets_a_variable_that_holds_a_secret_and_each_gets_the_rest(
    program: str, whole: tuple[Run, Watch]
) -> None:
    run, _ = whole
    where = "angelia ask worker what do you have?" if program == "the turn" else f"{ITS_ENVIRONMENT} {program}"
    said = run.said[where].split()
    names = {word.partition("=")[0] for word in said}
    assert not names & (VARIABLES.keys() - OF_A_TURN)
    assert program == "the turn" or not any(name.startswith("ANGELIA_") for name in names)
    assert {f"{name}={value}" for name, value in NEEDED.items()} <= set(said)
    assert "PATH" in names
    assert run.found({where: run.said[where]}) == []


def test_a_token_in_the_place_of_a_name_is_told_as_that(whole: tuple[Run, Watch]) -> None:
    run, _ = whole
    for where in ("GET /v1/agents/TOKEN/inbox", "GET /poll?agent=TOKEN", "POST /v1/agents/TOKEN/claim"):
        assert "looks like a token" in run.said[where], run.said[where]
