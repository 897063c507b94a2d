"""A Hermes install on this machine reaches the agents of a real hub by its own files, with no app open.

The names in docstrings are those of Hermes' own tests and of the faults that were reported of it.
"""

import fcntl
import json
import os
import re
import stat
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from angelia.bus.beat import BEAT_SECONDS
from angelia.doors.hermes_home.files import MOST_BYTES, READ_BYTES, RelayFiles
from angelia.model.address import RESERVED
from angelia.protocol.bot_relay_mail import RelayReply
from angelia.protocol.bot_relay_rows import Row
from tests.acceptance.hub import MARGIN, ROOT, Hub, eventually, hub
from tests.turns.stand_ins import hermes_program

AGENT = """
import sys, time
text = sys.stdin.read()
if text.startswith("sleep"):
    time.sleep(float(text.split()[1]))
if text.startswith("fail"):
    sys.exit("HTTP 429: slow down")
sys.stdout.write("heard: " + text)
"""


class Home:
    """A Hermes home as its tools and its waiters see it."""

    def __init__(self, at: Hub, root: Path | None = None) -> None:
        self.at = at
        self.root = root or at.base / "hermes"
        self.relay = self.root / "bot_relay"
        (self.root / "profiles" / "ops").mkdir(parents=True)
        program = at.base / "agent.py"
        program.write_text(AGENT)
        self.adapter = {"kind": "command", "argv": [sys.executable, str(program)]}

    def join(self, *names: str) -> None:
        for name in names:
            answer = self.at.call("PUT", f"/v1/agents/{name}", {"adapter": self.adapter}, admin=True)
            assert answer.status in (200, 201), answer.body

    def enqueue(
        self, message: str, /, target: str = "scout", connection: str = "angelia", file: str = "", **more: Any
    ) -> str:
        """As ``message_agent`` does: a private file, renamed into its place. Out: the id."""
        outbox = self.relay / "outbox"
        outbox.mkdir(parents=True, exist_ok=True)
        message_id = uuid.uuid4().hex
        envelope = {
            "id": message_id, "created_at": int(time.time()), "from_profile": "default", "from_handle": "hermes",
            "target_connection": connection, "target_profile": target, "target_handle": target,
            "message": f"Message from \N{ROBOT FACE} hermes (@hermes): {message}", **more,
        }  # fmt: skip
        self.put(f"{file or message_id}.json", json.dumps(envelope, ensure_ascii=False).encode())
        return message_id

    def put(self, name: str, data: bytes) -> Path:
        outbox = self.relay / "outbox"
        outbox.mkdir(parents=True, exist_ok=True)
        part = outbox / f".env-{name}.tmp"
        part.write_bytes(data)
        part.chmod(0o600)
        part.rename(outbox / name)
        return outbox / name

    def reply(self, message_id: str, seconds: float = 20) -> dict[str, Any]:
        path = self.relay / "replies" / f"{message_id}.json"
        eventually(path.exists, seconds, f"a reply to {message_id}")
        return dict(json.loads(path.read_text("utf-8")))

    def roster(self) -> list[dict[str, Any]]:
        try:
            return list(json.loads((self.relay / "roster.json").read_text("utf-8"))["agents"])
        except (OSError, ValueError):
            return []


@pytest.fixture
def home() -> Iterator[Home]:
    at = Hub()
    made = Home(at)
    at.env = {"HERMES_HOME": str(made.root)}
    with at:
        yield made


def test_a_stock_agents_message_is_answered_with_no_app_open(home: Home) -> None:
    """9.1 relay_route_queues_envelope, enqueue_claim_is_atomic_and_single_shot, write_reply."""
    home.join("scout")
    message_id = home.enqueue("is the build green? \N{ROBOT FACE} 'x'\n-n")
    reply = home.reply(message_id)
    assert reply["reply"] == "heard: is the build green? \N{ROBOT FACE} 'x'\n-n"
    assert (reply["id"], reply["error"], reply["reason"]) == (message_id, "", "")
    assert not (home.relay / "outbox" / f"{message_id}.json").exists()
    assert (home.relay / "claimed" / f"{message_id}.json").exists()
    message = home.at.receipt(message_id)["message"]
    assert (message["from"], message["intent"], message["verified"]) == ("hermes", "request", True)
    for folder, mode in ((home.relay / "replies", 0o700), (home.relay / "replies" / f"{message_id}.json", 0o600)):
        assert stat.S_IMODE(folder.stat().st_mode) == mode


