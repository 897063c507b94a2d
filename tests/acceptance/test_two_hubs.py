"""Two real hubs, linked: trust, pairing, mail both ways, and what each side knows while the other is away or ends."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as open_socket

from tests.acceptance.hub import MARGIN, Hub, eventually, hub
from tests.acceptance.linked import (
    ENVIRONMENT,
    LINK_SECONDS,
    connect,
    connection,
    hubs,
    live,
    take,
    wait_knows,
    wait_state,
    wait_up,
)  # fmt: skip

pytestmark = pytest.mark.timeout(150)
STOP_SECONDS = 3.0
LARGE = 1_000_000  # about the most that a text has
NAMES = ("home", "garage", "shed")


def target(far: Hub) -> str:
    return f"ws://127.0.0.1:{far.port}"


@pytest.fixture
def two() -> Iterator[tuple[Hub, Hub]]:
    """Linked, the first dialled; ann lives at home, bob at the garage."""
    with hubs("home", "garage") as (here, far):
        live(here, "ann")
        live(far, "bob")
        connect(here, "garage", target(far))
        wait_knows(here, "bob")
        wait_knows(far, "ann")
        yield here, far


def reply(at: Hub, sender: str, to: str, text: str) -> str:
    answer = at.kept("POST", f"/v1/messages/{to}/reply", {"text": text, "from": sender})
    assert answer.status in (200, 201), answer.body
    return str(answer.json["id"])


def wait_down(here: Hub, name: str, seconds: float = 10.0 * MARGIN) -> None:
    eventually(lambda: not connection(here, name)["up"], seconds, f"{name} is down")


def drain(at: Hub, agent: str, found: list[str]) -> list[str]:
    """Add the ids of what has come; all that has come so far."""
    found += [message["_meta"]["id"] for message in at.poll(agent)]
    return found


# ---------------------------------------------------------------------------------------------------------------- trust


class Dialled:
    """A WebSocket where other hubs dial, and nothing of a hub behind it."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    def hear(self, seconds: float = 10.0) -> dict[str, Any]:
        return dict(json.loads(self.socket.recv(timeout=seconds)))

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self.socket.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
        return self.hear()

    def is_closed(self, seconds: float = 10.0) -> bool:
        with pytest.raises(ConnectionClosed):
            self.socket.recv(timeout=seconds)
        return True


@contextmanager
def dialled(far: Hub) -> Iterator[Dialled]:
    with open_socket(f"{target(far)}/api/hub", proxy=None) as socket:
        found = Dialled(socket)
        assert found.hear()["params"]["type"] == "gateway.ready"
        yield found


@pytest.mark.parametrize("args", [(), ("--behind-proxy",)], ids=["on loopback", "tokens only"])
def test_who_dials_and_does_not_prove_itself_can_do_nothing_but_say_hello(args: tuple[str, ...]) -> None:
    hello = {"version": 1, "hub": "a" * 32, "name": "evil", "nonce": "0" * 64}
    with hub(env={**ENVIRONMENT, "ANGELIA_HUB_NAME": "garage"}, args=args) as far:
        for method in ("hub.send", "hub.roster", "bot_relay.outbox.drain", "profiles.list", "session.open", "x"):
            with dialled(far) as line:
                assert "error" in line.call(method, messages=[], rows=[])
                assert line.is_closed()
        for by in ("key", "owner", "code"):
            with dialled(far) as line:
                assert line.call("hub.hello", **hello, by=by)["error"]["code"] == 403
                assert line.call("hub.roster", rows=[])["error"]["data"]["reason"] == "not_proved"
        with dialled(far) as line:
            assert "result" in line.call("hub.hello", **hello, by="folder")
            for method in ("hub.send", "hub.roster", "hub.settle", "hub.ping", "hub.hello"):
                assert line.call(method, messages=[], rows=[], outcomes=[])["error"]["data"]["reason"] == "not_proved"
        with dialled(far) as line:
            line.call("hub.hello", **hello, by="folder")
            assert line.call("hub.prove", proof="0" * 64)["error"]["data"]["reason"] == "not_paired"
        assert far.get("/v1/connections", admin=True).json["connections"] == []
        agents = far.get("/v1/agents", admin=True).json["agents"]
        assert all(row["connection"] == "local" for row in agents)


