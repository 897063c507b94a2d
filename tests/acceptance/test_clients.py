"""Both clients against a real hub: killed, frozen, away and back; two readers of one name; leases that run out."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from angelia.client.client import Client
from angelia.client.core.keeping import Held
from angelia.client.errors import AskFailed, HubError, LeaseLost, Superseded, TimedOut
from angelia.client.ids import new_id
from tests.acceptance.hub import MARGIN, ROOT, Hub, environment, eventually, hub
from tests.rigs.drivers import DRIVERS

COLD_START = 1.5  # of `angelia send`, against that of http.client


class EnoughRead(Exception):
    """The reader of a test ends."""


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> Any:
    return DRIVERS[request.param]


@pytest.fixture(scope="module")
def running() -> Iterator[Hub]:
    with hub() as started:
        yield started


@pytest.fixture
def agent(running: Hub, request: pytest.FixtureRequest) -> str:
    """A name that only this test uses, known and with an empty mailbox."""
    name = f"c{abs(hash(request.node.nodeid)) % 10**9}"
    running.claim(name)
    return name


def is_online(at: Hub, name: str) -> bool:
    return bool(at.get(f"/v1/agents/{name}").json["presence"] == "online")


def numbered(count: int, start: int = 0) -> list[str]:
    return [f"no. {number}" for number in range(start, start + count)]


# ------------------------------------------------------------------------------------------------------------- resuming


def test_messages_outlive_a_hub_that_is_killed_and_each_comes_once(driver: Any) -> None:
    """The kill comes while one is in hand and others are on their way: its ack is lost, and it is offered again."""
    told: list[str] = []
    with hub() as at, driver(at.url, name="scout") as client:
        at.claim("scout")
        for text in numbered(30):
            at.send("scout", text, "sender")
        seen: list[str] = []
        messages = client.messages(notice=told.append)
        for message in messages:
            seen.append(message["text"])
            if len(seen) in (10, 20):
                at.restart()
            if len(seen) == 30:
                break
        messages.close()
        assert seen == numbered(30)
        rows = at.inbox("scout", state="queued,leased,delivered")["deliveries"]
        states = {row["message"]["text"]: row["state"] for row in rows}
        assert all(states[text] == "delivered" for text in numbered(29))
    assert len([text for text in told if text == "the hub is back"]) in (0, 1, 2)


def test_an_auto_stream_resumes_exactly(driver: Any) -> None:
    """Across kills none is lost, none is shown twice, and the ids only rise."""
    with hub() as at, driver(at.url, name="scout") as client, ThreadPoolExecutor(1) as sending:
        at.claim("scout")
        items = client.stream(ack="auto")
        for text in numbered(10):
            at.send("scout", text, "sender")
        found = [next(items) for _ in range(5)]
        at.kill9()

        def back() -> None:
            at.start()
            for text in numbered(10, 10):
                at.send("scout", text, "sender")

        done = sending.submit(back)
        found += [next(items) for _ in range(15)]
        done.result(30)
        items.close()
        assert [item.data["message"]["text"] for item in found] == numbered(20)
        places = [int(item.id.partition("-")[2]) for item in found]
        assert places == sorted(set(places))


def test_a_stream_that_hears_goodbye_comes_back() -> None:
    with hub() as at, DRIVERS["asyncio"](at.url, name="scout") as client:
        messages = client.messages()
        at.claim("scout")
        at.send("scout", "before", "sender")
        assert next(messages)["text"] == "before"
        at.stop()
        at.start()
        at.send("scout", "after", "sender")
        assert next(messages)["text"] == "after"
        messages.close()


def test_readers_of_a_hub_whose_store_was_wiped_are_known_again_by_themselves(driver: Any) -> None:
    """F090. The hub that comes back has never heard of them; all that they do is to read on."""
    with hub() as at, ExitStack() as stack:
        clients = {name: stack.enter_context(driver(at.url, name=name)) for name in ("streams", "listens", "claims")}
        texts: dict[str, list[str]] = {name: [] for name in clients}

        def work() -> None:
            def body(claim: Held, message: dict[str, Any]) -> None:
                texts["claims"].append(message["text"])
                if message["text"] == "after":
                    raise EnoughRead

            with suppress(EnoughRead):
                clients["claims"].work(body, wait_seconds=10)

        def read(name: str, items: Any) -> None:
            for item in items:
                message = item if name == "listens" else item.data.get("message")
                if message is not None:
                    texts[name].append(message["text"])
                    if message["text"] == "after":
                        break
            items.close()

        readers = [
            threading.Thread(target=work, daemon=True),
            threading.Thread(target=read, args=("streams", clients["streams"].stream(ack="auto")), daemon=True),
            threading.Thread(target=read, args=("listens", clients["listens"].messages()), daemon=True),
        ]
        for reader in readers:
            reader.start()
        for text in ("before", "after"):
            for name in clients:
                eventually(lambda: at.get(f"/v1/agents/{name}").status == 200, 20, f"{name} is known")  # noqa: B023
            sent = [at.send(name, text, "sender")["id"] for name in clients]
            if text == "before":
                eventually(lambda: {at.state(each) for each in sent} == {"delivered"}, 20, f"{texts}")  # noqa: B023
                at.get("/status")  # what was told of the acks is on its way before this is answered
                at.kill9()
                shutil.rmtree(at.folder)
                at.start()
        for reader in readers:
            reader.join(20)
    assert texts == {name: ["before", "after"] for name in clients}


def test_what_is_finished_is_known_by_whoever_is_told(driver: Any, running: Hub, agent: str) -> None:
    ids = [running.send(agent, text, "sender")["id"] for text in numbered(3)]
    with driver(running.url, name=agent) as client:
        messages = client.messages(finished={ids[0], ids[1]})
        assert next(messages)["id"] == ids[2]
        messages.close()
    assert running.state(ids[0]) == running.state(ids[1]) == "delivered"


def test_a_message_whose_loop_broke_off_comes_again(driver: Any, running: Hub, agent: str) -> None:
    """And what stood behind it in the mailbox was in nobody's hands."""
    ids = [running.send(agent, text, "sender")["id"] for text in numbered(3)]
    with driver(running.url, name=agent) as client:
        messages = client.messages()
        assert next(messages)["id"] == ids[0]
        messages.close()
    eventually(lambda: not is_online(running, agent))
    found = running.claim(agent, 3)
    assert [(row["message"]["id"], row["attempt"]) for row in found] == [(ids[0], 2), (ids[1], 1), (ids[2], 1)]