def of(home: Home, message_id: str) -> tuple[str, bool]:
    """Who a delivered letter is from, and whether that is proved."""
    home.reply(message_id)
    message = home.at.receipt(message_id)["message"]
    return message["from"], message["verified"]


def key(home: Home, *names: str) -> None:
    for name in names:
        assert home.at.post(f"/v1/agents/{name}/token", {}, admin=True).status in (200, 201)


def test_only_profiles_of_the_install_are_proved_by_its_files(home: Home) -> None:
    home.join("scout")
    assert of(home, home.enqueue("x", from_profile="ops", from_handle="ops")) == ("ops", True)
    assert of(home, home.enqueue("x", from_profile="", from_handle="")) == ("hermes", True)
    assert of(home, home.enqueue("x", from_profile="bob", from_handle="bob")) == ("bob", False)


def test_a_keyed_name_is_not_to_be_had_by_a_letter(home: Home) -> None:
    """F101, F103: the token of ``ann`` is hers alone; a profile of the install speaks by the install's own files."""
    home.join("scout")
    key(home, "ann", "hermes", "ops")
    for name in ("ann", "Ann"):
        message_id = home.enqueue("transfer it", from_profile=name, from_handle=name)
        refused = home.reply(message_id)
        assert (refused["reply"], refused["reason"]) == ("", "unknown")
        assert "is keyed" in refused["error"]
        assert home.at.get(f"/v1/messages/{message_id}", admin=True).status == 404
    assert of(home, home.enqueue("x")) == ("hermes", True)
    assert of(home, home.enqueue("x", from_profile="ops", from_handle="ops")) == ("ops", True)


@pytest.mark.parametrize("name", sorted(RESERVED - {"default"}))
def test_a_reserved_name_is_not_to_be_had_by_a_letter(home: Home, name: str) -> None:
    home.join("scout")
    (home.root / "profiles" / name).mkdir()
    message_id = home.enqueue("x", from_profile=name, from_handle="hermes")
    refused = home.reply(message_id)
    assert (refused["reply"], "reserved" in refused["error"]) == ("", True), refused
    assert home.at.get(f"/v1/messages/{message_id}", admin=True).status == 404


@pytest.mark.parametrize("place", [".", "bot_relay", "bot_relay/outbox"])
def test_where_others_may_write_nobody_is_proved_and_the_log_says_how_to_mend_it(home: Home, place: str) -> None:
    home.join("scout")
    key(home, "ops")
    (home.relay / "outbox").mkdir(parents=True)
    (home.root / place).chmod(0o777)
    assert of(home, home.enqueue("x")) == ("hermes", False)
    assert "is keyed" in home.reply(home.enqueue("x", from_profile="ops", from_handle="ops"))["error"]
    assert f"chmod go-w {home.root / place}" in home.at.output()
    (home.root / place).chmod(0o755)
    assert of(home, home.enqueue("x")) == ("hermes", True)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to write as somebody else")
def test_what_another_user_wrote_is_not_proved(home: Home) -> None:
    home.join("scout")
    folder = home.relay / "outbox"
    folder.mkdir(parents=True)
    letter = {
        "id": uuid.uuid4().hex, "created_at": int(time.time()), "from_profile": "default", "from_handle": "hermes",
        "target_connection": "angelia", "target_profile": "scout", "target_handle": "scout", "message": "x",
    }  # fmt: skip
    part = folder / "part.tmp"
    part.write_text(json.dumps(letter))
    os.chown(part, 65534, 65534)
    part.rename(folder / f"{letter['id']}.json")
    assert of(home, str(letter["id"])) == ("hermes", False)