def test_a_stranger_hears_nothing_of_mail_that_waits() -> None:
    with hub(env=ENVIRONMENT) as far, dialled(far) as line:
        rows = [{"profile": "ops", "connection_id": "vps", "handle": "ops"}]
        with open_socket(f"{target(far)}/api/ws", proxy=None) as relay:
            relay.recv(timeout=10)
            sync = {"jsonrpc": "2.0", "id": 1, "method": "bot_relay.roster.sync", "params": {"agents": rows}}
            relay.send(json.dumps(sync))
            relay.recv(timeout=10)
            far.send("ops@vps", "hi", "ann")
            assert "outbox.pending" in str(relay.recv(timeout=10))  # who fetches mail hears of it
        with pytest.raises(TimeoutError):
            line.hear(0.5)


def test_hubs_of_one_user_link_without_a_code_and_others_do_not() -> None:
    with hubs("home", "garage") as (here, far):
        connect(here, "garage", target(far))
        wait_up(far, "home")
        here.call("DELETE", "/v1/connections/garage", admin=True)
        (far.folder / "link.key").chmod(0o644)  # it may be anybody's
        answer = here.call("PUT", "/v1/connections/garage", {"target": target(far)}, admin=True).json
        assert (answer["up"], answer["kind"]) == (False, "refused")
        assert "angelia pair" in answer["advice"]


def test_a_code_pairs_hubs_of_which_one_takes_tokens_only_and_they_link_again_after_a_restart() -> None:
    with (
        hubs("home") as (here,),
        hub(env={**ENVIRONMENT, "ANGELIA_HUB_NAME": "garage"}, args=("--behind-proxy",)) as far,
    ):
        live(here, "ann")
        far.call("POST", "/v1/agents/bob/claim", {"limit": 1}, admin=True)
        (far.folder / "link.key").chmod(0o640)  # as if it were another user's
        path, given = "/v1/connections/garage", {"target": target(far)}
        assert far.call("POST", "/v1/pairing", {}).status == 401
        code = far.call("POST", "/v1/pairing", {}, admin=True).json["code"]
        wrong = here.call("PUT", path, {**given, "code": "ABCD-EFGH-JKLM"}, admin=True)
        assert (wrong.status, wrong.code) == (403, "not_allowed")
        assert here.get("/v1/connections", admin=True).json["connections"] == []
        assert here.call("PUT", path, {**given, "code": code}, admin=True).json["up"]
        assert here.call("PUT", "/v1/connections/again", {**given, "code": code}, admin=True).status == 403
        (far.folder / "link.key").chmod(0o600)  # with another mode no hub starts; the key of the two goes first
        for each in (far, here):
            each.restart()
        wait_up(here, "garage")
        eventually(lambda: connection(far, "home").get("up"), 20, "up at the other side, too")
        wait_knows(here, "bob")
        sent = here.send("bob", "hi", "ann")["id"]
        wait_state(here, sent, "forwarded")


# ----------------------------------------------------------------------------------------------------------------- mail


@pytest.mark.parametrize("short", [True, False], ids=["short", "qualified"])
def test_questions_cross_both_ways_and_both_sides_tell_the_same_of_them(two: tuple[Hub, Hub], short: bool) -> None:
    here, far = two
    for asking, asker, answering, answerer, home in (
        (here, "ann", far, "bob", "garage"),
        (far, "bob", here, "ann", "home"),
    ):
        to = answerer if short else f"{answerer}@{home}"
        body = {"deep": [1, {"é": None}], "n": 2.5}
        asked = asking.send(to, "which?", asker, intent="request", body=body)["id"]
        question = take(answering, answerer)
        assert question["_meta"]["id"] == asked
        wait_state(asking, asked, "delivered")
        answered = reply(answering, answerer, asked, "two")
        answer = take(asking, asker)
        assert (answer["text"], answer["_meta"]["in_reply_to"]) == ("two", asked)
        assert answer["_meta"]["from"] == f"{answerer}@{home}"
        wait_state(asking, asked, "answered")
        wait_state(answering, asked, "answered")
        wait_state(answering, answered, "delivered")
        one, other = asking.receipt(asked)["message"], answering.receipt(asked)["message"]
        for name in one.keys() - {"from", "to", "expires_at", "verified"}:
            assert one.get(name) == other.get(name), name
        assert one["body"] == body


def test_what_is_under_way_is_forwarded_and_not_called_delivered(two: tuple[Hub, Hub]) -> None:
    here, far = two
    sent = here.send("bob", "hi", "ann")["id"]
    wait_state(here, sent, "forwarded")
    assert far.state(sent) == "queued"
    [delivery] = far.claim("bob")
    assert here.state(sent) == "forwarded"
    far.lease(delivery["lease"]["token"], "ack")
    wait_state(here, sent, "delivered")


