"""Pages of other sites in a real browser: whatever they try, nothing of the hub changes and nothing of it is read.

The same attempts are made by a page of another origin, by one whose name was rebound to this machine (so that the
browser itself takes the hub for the page's own server), and, to see that they are real, by a page of the hub's own,
which changes much. Without a browser these are skipped, and say so.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.hub import Hub, eventually, hub
from tests.fakes.fake_hub import FakeHub, answer
from tests.rigs import browser as rig
from tests.rigs.browser import Browser, Page

pytestmark = pytest.mark.skipif(rig.found() is None, reason="there is no browser: apt-get install -y chromium")
SECRET = "a-word-that-no-page-may-see"
NAMES = ("evil.test", "rebound.test")

# Every way in which a page reaches out, each with the hub's address `U`; what came of it, as far as the page can tell.
TRIES = """
(async (U, W) => {
  const said = [];
  const soon = (promise) => Promise.race([promise, new Promise((done) => setTimeout(() => done("late"), LATE))]);
  const note = async (name, make) => {
    try { said.push([name, await soon(make())]); } catch (e) { said.push([name, "refused"]); }
  };
  const body = JSON.stringify({to: "box", from: "sender", text: "forged"});
  const read = async (r) => [r.type, r.status, r.type === "opaque" ? "" : await r.text()];
  const GETS = ["/status", "/poll?agent=box", "/v1/agents", "/v1/agents/box/inbox", "/v1/messages/" + ID,
                "/v1/search?q=word", "/v1/threads", "/v1/connections", "/api/status", "/openapi.json", "/health"];
  const POSTS = ["/broadcast?from=hermes&to=box", "/v1/messages", "/v1/agents/box/claim", "/v1/down", "/v1/backups",
                 "/v1/pairing", "/v1/agents/box/token", "/v1/ask", "/v1/messages/" + ID + "/cancel"];
  const tries = [];
  for (const mode of ["no-cors", "cors"]) for (const credentials of ["include", "omit"]) {
    for (const path of GETS)
      tries.push([`get ${mode} ${credentials} ${path}`, () => fetch(U + path, {mode, credentials}).then(read)]);
    for (const path of POSTS) for (const type of ["text/plain", "application/json"])
      tries.push([`post ${mode} ${credentials} ${type} ${path}`, () =>
        fetch(U + path, {method: "POST", mode, credentials, body, headers: {"Content-Type": type}}).then(read)]);
  }
  for (const [method, path] of [["PUT", "/v1/agents/forged"], ["DELETE", "/v1/agents/box"], ["OPTIONS", "/v1/messages"],
                                ["PUT", "/v1/connections/forged"], ["HEAD", "/poll?agent=box"]])
    tries.push([`${method} ${path}`, () => fetch(U + path, {method, body: method === "PUT" ? "{}" : undefined,
      headers: method === "PUT" ? {"Content-Type": "application/json"} : {}}).then(read)]);
  tries.push(["XHR", () => new Promise((done, no) => {
    const x = new XMLHttpRequest(); x.open("GET", U + "/poll?agent=box");
    x.withCredentials = true; x.onload = () => done(x.responseText); x.onerror = no; x.send(); })]);
  const load = (tag, attribute, path, more = {}) => [`${tag} ${path}`, () => new Promise((done, no) => {
    const e = Object.assign(document.createElement(tag), more); e.onload = () => done("loaded"); e.onerror = no;
    e[attribute] = U + path; document.body.append(e); })];
  for (const path of ["/poll?agent=box", "/status", "/subscribe?agent=box"]) {
    tries.push(load("img", "src", path), load("script", "src", path), load("iframe", "src", path));
    tries.push(load("object", "data", path), load("embed", "src", path), load("video", "src", path));
    tries.push(load("script", "src", path, {type: "module"}), load("link", "href", path, {rel: "stylesheet"}));
    tries.push(load("link", "href", path, {rel: "preload", as: "fetch"}));
  }
  const form = (method, enctype, path) => [`form ${enctype} ${path}`, () => new Promise((done) => {
    const frame = document.createElement("iframe"); frame.name = "f" + Math.random(); document.body.append(frame);
    const f = Object.assign(document.createElement("form"), {method, enctype, action: U + path, target: frame.name});
    const field = Object.assign(document.createElement("input"), {name: body.slice(0, -1) + ',"x":"', value: '"}'});
    f.append(field); document.body.append(f); frame.onload = () => setTimeout(() => done("sent"), 50); f.submit(); })];
  for (const enctype of ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain"])
    for (const path of POSTS) tries.push(form("post", enctype, path));
  tries.push(form("get", "", "/poll?agent=box"), form("get", "", "/subscribe?agent=box"));
  for (const type of ["text/plain", "application/x-www-form-urlencoded", "application/json", ""])
    for (const path of POSTS) tries.push([`beacon ${type} ${path}`, async () => {
      navigator.sendBeacon(U + path, new Blob([body], {type})); return "sent"; }]);
  for (const path of ["/subscribe?agent=box", "/v1/agents/box/stream", "/v1/events"])
    for (const withCredentials of [true, false]) tries.push([`events ${path}`, () => new Promise((done, no) => {
      const s = new EventSource(U + path, {withCredentials});
      s.onopen = () => { s.close(); done("opened") };
      s.onerror = () => { if (s.readyState === 2) no() }; s.onmessage = (e) => done(e.data); })]);
  for (const path of ["/api/ws", "/api/hub", "/api/ws?token=guessed"])
    tries.push([`websocket ${path}`, () => new Promise((done, no) => {
      const s = new WebSocket(W + path); s.onopen = () => { s.send("{}"); done("opened") }; s.onerror = no; })]);
  tries.push(["worker", () => new Promise((done, no) => {
    const code = `fetch("${U}/poll?agent=box", {mode: "no-cors"}).finally(() => postMessage("asked"))`;
    const w = new Worker(URL.createObjectURL(new Blob([code])));
    w.onmessage = (e) => done(e.data); w.onerror = no; })]);
  const each = 24;
  for (let at = 0; at < tries.length; at += each)
    await Promise.all(tries.slice(at, at + each).map(([name, make]) => note(name, make)));
  return JSON.stringify(said);
})(%s, %s)
"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    rules = ", ".join(f"MAP {name} 127.0.0.1" for name in NAMES)
    with Browser(f"--host-resolver-rules={rules}") as started:
        yield started


@pytest.fixture
def at() -> Iterator[Hub]:
    with hub() as started:
        started.claim("box")
        yield started


def tried(at: Hub, page: Page, where: str, message: str, late: int = 4000) -> dict[str, Any]:
    """All of them, against the hub as it is called ``where``; ``late``: milliseconds after which one has failed."""
    code = TRIES.replace("ID", json.dumps(message)).replace("LATE", str(late)) % (
        json.dumps(f"http://{where}"),
        json.dumps(f"ws://{where}"),
    )
    return dict(json.loads(page.run(code)))


def state(at: Hub) -> object:
    status = at.get("/status", admin=True).json
    inbox = at.get("/v1/agents/box/inbox?state=queued,leased,delivered,failed,dead", admin=True).json["deliveries"]
    return (
        status["pid"],
        status["queues"],
        status["agents"],
        status["streams"],
        at.get("/v1/connections", admin=True).json,
        [(row["seq"], row["state"], row["attempt"]) for row in inbox],
        sorted(path.name for path in at.folder.iterdir() if path.suffix not in (".db-wal", ".log")),
    )


def is_kept_out(at: Hub, page: Page, where: str) -> dict[str, Any]:
    """Nothing changed, and no word of the hub's came to the page."""
    message = at.send("box", SECRET, "sender")["id"]
    before = state(at)
    found = tried(at, page, where, message)
    assert len(found) > 150, found
    assert "late" not in found.values(), [name for name, what in found.items() if what == "late"]
    eventually(lambda: state(at) == before, what=f"{state(at)} is {before}")
    assert SECRET not in json.dumps(found)
    assert at.get("/v1/agents/box").json["presence"] == "away"
    assert not [name for name, what in found.items() if what == "opened"]
    [taken] = at.claim("box", 10)
    assert (taken["message"]["text"], taken["attempt"]) == (SECRET, 1)
    return found


@pytest.mark.parametrize(
    ("own", "hub_is"), [("127.0.0.1", "127.0.0.1"), ("localhost", "localhost"), ("evil.test", "127.0.0.1")]
)
def test_a_page_of_another_origin_changes_nothing_and_reads_nothing(
    at: Hub, chromium: Browser, own: str, hub_is: str
) -> None:
    """Another port of this machine is the nearest that a stranger comes: the same site, another origin."""
    with FakeHub().on("GET /page", answer(b"<html><body></body></html>", kind="text/html")) as other:
        page = chromium.open(other.url.replace("127.0.0.1", own) + "/page")
        found = is_kept_out(at, page, f"{hub_is}:{at.port}")
    readable = {name: what for name, what in found.items() if isinstance(what, list) and what[0] != "opaque"}
    assert readable == {}, "no answer is one that the page may look at"


def test_a_page_whose_name_was_rebound_to_this_machine_changes_nothing_and_reads_refusals_alone(
    at: Hub, chromium: Browser
) -> None:
    """To the browser the hub is now the page's own server, so that it may read every answer: each is a refusal."""
    where = f"rebound.test:{at.port}"
    page = chromium.open(f"http://{where}/")
    assert page.run("location.host") == where
    found = is_kept_out(at, page, where)
    answers = {name: what for name, what in found.items() if isinstance(what, list)}
    assert len(answers) > 100
    assert {what[1] for what in answers.values() if what[0] != "opaque"} <= {421, 403}
    told = {json.loads(what[2])["code"] for what in answers.values() if what[2]}
    assert told <= {"wrong_host", "foreign_origin"}


def test_the_same_by_a_page_of_its_own_is_let_in(at: Hub, chromium: Browser) -> None:
    """So that the tests above mean something: here it reads, and takes the mail."""
    message = at.send("box", SECRET, "sender")["id"]
    before = state(at)
    page = chromium.open(f"{at.url}/health")
    found = tried(at, page, f"127.0.0.1:{at.port}", message, late=700)
    assert state(at) != before
    assert SECRET in json.dumps(found)
    assert found["websocket /api/ws"] == "opened"
    assert "forged" in json.dumps(at.get("/v1/search?q=forged", admin=True).json["messages"])