def test_the_letter_of_the_page_has_the_answer_of_the_page(home: Home) -> None:
    page = (ROOT / "docs/howto/hermes-home.md").read_text("utf-8")
    letter, answer = (json.loads(block) for block in re.findall(r"```json\n(.*?)```", page, re.DOTALL))
    home.join("scout")
    now = int(time.time())
    home.put(f"{letter['id']}.json", json.dumps({**letter, "created_at": now}).encode())
    reply = home.reply(letter["id"])
    assert now <= reply["at"] <= time.time()
    assert {**reply, "at": answer["at"]} == answer


def test_an_envelope_is_claimed_within_a_tenth_of_a_second(home: Home) -> None:
    home.join("scout")
    home.reply(home.enqueue("warm"))
    took = []
    for _ in range(10):
        begun = time.monotonic()
        message_id = home.enqueue("quick")
        eventually(lambda m=message_id: not (home.relay / "outbox" / f"{m}.json").exists())  # type: ignore[misc]
        took.append(time.monotonic() - begun)
    assert sorted(took)[5] < 0.1 * MARGIN, took


def test_what_was_there_before_the_start_is_found(home: Home) -> None:
    home.join("scout")
    home.at.kill9()
    message_id = home.enqueue("from yesterday")
    home.at.start()
    assert home.reply(message_id)["reply"] == "heard: from yesterday"


def test_what_waited_is_taken_oldest_first_whatever_the_files_are_called(home: Home) -> None:
    """9.1 the_outbox_is_claimed_oldest_first, 10.24: Hermes' names are random, so sorting by them swaps mail."""
    home.join("scout")
    home.at.kill9()
    ids = [home.enqueue(f"number {number}", file=f"{9 - number}") for number in range(6)]
    for number in range(6):
        hour_ago = time.time() - 600 + number
        os.utime(home.relay / "outbox" / f"{9 - number}.json", (hour_ago, hour_ago))
    home.at.start()
    for message_id in ids:
        home.reply(message_id)
    accepted = [home.at.receipt(message_id)["deliveries"][0]["seq"] for message_id in ids]
    assert accepted == sorted(accepted)


def test_the_home_of_one_profile_stands_for_its_whole_install(home: Home) -> None:
    """9.2 gateway_drains_the_mailbox_the_tools_write_to: else mail is silently never drained."""
    home.join("scout")
    home.at.stop()
    home.at.env = {"HERMES_HOME": str(home.root / "profiles" / "ops")}
    home.at.start()
    assert home.reply(home.enqueue("hello"))["reply"] == "heard: hello"
    assert not (home.root / "profiles" / "ops" / "bot_relay").exists()


def test_others_envelopes_are_left_to_whoever_serves_them(home: Home) -> None:
    home.join("scout")
    theirs = home.enqueue("for another", connection="vps-1")
    home.reply(home.enqueue("for us"))
    assert (home.relay / "outbox" / f"{theirs}.json").exists()


def test_broken_and_hostile_files_block_nothing(home: Home) -> None:
    """9.1 claim_skips_non_dict_envelope; 10: created_at of a wrong type fails every drain; path traversal ids."""
    home.join("scout")
    good = {"target_connection": "angelia", "target_profile": "scout", "message": "x"}
    for number, content in enumerate([
        b"", b"\xff\xfe", b"[]", b'"text"', b"{", b"null",
        json.dumps({**good, "id": "../../../etc/passwd"}).encode(),
        json.dumps({**good, "id": "a" * 32, "created_at": [1]}).encode(),
        json.dumps({**good, "id": "b" * 32, "created_at": 10**400}).encode(),
        json.dumps({**good, "id": "c" * 32, "message": ["x"]}).encode(),
        json.dumps({**good, "id": "d" * 32, "target_profile": "a/../b"}).encode(),
        b"[" * 100_000,
    ]):  # fmt: skip
        home.put(f"bad{number}.json", content)
    (home.relay / "outbox" / "folder.json").mkdir()
    os.mkfifo(home.relay / "outbox" / "pipe.json")
    os.symlink("/etc/passwd", home.relay / "outbox" / "link.json")
    assert home.reply(home.enqueue("still here"))["reply"] == "heard: still here"
    assert home.at.is_ready()
    assert "Traceback" not in home.at.output()


