"""Every secret that a full run makes, looked for in everything that the run says.

Joins, rotations, turns, webhooks, links, pairing, wrong tokens, tokens in the wrong place; then the output and the log
of the hubs, the note about them, what every command printed, every answer, every page, the events, the command lines of
all processes and the environment of each child. A token stands in the one answer that makes it, and in its own file.
"""

import asyncio
import base64
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import apsw
import pytest

from tests.acceptance.hub import Hub, Stream, eventually
from tests.acceptance.linked import connect, hubs, wait_knows
from tests.rigs.gateway import desktop
from tests.turns.endpoint import endpoint

SECONDS = 30.0
HOOK = "whsec_" + base64.b64encode(bytes(range(64, 96))).decode()
LOOK_SECONDS = 0.01
CHILD = """
import os, sys
sys.stdin.read()
print(" ".join(f"{name}={value}" for name, value in sorted(os.environ.items())))
"""


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

    def found(self) -> list[tuple[str, str]]:
        """Which secret stands where, in any of the forms that it might have."""
        hits = []
        for name, secret in self.secrets.items():
            forms = {secret, secret.hex().encode(), base64.b64encode(secret), base64.urlsafe_b64encode(secret)}
            forms |= {form.rstrip(b"=") for form in forms} | {quote(secret).encode()}
            if name == "the code":
                forms |= {secret.replace(b"-", b""), secret.lower()}
            for where, what in self.said.items():
                if any(form.decode("latin-1") in what for form in forms):
                    hits.append((name, where))
        return hits


def key(run: Run, at: Hub, name: str, token: str | None = None) -> str:
    made = at.call("POST", f"/v1/agents/{name}/token", {}, admin=token is None, token=token).json
    return run.secret(f"a token of {name} ({made['id']})", str(made["token"]))


def wrong_places(run: Run, at: Hub, token: str) -> None:
    """What somebody might do with a token by mistake, and what the hub says to it."""
    for path in (
        f"/status?token={token}", f"/v1/agents/{token}", f"/v1/leases/{token}/ack", f"/v1/messages/{token}",
        f"/nothing/{token}", f"/v1/agents?token={token}", f"/poll?agent={token}", f"/api/ws?token={token}",
    ):  # fmt: skip
        for method in ("GET", "POST", "PATCH"):
            answer = at.call(method, path, token="x" * 43 if "leases" in path else token)
            said = answer.body.decode().replace(token, "YOUR WORD")  # an answer may say what its caller said
            run.say(f"{method} of a path with a token", said)
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


async def a_full_run(run: Run, one: Hub, two: Hub) -> None:
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
    await asyncio.to_thread(commands, run, one)
    async with desktop(one.port, query=f"?token={ann}") as peer:
        run.say("the gateway", repr(await peer.call("profiles.list")))
        run.say("the gateway", repr(await peer.call("session.open", profile="bob", title="x")))
    await asyncio.to_thread(links, run, one, two)
    await asyncio.to_thread(wrong_places, run, one, bob)
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
            for name, value in store.execute("SELECT name, value FROM note"):
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
def whole() -> tuple[Run, Watch]:
    run = Run()
    with Watch() as watch, hubs("one", "two", ANGELIA_LOG_LEVEL="debug") as (one, two):
        asyncio.run(a_full_run(run, one, two))
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
    assert run.found() == []


def test_no_secret_is_on_a_command_line(whole: tuple[Run, Watch]) -> None:
    run, watch = whole
    lines = "\n".join(watch.lines)
    assert [name for name, secret in run.secrets.items() if secret.decode("latin-1") in lines] == []


def test_a_child_has_its_own_token_and_no_other_secret(whole: tuple[Run, Watch]) -> None:
    run, _ = whole
    said = run.said["angelia ask worker what do you have?"]
    ours = {word.partition("=")[0] for word in said.split() if word.startswith("ANGELIA_")}
    assert (
        ours == {"ANGELIA_AGENT", "ANGELIA_HUB_URL", "ANGELIA_TOKEN", "ANGELIA_MESSAGE_ID"} or "ANGELIA_TOKEN" in ours
    )
    assert said.count("MY OWN TOKEN") == 1