def test_a_takeover_ends_the_first_for_good(driver: Any, running: Hub, agent: str) -> None:
    with driver(running.url, name=agent) as first, driver(running.url, name=agent) as second:
        held, ended = first.messages(), threading.Event()

        def wait() -> None:
            with pytest.raises(Superseded, match=agent):
                next(held)
            ended.set()

        waiting = threading.Thread(target=wait)
        waiting.start()
        eventually(lambda: is_online(running, agent))
        messages = second.messages()
        with ThreadPoolExecutor(1) as reading:
            found = reading.submit(lambda: next(messages))
            assert ended.wait(10 * MARGIN)
            assert list(held) == []
            time.sleep(3)  # longer than a hub's `retry:`: nobody comes back to throw the second one out
            running.send(agent, "to the second", "sender")
            assert found.result(10)["text"] == "to the second"
        messages.close()
        waiting.join(10)


# -------------------------------------------------------------------------------------------------------------- sending


def test_one_id_is_one_message_and_one_key_is_one_message(driver: Any, running: Hub, agent: str) -> None:
    one = new_id()
    with driver(running.url, name="sender") as client:
        first = client.send(agent, "hi", id=one)
        again = client.send(agent, "hi", id=one)
        assert (first["duplicate"], again["duplicate"]) == (False, True)
        keyed = [client.send(agent, "deployed", key=f"for {agent}") for _ in range(2)]
        assert keyed[0]["id"] == keyed[1]["id"]
        for given in ({"id": one}, {"key": f"for {agent}"}):
            with pytest.raises(HubError) as caught:
                client.send(agent, "something else", **given)
            assert (caught.value.status, caught.value.code) == (409, "id_reused")
    assert len(running.claim(agent, 10)) == 2


def test_a_question_and_its_answer(driver: Any, running: Hub, agent: str) -> None:
    with driver(running.url, name="asker") as asker, Client(running.url, name=agent) as answerer:

        def answer() -> None:
            for claim in answerer.claims(wait_seconds=10):
                with claim as message:
                    answerer.reply(message["id"], message["text"].upper())
                return

        with ThreadPoolExecutor(1) as answering:
            answering.submit(answer)
            assert asker.ask(agent, "which port?", wait_seconds=20)["reply"]["text"] == "WHICH PORT?"
        with pytest.raises(TimedOut) as late:
            asker.ask(agent, "anybody?", wait_seconds=0.2)
        with pytest.raises(AskFailed) as failed:
            asker.ask(agent, "quickly!", wait_seconds=20, ttl_seconds=1)
        assert asker.message(late.value.message_id)["deliveries"][0]["state"] == "queued"
        assert failed.value.reason == "queued_expired"


def test_a_hub_that_is_being_replaced_costs_a_pause_and_nothing_else(driver: Any) -> None:
    with hub() as at, driver(at.url, name="sender", patience_seconds=20) as client, ThreadPoolExecutor(1) as replacing:
        at.claim("scout")
        client.send("scout", "no. 0")
        frozen = at.process
        assert frozen is not None
        frozen.send_signal(signal.SIGSTOP)  # the request is on its way when the hub dies
        replacing.submit(at.restart)
        client.send("scout", "no. 1")
        assert [row["message"]["text"] for row in at.claim("scout", 10)] == numbered(2)