def test_the_first_letter_of_an_id_is_the_message_and_its_answer_the_only_one(home: Home) -> None:
    """Whoever says a known id again gets no answer of its own, which would take the first one's place."""
    home.join("scout")
    first = home.enqueue("sleep 2 first")  # longer than the others take to be looked at
    claimed = home.relay / "claimed" / f"{first}.json"
    eventually(claimed.exists)
    kept = claimed.read_bytes()
    bad: list[dict[str, Any]] = [{}, {"created_at": 1}, {"created_at": "soon"}, {"target_profile": "nobody"}]
    for number, more in enumerate(bad):
        home.enqueue(f"second {number}", file=f"again{number}", **{"id": first, **more})
    home.enqueue("second", file=first, **{"id": first})
    outbox = home.relay / "outbox"
    eventually(lambda: not list(outbox.glob("*.json")))
    assert claimed.read_bytes() == kept
    assert not (home.relay / "replies" / f"{first}.json").exists()
    home.at.restart()  # no other letter has taken the place of what was claimed
    reply = home.reply(first, 30)
    assert (reply["reply"], reply["error"]) == ("heard: sleep 2 first", "")
    home.enqueue("after the answer", file="late", **{"id": first})
    eventually(lambda: not list(outbox.glob("*.json")))
    assert home.reply(first) == reply
    (home.relay / "replies" / f"{first}.json").unlink()
    claimed.unlink()
    home.enqueue("when only the hub knows it", file="later", **{"id": first})
    eventually(lambda: not list(outbox.glob("*.json")) and not list(claimed.parent.glob("*.json")))
    assert not (home.relay / "replies" / f"{first}.json").exists()
    assert home.at.output().count(f"another letter of {first}") >= 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"message": ""},
        {"message": ["x"]},
        {"created_at": "yesterday"},
        {"created_at": [1]},
        {"created_at": -5},
        {"target_profile": "a/../b"},
        {"more": "x" * MOST_BYTES},
    ],
    ids=lambda wrong: "-".join(wrong),
)
def test_who_writes_what_is_no_envelope_is_told_so(home: Home, wrong: dict[str, Any]) -> None:
    message_id = home.enqueue("hello", **wrong)
    reply = home.reply(message_id)
    assert (reply["id"], reply["reply"], reply["reason"]) == (message_id, "", "unknown")
    assert reply["error"].startswith("Not delivered: The envelope")
    assert reply["error"].endswith(".")
    assert (home.relay / "claimed" / f"{message_id}.json").exists()
    eventually(lambda: not list((home.relay / "outbox").glob("*.json")))  # once its answer was written
    assert home.at.get(f"/v1/messages/{message_id}").status == 404
    eventually(lambda: message_id in home.at.output())
    assert home.at.output().count(message_id) == 1
    elsewhere = home.enqueue("hello", connection="vps-1", **wrong)
    home.reply(home.enqueue("", created_at="no time"))
    assert (home.relay / "outbox" / f"{elsewhere}.json").exists()  # whoever serves that connection may think otherwise


def test_what_nobody_can_be_told_of_is_left_and_logged_once(home: Home) -> None:
    home.join("scout")
    for number, content in enumerate((b"{", b"[]", b'{"id": "x", "target_connection": "angelia"}', b"\xff")):
        home.put(f"bad{number}.json", content)
    (home.relay / "outbox" / "bad4.json").mkdir()
    for number in range(3):
        home.reply(home.enqueue(f"look {number}"))
    for number in range(5):
        assert home.at.output().count(f"bad{number}.json") == 1
        assert (home.relay / "outbox" / f"bad{number}.json").exists()
    mended = home.enqueue("mended", file="bad0")
    assert home.reply(mended)["reply"] == "heard: mended"