def test_large_mail_crosses_both_ways(two: tuple[Hub, Hub]) -> None:
    """Whoever proved itself is no stranger any more, whose frames are small."""
    for at, sender, to, there in ((two[0], "ann", "bob", two[1]), (two[1], "bob", "ann", two[0])):
        sent = [letter * LARGE for letter in "abc"]
        for text in sent:
            at.send(to, text, sender)
        found = [eventually(lambda: there.poll(to, wait=1, limit=1), LINK_SECONDS)[0]["text"] for _ in sent]  # noqa: B023
        assert found == sent


def test_an_ask_that_waits_gets_the_answer_from_the_other_machine(two: tuple[Hub, Hub]) -> None:
    here, far = two
    asked = here.kept("POST", "/v1/ask", {"to": "bob", "text": "which?", "from": "ann", "wait_seconds": 0})
    assert asked.status in (200, 201, 202), asked.body
    question = take(far, "bob")
    reply(far, "bob", question["_meta"]["id"], "two")
    assert take(here, "ann")["text"] == "two"


# ---------------------------------------------------------------------------------------------------------------- away


def test_mail_for_a_hub_that_is_stopped_waits_and_how_much_since_when_is_told(two: tuple[Hub, Hub]) -> None:
    here, far = two
    far.stop()
    wait_down(here, "garage")
    sent = [here.send("bob", str(n), "ann")["id"] for n in range(3)]
    assert {here.state(each) for each in sent} == {"queued"}
    found = connection(here, "garage")
    assert (found["waiting"], found["kind"]) == (3, "unreachable")
    assert found["oldest_at"]
    assert "3 wait, the oldest for" in here.run("status").stdout
    said = here.run("send", "bob", "3", "--as", "ann").stdout
    assert said.endswith(" bob@garage: queued; waits until garage is connected again\n")
    sent.append(said.split()[0])
    here.restart()  # it is on disk
    far.start()
    came: list[str] = []
    eventually(lambda: len(drain(far, "bob", came)) >= 4, 20 * MARGIN, "it comes")
    assert came == sent
    assert connection(here, "garage")["waiting"] == 0


def test_mail_that_waits_too_long_ends_and_its_sender_is_told(two: tuple[Hub, Hub]) -> None:
    here, far = two
    far.stop()
    wait_down(here, "garage")
    sent = here.send("bob", "hi", "ann", intent="request", ttl_seconds=1)["id"]
    wait_state(here, sent, "failed")
    notice = take(here, "ann")
    assert (notice["_meta"]["about"], notice["_meta"]["reason"]) == (sent, "queued_expired")


def test_a_connection_may_refuse_at_once_while_it_is_down(two: tuple[Hub, Hub]) -> None:
    here, far = two
    connect(here, "garage", target(far), away="refuse")
    far.stop()
    wait_down(here, "garage")
    answer = here.kept("POST", "/v1/messages", {"to": "bob", "text": "hi", "from": "ann"})
    assert answer.code == "runtime_offline"
    far.start()
    wait_up(here, "garage")
    eventually(lambda: here.kept("POST", "/v1/messages", {"to": "bob", "text": "hi", "from": "ann"}).status == 201, 10)


def presence(at: Hub, handle: str) -> str:
    rows = at.get("/v1/agents", admin=True).json["agents"]
    return next(str(row["presence"]) for row in rows if row["handle"] == handle)


def test_an_agent_whose_program_is_gone_is_not_told_as_there(two: tuple[Hub, Hub]) -> None:
    """As its own hub shows it, within a second of what shows that; and again as soon as it is mended."""
    here, far = two
    program = far.base / "bob.sh"

    def mend() -> None:
        program.write_text("#!/bin/sh\ncat\n")
        program.chmod(0o755)

    def is_told(there: bool, seconds: float = 1 * MARGIN) -> None:
        def look() -> tuple[str, str, bool]:
            return presence(here, "bob"), presence(far, "bob"), far.get("/status").json["agents"]["bob"]["online"]

        wanted = ("online", "online", True) if there else ("unknown", "away", False)
        eventually(lambda: look() == wanted, seconds, f"{wanted}: {look()}")

    mend()
    adapter = {"adapter": {"kind": "command", "argv": [str(program)]}}
    assert far.call("PUT", "/v1/agents/bob", adapter, admin=True).status == 200
    is_told(there=True)
    program.unlink()
    sent = here.send("bob", "hi", "ann", intent="request")["id"]
    wait_state(here, sent, "failed")
    is_told(there=False)
    far.restart()
    wait_up(here, "garage")
    is_told(there=False, seconds=10 * MARGIN)
    mend()
    assert far.get("/v1/agents/bob/check", admin=True).json["problem"] is None
    is_told(there=True)
    program.unlink()
    assert far.get("/v1/agents/bob/check", admin=True).json["problem"]
    is_told(there=False)
    mend()
    assert here.kept("POST", "/v1/ask", {"to": "bob", "text": "hi", "from": "ann"}).json["reply"]["text"] == "hi"
    is_told(there=True)


