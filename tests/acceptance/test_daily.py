"""Daily use, on real processes: looking back, watching, and copies that are made under load and put back."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.acceptance.hub import MARGIN, Hub, Stream, eventually, hub


@pytest.fixture
def at() -> Iterator[Hub]:
    with hub() as started:
        yield started


def ok(done: "subprocess.CompletedProcess[str]") -> str:
    assert done.returncode == 0, (done.args, done.stdout, done.stderr)
    return done.stdout


def search(at: Hub, words: str, **how: Any) -> list[str]:
    answer = at.get(f"/v1/search?q={quote(words)}", **how)
    assert answer.status == 200, answer.body
    assert answer.json["behind"] == 0
    return [message["text"] for message in answer.json["messages"]]


# ------------------------------------------------------------------------------------------------------ looking back


def test_what_was_just_answered_is_found_and_outlives_a_kill(at: Hub) -> None:
    at.claim("box")
    for number in range(200):
        at.send("box", f"the build number{number} is green", "scout")
        if number % 20 == 0:
            assert search(at, f'"number{number} is green"') == [f"the build number{number} is green"]
    at.restart()
    assert search(at, "number199") == ["the build number199 is green"]
    assert len(search(at, "build")) == 20
    assert ok(at.run("search", "number7", "build")).count("the build number7 is green") == 1
    assert at.run("search", "nowhere").returncode == 1


def test_while_others_write_a_search_finds_all_that_was_answered(at: Hub) -> None:
    at.claim("box")
    stop = threading.Event()
    answered: dict[int, list[str]] = {number: [] for number in range(4)}

    def send(number: int) -> None:
        connection = at.connection()
        while not stop.is_set():
            text = f"word{number}x{len(answered[number])}"
            body = json.dumps({"to": "box", "text": text, "from": f"sender{number}"})
            connection.request("POST", "/v1/messages", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            if answer.status != 201:
                assert answer.status == 429
                assert at.get("/poll?agent=box").status == 200
                continue
            answered[number].append(text)
        connection.close()

    threads = [threading.Thread(target=send, args=(number,)) for number in answered]
    for thread in threads:
        thread.start()
    eventually(lambda: all(answered.values()))
    for _ in range(40):
        last = [texts[-1] for texts in answered.values() if texts]
        for text in last:
            assert search(at, text) == [text]
    stop.set()
    for thread in threads:
        thread.join()
    assert sum(map(len, answered.values())) > 50


def test_one_finds_only_what_it_may_see(at: Hub) -> None:
    tokens = {name: at.post(f"/v1/agents/{name}/token", {}, admin=True).json["token"] for name in ("ann", "bob", "cat")}
    body = {"to": "bob", "text": "the secret port"}
    sent = at.post("/v1/messages", body, token=tokens["ann"]).json
    assert search(at, "secret", token=tokens["bob"]) == ["the secret port"]
    assert search(at, "secret", admin=True) == ["the secret port"]
    assert search(at, "secret", token=tokens["cat"]) == []
    assert search(at, "secret") == []
    for path in (f"/v1/threads/{sent['id']}",):
        assert at.get(path, token=tokens["cat"]).code == "unknown_message"
        assert at.get(path).code == "unknown_message"
        assert at.get(path, token=tokens["ann"]).status == 200
    assert at.get("/v1/threads", token=tokens["cat"]).json["threads"] == []
    assert len(at.get("/v1/threads", token=tokens["bob"]).json["threads"]) == 1


def test_a_conversation_as_people_read_it(at: Hub) -> None:
    first = at.send("hermes", "which port does staging use?", "scout")
    at.poll("hermes")
    reply = at.post(f"/v1/messages/{first['id']}/reply", {"from": "hermes", "text": "8443\nsince May"}).json
    at.send("hermes", "another matter", "scout")
    shown = ok(at.run("thread", reply["id"]))
    assert [line for line in shown.splitlines() if line.startswith("    ")] == [
        "    which port does staging use?", "    8443", "    since May",
    ]  # fmt: skip
    assert shown.startswith(f"conversation {first['id']}\n")
    assert f"scout (unproved) to hermes, just now, answered  {first['id']}" in shown
    listed = ok(at.run("threads", "--json"))
    assert [talk["messages"] for talk in json.loads(listed)["threads"]] == [1, 2]
    assert first["id"] in ok(at.run("threads", "--as", "scout"))


@pytest.mark.parametrize("words", ['"', "a AND", "NEAR(", "%00", "*", "\\", "'; DROP TABLE message; --", "{text}:x"])
def test_no_words_are_an_error(at: Hub, words: str) -> None:
    at.send("hermes", "plain", "scout")
    answer = at.get(f"/v1/search?q={quote(words)}")
    assert answer.status in (200, 400), answer.body  # 400 where there is nothing to look for
    if answer.status == 400:
        assert "Say what to look for" in answer.json["detail"]
    assert search(at, "plain") == ["plain"]


# ---------------------------------------------------------------------------------------------------------- watching


def kinds(events: list[Any]) -> list[str]:
    return [event.kind for event in events]


def mail(watching: Stream) -> Any:
    """The next event that is not about a notice of presence; None for one of those."""
    event = watching.next()
    return None if json.loads(event.data).get("from") == "interop" else event


def test_all_that_happens_is_told_to_the_owner_alone(at: Hub) -> None:
    assert at.get("/v1/events").code == "token_required"
    at.claim("box")  # nobody is told of whom
    watching = Stream(at, "/v1/events", admin=True)
    sent = at.send("box", "hello " * 100, "scout", intent="request")
    (taken,) = at.claim("box")
    at.lease(taken["lease"]["token"], "ack")
    assert at.post("/v1/messages", {"to": "nobody", "text": "x", "from": "scout"}).status == 404
    reader = Stream(at, "/subscribe?agent=box")
    found = [watching.next() for _ in range(5)]
    assert kinds(found) == ["accepted", "handed_over", "delivered", "refused", "connected"]
    accepted = json.loads(found[0].data)
    assert (accepted["id"], accepted["from"], accepted["to"]) == (sent["id"], "scout", "box")
    assert (len(accepted["text"]), accepted["cut"]) == (200, True)
    assert json.loads(found[3].data)["detail"].startswith("unknown_agent: ")
    reader.close()
    assert eventually(lambda: mail(watching)).kind == "disconnected"
    again = Stream(at, "/v1/events?last=2&agent=box", admin=True)
    assert kinds([again.next(), again.next()]) == ["connected", "disconnected"]
    later = Stream(at, "/v1/events", admin=True, last_event_id=found[3].id)
    assert later.next().kind == "connected"
    assert eventually(lambda: mail(later)).kind == "disconnected"
    for stream in (watching, again, later):
        stream.close()


def test_a_reader_that_does_not_read_is_told_what_it_missed_and_costs_nothing(at: Hub) -> None:
    slow = Stream(at, "/v1/events", admin=True)
    before = at.memory
    at.claim("box")
    for part in range(12):
        items = [{"to": "box", "text": f"{part} {number} " + "x" * 180, "from": f"s{part}"} for number in range(800)]
        assert at.kept("POST", "/v1/messages", {"messages": items}).status == 200
    assert at.memory - before < 60 * 1024 * 1024
    lagged = None
    while lagged is None:
        event = slow.next()
        lagged = event if event.kind == "lagged" else None
    assert json.loads(lagged.data)["missed"] > 1000
    assert slow.next().kind == "accepted"
    slow.close()


def test_watching_ends_with_the_hub_and_says_goodbye(at: Hub) -> None:
    watching = Stream(at, "/v1/events", admin=True)
    code, took = at.stop()
    assert code == 0
    assert took < 3 * MARGIN
    assert kinds(watching.rest())[-1:] == ["bye"]


@contextmanager
def beside(at: Hub, *words: str) -> "Iterator[tuple[subprocess.Popen[str], Path]]":
    """A command that goes on, and the file that it writes to."""
    path = at.base / "beside"
    with path.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "angelia", *words], env=at.cli_environment(), cwd=at.base, stdout=output,
            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, start_new_session=True,
        )  # fmt: skip
    try:
        yield process, path
    finally:
        process.kill()
        process.wait()


def test_tail_follows_over_a_restart(at: Hub) -> None:
    at.send("hermes", "before\x1b[31m\nx", "scout")
    with beside(at, "tail") as (process, path):
        eventually(lambda: "before" in path.read_text())
        at.stop()
        at.start()
        eventually(lambda: "the hub was restarted" in path.read_text(), 30)
        at.send("hermes", "afterwards", "scout")
        eventually(lambda: "afterwards" in path.read_text())
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
    said = path.read_text()
    lines = [line for line in said.splitlines() if "accepted" in line]
    assert len(lines) == 2
    assert "\x1b" not in said


# ------------------------------------------------------------------------------------------------------------- copies


def everything(folder: Path) -> dict[str, str]:
    files = [file for file in folder.rglob("*") if file.is_file() and file.name not in ("hub.log", "hub.lock")]
    return {str(file.relative_to(folder)): sha256(file.read_bytes()).hexdigest() for file in files}


def copies(at: Hub) -> list[str]:
    return sorted(file.name for file in (at.folder / "backups").iterdir())


def test_a_copy_under_load_loses_nothing_and_holds_all_that_was_answered(at: Hub) -> None:
    at.claim("box")
    stop = threading.Event()
    answered: list[str] = []
    slowest = [0.0]

    def send(number: int) -> None:
        connection = at.connection()
        for serial in range(1_000):
            if stop.is_set():
                break
            text = f"{number} {serial}"
            body = json.dumps({"to": "box", "text": text, "from": f"sender{number}"})
            begun = time.monotonic()
            connection.request("POST", "/v1/messages", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 201
            slowest[0] = max(slowest[0], time.monotonic() - begun)
            answered.append(text)
        connection.close()

    threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(answered) > 100)
    already = list(answered)
    told = json.loads(ok(at.run("backup", "--json")))
    during = len(answered) - len(already)
    stop.set()
    for thread in threads:
        thread.join()
    assert during > 20, "the senders stood still"
    assert slowest[0] < 1 * MARGIN
    total = at.inbox("box", limit=1)["total"]
    assert total == len(answered)
    with hub() as other:
        other.stop()
        (other.folder / "angelia.db").unlink()
        ok(other.run("restore", told["file"]))
        other.start()
        found = set()
        while page := other.poll("box"):
            found |= {item["text"] for item in page}
    assert set(already) <= found <= set(answered)
    assert len(found) == told["messages"] == told["deliveries"]


def test_the_fourth_copy_drops_the_oldest_and_the_folder_stays_locked(at: Hub) -> None:
    at.send("hermes", "hello", "scout")
    made = [json.loads(ok(at.run("backup", "--json"))) for _ in range(4)]
    assert [len(copy["removed"]) for copy in made] == [0, 0, 0, 1]
    assert made[3]["removed"] == [made[0]["file"]]
    assert copies(at) == sorted(Path(copy["file"]).name for copy in made[1:])
    for name in copies(at):
        assert (at.folder / "backups" / name).stat().st_mode & 0o777 == 0o600
    second = at.run("up", "--port", "0")
    assert second.returncode == 3
    assert f"pid {at.pid}" in second.stderr


def test_a_copy_that_is_cut_short_leaves_the_others_and_goes_with_the_next(at: Hub) -> None:
    at.send("hermes", "hello", "scout")
    first = json.loads(ok(at.run("backup", "--json")))["file"]
    left = at.folder / "backups" / ".angelia-20260101T000000Z.db.partial"
    left.write_bytes(b"half of one")
    at.restart()
    assert Path(first).exists()
    second = json.loads(ok(at.run("backup", "--json")))["file"]
    assert copies(at) == sorted([Path(first).name, Path(second).name])


def test_a_copy_where_it_is_wanted(at: Hub) -> None:
    at.send("hermes", "hello", "scout")
    there = at.base / "a copy.db"
    assert "1 messages" in ok(at.run("backup", "a copy.db"))
    assert there.exists()
    again = at.run("backup", str(there))
    assert again.returncode == 1
    assert "there already" in again.stderr
    for bad in (at.folder / "x.db", at.base / "missing" / "x.db"):
        assert at.run("backup", str(bad)).returncode == 1
    assert not (at.folder / "backups").exists()


def test_a_path_is_not_taken_from_afar(at: Hub) -> None:
    token = (at.folder / "admin.token").read_text().strip()
    refused = at.post("/v1/backups", {"file": str(at.base / "x.db")}, token=token)
    assert (refused.status, refused.code) == (403, "not_allowed")
    assert not (at.base / "x.db").exists()
    assert at.post("/v1/backups", {}).code == "token_required"
    made = at.post("/v1/backups", {}, token=token)
    assert made.status == 201
    assert Path(made.json["file"]).exists()


def test_a_copy_of_a_hub_that_is_down_or_was_killed(at: Hub) -> None:
    at.send("hermes", "hello", "scout")
    at.kill9()
    before = everything(at.folder)
    told = json.loads(ok(at.run("backup", "--json")))
    assert told["messages"] == 1
    after = {name: digest for name, digest in everything(at.folder).items() if not name.startswith("backups")}
    assert {name: digest for name, digest in after.items() if name in before and not name.endswith("-shm")} == {
        name: digest for name, digest in before.items() if name != "hub.json" and not name.endswith("-shm")
    }
    at.start()
    assert [item["text"] for item in at.poll("hermes")] == ["hello"]
    empty = at.run("backup", ANGELIA_DATA_DIR=str(at.base / "empty"))
    assert empty.returncode == 1
    assert "no store" in empty.stderr


def test_a_hub_that_runs_is_named_and_nothing_is_put_back(at: Hub) -> None:
    at.send("hermes", "hello", "scout")
    file = json.loads(ok(at.run("backup", "--json")))["file"]
    at.send("hermes", "later", "scout")
    refused = at.run("restore", file)
    assert refused.returncode == 3
    assert f"pid {at.pid}" in refused.stderr
    assert "Nothing was changed" in refused.stderr
    assert [item["text"] for item in at.poll("hermes")] == ["hello", "later"]


def test_after_a_restore_an_old_id_is_answered_with_a_reset(at: Hub) -> None:
    reader = Stream(at, "/subscribe?agent=hermes")
    at.send("hermes", "one", "scout")
    first = reader.next()
    at.send("hermes", "two", "scout")
    reader.next()
    eventually(lambda: at.get("/status").json["queues"]["hermes"] == 0)
    at.send("openclaw", "still waits", "scout")
    made = json.loads(ok(at.run("backup", "--json")))
    late = at.send("openclaw", "after the copy", "scout")
    before = at.get("/health").json
    at.poll("openclaw")
    reader.close()
    at.stop()
    said = ok(at.run("restore", made["file"]))
    assert f"restored {made['messages']} messages" in said
    assert "what was there is in" in said
    at.start()
    health = at.get("/health").json
    assert health["epoch"] != before["epoch"]
    assert health["instance"] == before["instance"]
    again = Stream(at, "/subscribe?agent=hermes", last_event_id=first.id)
    reset = again.next()
    assert reset.kind == "reset"
    assert "restored or replaced" in json.loads(reset.data)["why"]
    shown = [json.loads(event.data) for event in again.messages(2)]
    assert [(item["text"], item["_meta"]["again"]) for item in shown] == [("one", True), ("two", True)]
    texts = [item["text"] for item in at.poll("openclaw")]
    assert "still waits" in texts
    assert "after the copy" not in texts
    following = at.send("openclaw", "goes on", "scout")
    assert following["deliveries"][0]["seq"] > late["deliveries"][0]["seq"]
    again.close()


@pytest.mark.parametrize("how", ["cut", "flipped", "not a store"])
def test_a_damaged_copy_is_refused_and_nothing_was_changed(at: Hub, how: str) -> None:
    for number in range(300):
        at.send("hermes", f"message {number} " + "x" * 200, f"s{number % 7}")
    file = Path(json.loads(ok(at.run("backup", "--json")))["file"])
    at.stop()
    content = file.read_bytes()
    place = content.index(b"message 150 x") + 5
    file.write_bytes(
        {
            "cut": content[: len(content) // 2],
            "flipped": content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :],
            "not a store": b"SQLite format 3\0" + os.urandom(9000),
        }[how]
    )
    before = everything(at.folder)
    refused = at.run("restore", str(file))
    assert refused.returncode == 1, refused.stdout
    assert "Traceback" not in refused.stderr
    assert everything(at.folder) == before
    at.start()
    assert at.inbox("hermes", limit=1)["total"] == 300