def test_what_is_left_is_logged_once_and_again_when_it_has_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files, outbox = RelayFiles(str(tmp_path), "angelia"), tmp_path / "bot_relay" / "outbox"
    outbox.mkdir(parents=True)
    bad = [outbox / f"bad{number}.json" for number in range(3)]
    bad[0].write_text("{")
    bad[1].mkdir()
    bad[2].write_bytes(b"x" * (READ_BYTES + 1))
    elsewhere = {"id": "a" * 32, "target_connection": "vps-1", "target_profile": "x", "message": "x"}
    (outbox / "elsewhere.json").write_text(json.dumps(elsewhere))
    for _ in range(3):
        assert files.queued() == []
    told = "\n".join(record.getMessage() for record in caplog.records)
    assert [told.count(path.name) for path in bad] == [1, 1, 1]
    assert "elsewhere" not in told
    caplog.clear()
    bad[0].write_text("{}")
    assert files.queued() == []
    (record,) = caplog.records
    assert "bad0.json" in record.getMessage()
    caplog.clear()
    bad[0].write_text(json.dumps({**elsewhere, "target_connection": "Angelia"}))
    assert [letter.id for letter in files.queued()] == ["a" * 32]
    assert caplog.records == []


def test_looking_again_and_again_at_what_is_no_file_costs_nothing(home: Home) -> None:
    """Beside 11.4: a folder in a letter's place cost a descriptor with each look, until the hub had none left."""
    home.join("scout")
    for number in range(30):
        (home.relay / "outbox" / f"folder{number}.json").mkdir(parents=True)
    home.reply(home.enqueue("one look"))
    before = home.at.descriptors
    for number in range(3):
        home.reply(home.enqueue(f"look {number}"))
    assert home.at.descriptors < before + 30


def test_the_first_answer_stands(home: Home) -> None:
    """9.1 write_reply_keeps_the_first_settled_reply_for_an_envelope."""
    home.join("scout")
    message_id = home.enqueue("sleep 1")
    eventually(lambda: home.at.get(f"/v1/messages/{message_id}").status == 200)
    replies = home.relay / "replies"
    replies.mkdir(exist_ok=True)
    first = {"id": message_id, "at": 1, "reply": "from another relay", "error": "", "reason": ""}
    (replies / f"{message_id}.json").write_text(json.dumps(first))
    eventually(lambda: home.at.state(message_id) == "answered")
    assert home.reply(message_id)["reply"] == "from another relay"


def test_rows_that_are_written_while_ours_are_added_stay(tmp_path: Path) -> None:
    """10.12: between the look at the roster and the new one, another relay puts its own rows there."""
    us, them = RelayFiles(str(tmp_path), "angelia"), RelayFiles(str(tmp_path), "vps-1")
    theirs = [Row("vps-1", "far", "far")]

    class Slow(list[Row]):
        """Rows that take their time, once."""

        def __iter__(self) -> Iterator[Row]:
            if theirs:
                them.put_roster([theirs.pop()], 1, anyway=True)
            return super().__iter__()

    stamp = us.put_roster(Slow([Row("angelia", "scout", "scout")]), 2, anyway=True)
    roster = json.loads((tmp_path / "bot_relay" / "roster.json").read_text())
    assert [row["handle"] for row in roster["agents"]] == ["scout", "far"]
    assert us.roster_stamp() == stamp
    them.put_roster([], 3, anyway=True)  # and what comes next is seen to be another's
    assert us.roster_stamp() != stamp