@pytest.mark.parametrize("who", ["here", "far"])
def test_either_hub_killed_in_the_middle_of_mail_loses_none_and_gives_none_twice(
    two: tuple[Hub, Hub], who: str
) -> None:
    here, far = two
    there, back = list[str](), list[str]()
    sent_there, sent_back = list[str](), list[str]()
    for n in range(4):
        for _ in range(60):
            sent_there.append(here.send("bob", "x" * 2000, "ann")["id"])
            sent_back.append(far.send("ann", "x" * 2000, "bob")["id"])
        (here if who == "here" else far).restart()
        drain(far, "bob", there)
        drain(here, "ann", back)
        wait_up(here, "garage", 20 * MARGIN)
        assert n >= 0
    eventually(lambda: len(drain(far, "bob", there)) >= 240, 60, "all is there")
    eventually(lambda: len(drain(here, "ann", back)) >= 240, 60, "all is back")
    assert list(dict.fromkeys(there)) == sent_there
    assert list(dict.fromkeys(back)) == sent_back
    assert (len(there), len(back)) == (240, 240)
    eventually(lambda: {here.state(each) for each in sent_there} == {"delivered"}, 20, "the sender knows")


def test_a_hub_that_is_frozen_costs_nothing_but_time(two: tuple[Hub, Hub]) -> None:
    here, far = two
    os.kill(far.pid, signal.SIGSTOP)
    try:
        sent = [here.send("bob", str(n), "ann")["id"] for n in range(20)]
        assert here.get("/health").status == 200
        wait_down(here, "garage", 30 * MARGIN)
    finally:
        os.kill(far.pid, signal.SIGCONT)
    came: list[str] = []
    eventually(lambda: len(drain(far, "bob", came)) >= 20, 20 * MARGIN, "it comes")
    assert came == sent


# ----------------------------------------------------------------------------------------------------------------- end


@pytest.mark.parametrize("frozen", [False, True], ids=["well", "frozen"])
@pytest.mark.parametrize("who", ["here", "far"])
def test_the_end_of_a_hub_with_an_open_link_is_quick_and_quiet(two: tuple[Hub, Hub], who: str, frozen: bool) -> None:
    here, far = two
    ends, stays = (here, far) if who == "here" else (far, here)
    if frozen:
        os.kill(stays.pid, signal.SIGSTOP)
    try:
        for n in range(50):
            ends.send("bob" if who == "here" else "ann", str(n), "ann" if who == "here" else "bob")
        code, seconds = ends.stop()
        assert code == 0
        assert seconds < STOP_SECONDS * MARGIN, seconds
    finally:
        if frozen:
            os.kill(stays.pid, signal.SIGCONT)
    for each in two:
        assert "Traceback" not in each.output()
        assert "error:" not in each.output()
    ends.start()
    wait_up(here, "garage")


def test_both_sides_that_dial_each_other_end_up_with_one_link_each() -> None:
    with hubs("home", "garage") as (here, far):
        live(here, "ann")
        live(far, "bob")
        connect(here, "garage", target(far))
        answer = far.call("PUT", "/v1/connections/home", {"target": target(here)}, admin=True)
        assert answer.status in (200, 201)
        wait_up(here, "garage")
        eventually(lambda: connection(far, "home").get("up"), 20, "up at both")
        for each in (here, far):
            assert len(each.get("/v1/connections", admin=True).json["connections"]) == 1
        for each in (far, here):
            each.restart()
        wait_up(here, "garage", 30)
        eventually(lambda: connection(far, "home").get("up"), 30, "up at both again")
        sent = here.send("bob", "hi", "ann")["id"]
        wait_state(here, sent, "forwarded")


# ------------------------------------------------------------------------------------------------------ after a restore


def put_back(at: Hub, file: str) -> None:
    at.stop()
    done = at.run("restore", file)
    assert done.returncode == 0, done.stderr
    at.start()