def test_a_hub_that_is_gone_already_is_waited_for(driver: Any) -> None:
    with hub() as at, driver(at.url, name="sender", patience_seconds=20) as client, ThreadPoolExecutor(1) as replacing:
        at.claim("scout")
        client.send("scout", "no. 0")
        at.kill9()
        replacing.submit(at.start)
        client.send("scout", "no. 1")
        assert [row["message"]["text"] for row in at.claim("scout", 10)] == numbered(2)


def test_an_ack_waits_for_a_hub_that_is_being_replaced(driver: Any) -> None:
    with hub() as at, driver(at.url, name="scout", patience_seconds=20) as client, ThreadPoolExecutor(1) as replacing:
        at.claim("scout")
        at.send("scout", "no. 0", "sender")
        (taken,) = client.claim()["deliveries"]
        at.kill9()
        replacing.submit(at.start)
        assert client.ack(taken["lease"]["token"])["state"] == "delivered"


# ----------------------------------------------------------------------------------------------------------- the outbox


def test_ten_that_were_kept_arrive_once_and_in_order(driver: Any, tmp_path: Path) -> None:
    with hub() as at:
        at.claim("scout")
        at.kill9()
        with driver(at.url, name="sender", outbox=tmp_path / "out") as client:
            for text in numbered(10):
                answer = client.send("scout", text)
                assert answer["kept"]
                assert answer["deliveries"] == [{"to": "scout", "state": "kept"}]
            assert client.flush() == {"sent": [], "refused": [], "left": 10}
        at.start()
        with driver(at.url, name="sender", outbox=tmp_path / "out") as client:
            last = client.send("scout", "no. 10")
            assert len(last["flushed"]["sent"]) == 10
            assert last["deliveries"][0]["state"] == "queued"
            assert client.flush() == {"sent": [], "refused": [], "left": 0}
        assert [row["message"]["text"] for row in at.claim("scout", 20)] == numbered(11)


def test_what_a_frozen_hub_heard_and_the_outbox_kept_is_one_message(driver: Any, tmp_path: Path) -> None:
    with hub() as at, driver(at.url, name="sender", outbox=tmp_path / "out", answer_seconds=0.5) as client:
        at.claim("scout")
        client.send("scout", "no. 0")
        process = at.process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        kept = client.send("scout", "no. 1")
        assert kept["kept"]
        process.send_signal(signal.SIGCONT)
        eventually(lambda: at.get(f"/v1/messages/{kept['id']}").status == 200)
        assert client.flush()["sent"] == [kept["id"]]
        assert [row["message"]["text"] for row in at.claim("scout", 10)] == numbered(2)