def test_of_many_that_claim_or_answer_at_once_one_does(tmp_path: Path) -> None:
    """11.5: a look and then a write is no first write wins; 9.1 enqueue_claim_is_atomic_and_single_shot."""
    relays = [RelayFiles(str(tmp_path), "angelia") for _ in range(8)]
    outbox = tmp_path / "bot_relay" / "outbox"
    outbox.mkdir(parents=True)
    together = Barrier(len(relays))

    def claim(relay: RelayFiles) -> bool:
        (letter,) = relay.queued()
        together.wait(20)
        return relay.claim(letter, time.time()) is not None

    def answer(relay: RelayFiles) -> str:
        text = str(relays.index(relay))
        together.wait(20)
        return text if relay.answer(RelayReply(message_id, 1, reply=text)) else ""

    with ThreadPoolExecutor(len(relays)) as threads:
        for _ in range(400):  # enough that a look and then a write is caught at it
            message_id = uuid.uuid4().hex
            envelope = {"id": message_id, "target_connection": "angelia", "target_profile": "x", "message": "x"}
            (outbox / f"{message_id}.json").write_text(json.dumps(envelope))
            assert sum(threads.map(claim, relays)) == 1
            (winner,) = [text for text in threads.map(answer, relays) if text]
            assert json.loads((outbox.parent / "replies" / f"{message_id}.json").read_text())["reply"] == winner
    assert list((outbox.parent / "replies").glob("*.tmp")) == []


def test_a_failure_comes_back_with_its_reason(home: Home) -> None:
    """10.8: busy and failed turns reach the sender as 'unknown'."""
    home.join("scout")
    reply = home.reply(home.enqueue("fail"))
    assert (reply["reply"], reply["reason"]) == ("", "provider_rate_limit")
    assert reply["error"]
    unknown = home.reply(home.enqueue("anybody?", target="nobody"))
    assert "nobody" in unknown["error"]


def test_an_old_envelope_is_not_delivered_and_its_sender_is_told(home: Home) -> None:
    """9.1 drain_expires_old_envelope_with_queued_expired_reply."""
    home.join("scout")
    message_id = home.enqueue("old news", created_at=int(time.time()) - 1000)
    reply = home.reply(message_id)
    assert (reply["reply"], reply["reason"]) == ("", "queued_expired")
    eventually(lambda: not list((home.relay / "outbox").glob("*.json")))  # once its answer was written
    assert home.at.get(f"/v1/messages/{message_id}").status == 404


def test_mail_to_one_agent_keeps_its_order_and_a_slow_one_holds_up_no_other(home: Home) -> None:
    """9.1 the_outbox_is_claimed_oldest_first; 10.10: one long turn expires others' mail; 10.24 DMs arrive swapped."""
    home.join("scout", "other")
    slow = [home.enqueue(f"sleep 0.5 {number}") for number in range(3)]
    quick = home.enqueue("quick", target="other")
    assert home.reply(quick)["reply"] == "heard: quick"
    for message_id in slow:
        home.reply(message_id)
    times = [home.at.receipt(message_id)["deliveries"][0]["answered_at"] for message_id in slow]
    assert times == sorted(times)


def test_a_hub_that_dies_between_claim_and_answer_loses_nothing(home: Home) -> None:
    """10.11 reply or claim lost when the relay drops between drain and deliver."""
    home.join("scout")
    message_id = home.enqueue("sleep 1.5")
    eventually(lambda: (home.relay / "claimed" / f"{message_id}.json").exists())
    home.at.restart()
    assert home.reply(message_id, 30)["reply"] == "heard: sleep 1.5"


def test_our_agents_stand_in_the_roster_beside_others_and_stay_there(home: Home) -> None:
    """10.12: two relays on one gateway erase each other's roster."""
    home.join("scout", "ops")
    eventually(lambda: [row["handle"] for row in home.roster()] == ["openclaw", "scout"], 10 * MARGIN)
    assert {row["connection_id"] for row in home.roster()} == {"angelia"}
    scout = home.roster()[1]
    assert (scout["online"], "online" in home.roster()[0]) == (True, False)
    theirs = {"profile": "far", "handle": "far", "connection_id": "vps-1", "title": "Far"}
    part = home.relay / ".roster-theirs.tmp"
    part.write_text(json.dumps({"agents": [theirs], "updated_at": 1}))
    part.replace(home.relay / "roster.json")  # whole, as Hermes writes it
    eventually(lambda: [row["handle"] for row in home.roster()] == ["openclaw", "scout", "far"], 10 * MARGIN)
    assert stat.S_IMODE((home.relay / "roster.json").stat().st_mode) == 0o600