def test_a_hub_that_was_restored_hears_again_what_became_of_its_mail(two: tuple[Hub, Hub], tmp_path: Path) -> None:
    """The copy knows a question that waits; its answer came after that, and is in the other hub alone."""
    here, far = two
    far.stop()
    wait_down(here, "garage")
    asked = here.send("bob", "which port?", "ann", intent="request")["id"]
    told = here.send("bob", "fyi", "ann")["id"]
    copy = str(tmp_path / "copy.db")
    assert here.run("backup", copy).returncode == 0
    far.start()
    came: list[str] = []
    eventually(lambda: drain(far, "bob", came)[1:] == [told], 20 * MARGIN, "both come")
    reply(far, "bob", asked, "8443")
    wait_state(here, asked, "answered")
    put_back(here, copy)
    assert here.state(asked) in ("queued", "forwarded", "leased", "answered")
    wait_state(here, asked, "answered")
    wait_state(here, told, "delivered")
    assert here.kept("GET", f"/v1/messages/{asked}").json["reply"]["text"] == "8443"


def test_mail_that_a_restored_hub_has_forgotten_goes_there_again(two: tuple[Hub, Hub], tmp_path: Path) -> None:
    here, far = two
    copy = str(tmp_path / "copy.db")
    assert far.run("backup", copy).returncode == 0
    asked = here.send("bob", "are you there?", "ann", intent="request")["id"]
    wait_state(here, asked, "forwarded")
    put_back(far, copy)
    came: list[str] = []
    eventually(lambda: asked in drain(far, "bob", came), 20 * MARGIN, "it comes again")
    reply(far, "bob", asked, "yes")
    wait_state(here, asked, "answered")


# ----------------------------------------------------------------------------------------------------- a full mailbox


def test_what_a_full_mailbox_far_away_makes_wait_arrives_in_its_order_counts_and_holds_up_nobody() -> None:
    count, room = 120, 20
    with hub(env={**ENVIRONMENT, "ANGELIA_HUB_NAME": "home"}) as here, hub(
        env={**ENVIRONMENT, "ANGELIA_HUB_NAME": "garage", "ANGELIA_LIMITS_MAILBOX_DELIVERIES_PER_SENDER": str(room)}
    ) as far:  # fmt: skip
        live(here, "ann")
        live(far, "bob", "cat")
        connect(here, "garage", target(far))
        wait_knows(here, "bob", "cat")
        sent = [here.send("bob", str(number), "ann", intent="request")["id"] for number in range(count)]
        eventually(lambda: far.inbox("bob")["total"] == room, 20, "the mailbox there is full")
        one = here.send("cat", "not held up", "ann")["id"]
        wait_state(here, one, "forwarded", seconds=1.0 * MARGIN)
        eventually(lambda: connection(here, "garage")["waiting"] == count - room, 20, "all that waits is counted")
        assert connection(here, "garage")["oldest_at"]
        assert "no room" in here.get(f"/v1/messages/{sent[-1]}", admin=True).json["deliveries"][0]["expected"]
        got: list[str] = []

        def slowly() -> bool:
            for each in far.claim("bob", 3):
                got.append(each["message"]["text"])
                far.lease(each["lease"]["token"], "ack")
            return len(got) == count

        eventually(slowly, 60, "all of it has come")
        assert got == [str(number) for number in range(count)]
        assert connection(here, "garage")["waiting"] == 0


def test_what_goes_to_another_hub_is_called_delivered_by_nobody_before_it_is(two: tuple[Hub, Hub]) -> None:
    here, far = two
    assert far.process is not None
    far.process.send_signal(signal.SIGSTOP)
    try:
        said = here.call("POST", "/broadcast?from=ann&to=bob@garage", "hello").json
        assert (said["delivered"], said["stored"]) == (False, True)
        row = here.get(f"/v1/messages/{said['id']}", admin=True).json["deliveries"][0]
        assert row["state"] == "leased"
        assert row["expected"].startswith("on its way to the hub there")
    finally:
        far.process.send_signal(signal.SIGCONT)


def test_hubs_that_stop_leave_no_fault_in_their_logs() -> None:
    """Each has dialled one, and was dialled by another: some lines end before the others."""
    with hubs(*NAMES) as ring:
        for number, at in enumerate(ring):
            connect(at, NAMES[number - 1], target(ring[number - 1]))
        for at in ring:
            at.stop()
            assert "Exception" not in at.output(), at.output()[-3000:]