def test_kills_of_hub_and_sender_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    """Whatever the sender was told of as sent or kept arrives, once, in its order."""
    with hub() as at:
        at.claim("scout")
        told: list[str] = []
        for turn in range(6):
            if turn % 2:
                at.kill9()
            elif at.process is None:
                at.start()
            sender = subprocess.Popen(
                [sys.executable, "-u", "-c", SENDER, at.url, str(tmp_path / "out"), str(turn)],
                env=environment(tmp_path), stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            assert sender.stdout is not None
            told += [sender.stdout.readline().strip() for _ in range(15)]
            sender.kill()
            told += [line.strip() for line in sender.stdout if line.endswith("\n")]
            sender.wait(10)
            sender.stdout.close()
        if at.process is None:
            at.start()
        with Client(at.url, name="sender", outbox=tmp_path / "out") as client:
            assert client.flush()["left"] == 0
        arrived = [row["message"]["text"] for _ in range(20) for row in at.claim("scout", 100)]
        assert len(arrived) == len(set(arrived))
        assert [text for text in arrived if text in set(told)] == told
        assert len(set(arrived) - set(told)) <= 6  # of each sender that was killed, one that it could not tell of


SENDER = """
import sys
from angelia.client.client import Client
url, out, turn = sys.argv[1:]
with Client(url, name="sender", outbox=out, patience_seconds=1) as client:
    for number in range(1000):
        client.send("scout", f"{turn}-{number}")
        print(f"{turn}-{number}")
"""


def test_several_processes_share_an_outbox(tmp_path: Path) -> None:
    with hub() as at:
        at.claim("scout")
        at.kill9()
        senders = [
            subprocess.Popen(
                [sys.executable, "-c", FEW, at.url, str(tmp_path / "out"), str(number)], env=environment(tmp_path)
            )
            for number in range(3)
        ]
        assert [sender.wait(60) for sender in senders] == [0, 0, 0]
        at.start()
        senders = [
            subprocess.Popen(
                [sys.executable, "-c", FEW, at.url, str(tmp_path / "out"), str(number)], env=environment(tmp_path)
            )
            for number in range(3, 6)
        ]
        assert [sender.wait(60) for sender in senders] == [0, 0, 0]
        arrived = [row["message"]["text"] for row in at.claim("scout", 100)]
        assert len(arrived) == len(set(arrived)) == 60
        for number in range(6):
            assert [text for text in arrived if text.startswith(f"{number}-")] == [f"{number}-{n}" for n in range(10)]


FEW = """
import sys
from angelia.client.client import Client
url, out, turn = sys.argv[1:]
with Client(url, name="sender", outbox=out) as client:
    for number in range(10):
        client.send("scout", f"{turn}-{number}")
    client.flush()
"""


# --------------------------------------------------------------------------------------------------------------- claims


def test_a_claim_is_kept_for_three_times_its_lease(driver: Any, running: Hub, agent: str) -> None:
    message_id = running.send(agent, "a long one", "sender")["id"]
    others: list[Any] = []

    def body(claim: Held, message: dict[str, Any]) -> None:
        ends = time.monotonic() + 5
        while time.monotonic() < ends:
            others.extend(running.claim(agent))
            claim.check()
            time.sleep(0.1)

    with driver(running.url, name=agent) as client:
        client.work(body, lease_seconds=1.5, wait_seconds=0)
    assert others == []
    [row] = running.receipt(message_id)["deliveries"]
    assert (row["state"], row["attempt"]) == ("delivered", 1)


def test_a_lease_that_another_took_is_told_at_the_end(driver: Any, running: Hub, agent: str) -> None:
    running.send(agent, "hi", "sender")
    taken: list[Any] = []

    def body(claim: Held, message: dict[str, Any]) -> None:
        taken.extend(eventually(lambda: running.claim(agent), 10 * MARGIN))
        assert claim.lost

    with driver(running.url, name=agent) as client, pytest.raises(LeaseLost) as caught:
        client.work(body, lease_seconds=1, keep_seconds=0, wait_seconds=0)
    assert taken[0]["attempt"] == 2
    assert (caught.value.status, caught.value.extra["holder"]) == (409, "claim")


def test_work_that_fails_comes_again(driver: Any, running: Hub, agent: str) -> None:
    running.send(agent, "hi", "sender")
    attempts: list[int | None] = []

    def body(claim: Held, message: dict[str, Any]) -> None:
        attempts.append(claim.attempt)
        if len(attempts) == 1:
            raise RuntimeError("not yet")

    with driver(running.url, name=agent) as client:
        with pytest.raises(RuntimeError, match="not yet"):
            client.work(body)
        client.work(body, wait_seconds=3)
    assert attempts == [1, 2]


def test_claims_outlive_a_hub_that_is_killed_and_each_is_worked_on_once(driver: Any) -> None:
    """The kill comes while one is worked on: the next hub offers it again, and it is known."""
    seen: list[str] = []
    with hub() as at, driver(at.url, name="scout", patience_seconds=1) as client:
        at.claim("scout")
        for text in numbered(6):
            at.send("scout", text, "sender")

        def body(claim: Held, message: dict[str, Any]) -> None:
            seen.append(message["text"])
            if len(seen) == 3:
                at.restart()

        client.work(body, wait_seconds=2)
        assert seen == numbered(6)
        assert at.inbox("scout")["deliveries"] == []


# ---------------------------------------------------------------------------------------------------------- cold starts


def cpu_seconds(code: str) -> float:
    """What a Python needed for it."""
    pid = os.posix_spawn(
        sys.executable, [sys.executable, "-c", code], environment(Path("/tmp"), PYTHONPATH=str(ROOT / "src"))
    )
    _, status, used = os.wait4(pid, 0)
    assert status == 0
    return used.ru_utime + used.ru_stime


def test_a_send_starts_nearly_as_fast_as_http_does() -> None:
    """The least of both counts: whatever else this machine does can only add to it."""
    send, http = "import angelia.cli.main, angelia.cli.send", "import http.client"
    cpu_seconds(send)  # so that what is compiled is compiled
    sends, https = [cpu_seconds(send)], [cpu_seconds(http)]
    while len(sends) < 60 and (len(sends) < 5 or min(sends) > COLD_START * min(https)):
        sends.append(cpu_seconds(send))
        https.append(cpu_seconds(http))
    assert min(sends) <= COLD_START * min(https), (min(sends), min(https))


@pytest.mark.parametrize("module", ["asyncio", "typing", "angelia.client.outbox", "angelia.client.core.following"])
def test_a_send_does_not_load_what_it_does_not_need(module: str) -> None:
    code = f"import sys, angelia.cli.main, angelia.cli.send; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