def test_stale_letters_do_not_stay_on_the_disk(home: Home) -> None:
    """9.1 cleanup_bot_relay_artifacts_sweeps_stale_plaintext: exactly what is stale, in all three folders."""
    home.at.kill9()
    long_ago = time.time() - 7 * 3600
    for folder in ("outbox", "claimed", "replies"):
        (home.relay / folder).mkdir(parents=True)
        for name in ("stale", "fresh"):
            (home.relay / folder / f"{name}.json").write_text('{"text": "a letter"}')
        os.utime(home.relay / folder / "stale.json", (long_ago, long_ago))
    home.at.start()
    eventually(lambda: not list(home.relay.glob("*/stale.json")))
    assert len(list(home.relay.glob("*/fresh.json"))) == 3


def test_hermes_own_turns_and_ours_exclude_each_other(home: Home) -> None:
    """9.3 run_delivery_holds_profile_lock_during_turn: one lock of one profile, in Hermes' own place; mail waits."""
    program = home.at.base / "hermes-program"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E {hermes_program.__file__} "$@"\n')
    program.chmod(0o700)
    adapter = {"kind": "hermes", "program": str(program)}  # its home is the one that the hub was started with
    assert home.at.call("PUT", "/v1/agents/hermes", {"adapter": adapter}, admin=True).status in (200, 201)
    hangs = home.at.send("hermes", "HANG", "ann", intent="request")["id"]
    eventually(lambda: (home.root / "runs.jsonl").exists())
    with (home.relay / "locks" / "default.lock").open("r+") as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert home.at.post(f"/v1/turns/{hangs}/stop", {}, admin=True).status == 200
        fcntl.flock(lock, fcntl.LOCK_EX)
        waits = home.at.send("hermes", "hello", "ann", intent="request")["id"]
        ends = time.monotonic() + 1.5  # three tries of the hub's
        while time.monotonic() < ends:
            assert home.at.state(waits) == "queued"
    eventually(lambda: home.at.state(waits) == "answered")
    assert len((home.root / "runs.jsonl").read_text().splitlines()) == 2


def test_a_hub_without_hermes_makes_no_folder() -> None:
    with hub() as at:
        at.get("/status")
        assert not (at.base / ".hermes").exists()


def test_an_install_that_comes_later_is_served_from_the_next_beat_on() -> None:
    at = Hub()
    with at:
        home = Home(at, at.base / ".hermes")
        home.join("scout")
        assert home.reply(home.enqueue("hello"), BEAT_SECONDS * MARGIN)["reply"] == "heard: hello"


def test_agents_on_other_machines_are_teammates_too(home: Home) -> None:
    """``message_agent`` of a Hermes here reaches an agent behind a link, by a name of one word, and gets its answer."""
    with hub() as far:
        answer = far.call("PUT", "/v1/agents/dev", {"adapter": home.adapter}, admin=True)
        assert answer.status == 201, answer.body
        linked = home.at.call("PUT", "/v1/connections/box", {"target": f"ws://127.0.0.1:{far.port}"}, admin=True)
        assert linked.status in (200, 201), linked.body
        eventually(lambda: "dev-box" in [row["handle"] for row in home.roster()], 10 * MARGIN)
        row = next(row for row in home.roster() if row["handle"] == "dev-box")
        assert (row["connection_id"], row["online"]) == ("angelia", True)
        message_id = home.enqueue("over there?", target="dev-box")
        assert home.reply(message_id)["reply"] == "heard: over there?"
        message = home.at.receipt(message_id)["message"]
        assert (message["from"], message["to"]) == ("hermes", "dev@box")
