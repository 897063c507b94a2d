"""Streams on real sockets: breaks, resuming, taking over, stopping, thousands of them, and readers that do not read."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from httpx_sse import connect_sse

from angelia.doors.http.stream import SPREAD_MS
from angelia.model.limits import Limits
from tests.acceptance.hub import MARGIN, Hub, Stream, environment, eventually, hub
from tests.rigs.talk import Talk

STOP_SECONDS = 3
STALL_SECONDS = 10
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def running() -> Iterator[Hub]:
    with hub() as started:
        yield started


@pytest.fixture
def agent(running: Hub, request: pytest.FixtureRequest) -> str:
    """A name that only this test uses, known and with an empty mailbox."""
    name = f"a{abs(hash(request.node.nodeid)) % 10**9}"
    running.claim(name)
    return name


def native(name: str, ack: str = "auto", **query: str) -> str:
    return "&".join([f"/v1/agents/{name}/stream?ack={ack}", *(f"{key}={value}" for key, value in query.items())])


def texts(events: list[Any]) -> list[str]:
    return [event.json["message"]["text"] for event in events]


def is_online(at: Hub, name: str) -> bool:
    return bool(at.get(f"/v1/agents/{name}").json["presence"] == "online")


def gone(at: Hub, name: str) -> None:
    eventually(lambda: not is_online(at, name), what=f"{name} is away")


# ------------------------------------------------------------------------------------------------- breaks and resuming


def test_what_is_sent_while_a_stream_breaks_arrives_when_it_is_back(running: Hub, agent: str) -> None:
    """Again and again, with the break at any moment: each arrives, and none under a second id.

    Not in order: what came back may come after later ones. Few enough that none waits for ten breaks: each of these may
    have been the message's doing, and the tenth makes it a dead letter.
    """
    seen: list[str] = []
    ids: dict[str, str] = {}
    with Stream(running, native(agent)) as stream:
        running.send(agent, "first", "sender")
        last_id = stream.next().id
    with ThreadPoolExecutor(1) as other:
        for round_ in range(30):
            stream = Stream(running, native(agent), last_event_id=last_id)
            sending = other.submit(_send_five, running, agent, round_ * 5)
            for event in stream.messages(round_ % 9) if round_ % 9 else []:
                _see(event.json, seen, ids)
            last_id = stream.last_id or last_id
            stream.abort()
            sending.result(20)
    with Stream(running, native(agent), last_event_id=last_id) as stream:
        while len(seen) < 150:
            _see(stream.next().json, seen, ids)
        assert stream.quiet(0.3) == []
    assert sorted(map(int, seen)) == list(range(150))


def _send_five(at: Hub, to: str, first: int) -> None:
    for number in range(first, first + 5):
        at.send(to, str(number), "breaker")


def _see(item: dict[str, Any], seen: list[str], ids: dict[str, str]) -> None:
    """Note a message once by its id, as a client does."""
    text, message_id = item["message"]["text"], item["message"]["id"]
    if ids.setdefault(text, message_id) != message_id:
        raise AssertionError(f"{text} came under two ids")
    if text not in seen:
        seen.append(text)


def test_a_resume_shows_what_was_delivered_after_the_id_and_no_more(running: Hub, agent: str) -> None:
    with Stream(running, native(agent)) as stream:
        for number in range(6):
            running.send(agent, str(number), "sender")
        events = stream.messages(6)
        eventually(lambda: running.inbox(agent)["total"] == 0)
    gone(running, agent)
    running.send(agent, "6", "sender")
    with Stream(running, native(agent), last_event_id=events[2].id) as stream:
        found = stream.messages(4)
        assert texts(found) == ["3", "4", "5", "6"]
        assert [event.json.get("again", False) for event in found] == [True, True, True, False]
        assert [event.json["attempt"] for event in found] == [1, 1, 1, 1]
        seqs = [event.json["seq"] for event in found]
        assert seqs == sorted(set(seqs))
        assert all("lease" not in event.json for event in found)
        assert stream.quiet(0.2) == []


def test_an_auto_stream_that_resumes_settles_what_it_had_seen(running: Hub, agent: str) -> None:
    with Stream(running, native(agent)) as stream:
        sent = running.send(agent, "seen", "sender")
        last_id = stream.next().id
        stream.abort()
    with Stream(running, native(agent), last_event_id=last_id) as stream:
        assert stream.quiet(0.3) == []
        assert running.state(sent["id"]) == "delivered"


def test_the_id_may_stand_in_the_query_and_the_header_wins(running: Hub, agent: str) -> None:
    with Stream(running, native(agent)) as stream:
        for number in range(3):
            running.send(agent, str(number), "sender")
        first, second, _ = stream.messages(3)
        eventually(lambda: running.inbox(agent)["total"] == 0)
    gone(running, agent)
    with Stream(running, native(agent, last_event_id=second.id)) as stream:
        assert texts([stream.next()]) == ["2"]
    gone(running, agent)
    with Stream(running, native(agent, last_event_id=second.id), last_event_id=first.id) as stream:
        assert texts(stream.messages(2)) == ["1", "2"]


@pytest.mark.parametrize("asked", ["another epoch", "from the future", "nonsense", "1-2-3", "é", "-", "a" * 4000])
def test_an_id_that_cannot_be_resumed_from_is_told_and_then_everything_comes(
    running: Hub, agent: str, asked: str
) -> None:
    with Stream(running, native(agent)) as stream:
        running.send(agent, "0", "sender")
        first = stream.next()
        eventually(lambda: running.inbox(agent)["total"] == 0)
    gone(running, agent)
    running.send(agent, "1", "sender")
    epoch = first.id.split("-")[0]
    wrong = {
        "another epoch": f"{int(epoch, 16) ^ 1:08x}-{first.json['seq']}",
        "from the future": f"{epoch}-{first.json['seq'] + 10**6}",
    }.get(asked, asked)
    path = native(agent, last_event_id="%C3%A9") if asked == "é" else native(agent)
    with Stream(running, path, last_event_id=None if asked == "é" else wrong) as stream:
        reset = stream.next()
        assert reset.kind == "reset"
        assert reset.json["asked"] == wrong[:80]
        assert reset.json["why"]
        assert reset.json["earliest"] is None or reset.json["earliest"].startswith(epoch)
        assert texts(stream.messages(2)) == ["0", "1"]


def test_an_id_is_not_forgotten_because_its_message_was_handed_over_again(running: Hub, agent: str) -> None:
    """It took a new seq; nothing after the old one is missing, so there is nothing to reset for."""
    running.send(agent, "work", "sender")
    ids = []
    for _ in range(3):
        with Stream(running, native(agent, "manual")) as stream:
            ids.append(stream.next().id)
        gone(running, agent)
    with Stream(running, native(agent, "manual"), last_event_id=ids[0]) as stream:
        assert stream.next().kind == "message"


def test_what_came_back_takes_a_new_seq(running: Hub, agent: str) -> None:
    """What a reader sees only rises, so that its last id never hides anything."""
    for number in range(2):
        running.send(agent, str(number), "sender")
    [held] = running.claim(agent)
    with Stream(running, native(agent)) as stream:
        assert texts([one := stream.next()]) == ["1"]
        running.lease(held["lease"]["token"], "nack", delay_seconds=0)
        again = stream.next()
    assert texts([again]) == ["0"]
    assert again.json["seq"] > one.json["seq"] > held["seq"]
    assert again.json["attempt"] == 2


# ------------------------------------------------------------------------------------------------------- a second one


def test_a_second_stream_takes_over_without_a_loss(running: Hub, agent: str) -> None:
    seen: list[str] = []
    ids: dict[str, str] = {}
    stream = Stream(running, native(agent))
    with ThreadPoolExecutor(1) as other:
        sending = other.submit(lambda: [running.send(agent, str(number), "sender") for number in range(200)])
        for _ in range(10):
            for event in stream.messages(10):
                _see(event.json, seen, ids)
            following = Stream(running, native(agent), last_event_id=stream.last_id)
            *rest, last = stream.rest(5)
            assert last.kind == "superseded"
            assert last.json
            for event in rest:
                _see(event.json, seen, ids)
            stream = following
        sending.result(20)
        while len(seen) < 200:
            _see(stream.next().json, seen, ids)
    stream.close()
    assert [int(text) for text in seen] == list(range(200))


def test_two_streams_of_one_name_show_in_the_status(running: Hub, agent: str) -> None:
    with Stream(running, native(agent)), Stream(running, native(agent, mode="observe")):
        assert any(agent in problem for problem in running.get("/status").json["problems"])


def test_a_stream_that_took_over_ends_the_old_ones_leases(running: Hub, agent: str) -> None:
    with Stream(running, native(agent, "manual")) as old:
        running.send(agent, "work", "sender")
        first = old.next().json
        with Stream(running, native(agent, "manual")) as new:
            second = new.next().json
            assert second["message"]["id"] == first["message"]["id"]
            assert second["attempt"] == 2
            refused = running.lease(first["lease"]["token"], "ack")
            assert (refused.status, refused.code) == (409, "lease_lost")
            assert running.lease(second["lease"]["token"], "ack").status == 200


# ----------------------------------------------------------------------------------------------------- manual, observe


def test_a_manual_stream_holds_at_most_sixteen(running: Hub, agent: str) -> None:
    for number in range(40):
        running.send(agent, str(number), "sender")
    with Stream(running, native(agent, "manual")) as stream:
        first = stream.messages(16)
        assert stream.quiet(0.3) == []
        for event in first[:3]:
            assert running.lease(event.json["lease"]["token"], "ack").status == 200
        assert texts(stream.messages(3)) == ["16", "17", "18"]
        assert stream.quiet(0.3) == []
    gone(running, agent)
    with Stream(running, native(agent, "manual")) as stream:
        again = stream.messages(16)
        assert texts(again) == [str(number) for number in range(3, 19)]
        assert {event.json["attempt"] for event in again} == {2}


def test_what_a_manual_stream_held_is_offered_at_once_when_it_breaks(running: Hub, agent: str) -> None:
    stream = Stream(running, native(agent, "manual"))
    sent = running.send(agent, "work", "sender")
    held = stream.next().json
    begun = time.monotonic()
    stream.abort()
    [again] = running.claim(agent, wait_seconds=20)
    assert time.monotonic() - begun < 1 * MARGIN
    assert (again["message"]["id"], again["attempt"]) == (sent["id"], 2)
    assert running.lease(held["lease"]["token"], "ack").code == "lease_lost"


def test_a_manual_streams_resume_settles_nothing(running: Hub, agent: str) -> None:
    with Stream(running, native(agent, "manual")) as stream:
        running.send(agent, "work", "sender")
        last_id = stream.next().id
    gone(running, agent)
    with Stream(running, native(agent, "manual"), last_event_id=last_id) as stream:
        assert stream.next().json["attempt"] == 2


def test_an_observer_reads_along_and_takes_nothing(running: Hub, agent: str) -> None:
    with Stream(running, native(agent, mode="observe")) as observer:
        sent = running.send(agent, "for all to see", "sender")
        assert texts([observer.next()]) == ["for all to see"]
        assert running.state(sent["id"]) == "queued"
        with Stream(running, native(agent, "manual")) as own:
            token = own.next().json["lease"]["token"]
            assert running.lease(token, "ack").status == 200
            running.send(agent, "more", "sender")
            assert texts([own.next()]) == texts([observer.next()]) == ["more"]


# ------------------------------------------------------------------------------------------------------------ stopping


async def _open_many(at: Hub, count: int, *, prefix: str = "many") -> list[tuple[asyncio.StreamReader, Any]]:
    async def open_one(number: int) -> tuple[asyncio.StreamReader, Any]:
        async with slots:
            reader, writer = await asyncio.open_connection("127.0.0.1", at.port)
            writer.write(f"GET /subscribe?agent={prefix}{number} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            await reader.readuntil(b": connected\n")
            return reader, writer

    slots = asyncio.Semaphore(200)
    async with asyncio.TaskGroup() as tasks:
        opened = [tasks.create_task(open_one(number)) for number in range(count)]
    return [task.result() for task in opened]


async def test_a_thousand_streams_are_told_goodbye() -> None:
    """SIGTERM: a last event `bye` with a retry hint for each, and the end within 3 s, whoever does not read."""
    with hub() as at, Stream(at, native("stuck"), receive_bytes=4096):
        for _ in range(100):
            at.send("stuck", "x" * 100_000, "sender")
        clients = await _open_many(at, 1000)
        stopping = asyncio.create_task(asyncio.to_thread(at.stop))  # noqa: TID251 - awaited three lines below
        async with asyncio.timeout(STOP_SECONDS * MARGIN):
            endings = await asyncio.gather(*(reader.read() for reader, _ in clients))
        code, took = await stopping
        assert (code, took < STOP_SECONDS * MARGIN) == (0, True), f"{took:.1f} s"
        hints = []
        for ending in endings:
            assert b"event: bye\n" in ending
            hints.append(int(ending.split(b"\nretry: ")[-1].split(b"\n")[0]))
            assert json.loads(ending.split(b"\ndata: ")[-1].split(b"\n")[0])["retry_ms"] == hints[-1]
            assert ending.endswith(b"0\r\n\r\n")
        _are_spread(hints)
        for _, writer in clients:
            writer.close()


def _are_spread(hints: Sequence[int]) -> None:
    """F072. Whoever was cut at once does not come back in step: over 5 s at least, and no part of that is crowded."""
    first = Limits().retry_milliseconds
    assert all(first <= hint < first + SPREAD_MS for hint in hints), (min(hints), max(hints))
    assert max(hints) - min(hints) > 5000
    tenths = Counter((hint - first) * 10 // SPREAD_MS for hint in hints)
    assert max(tenths.values()) < len(hints) / 5, tenths  # of a thousand, 200: chance makes it 130


def _all_gone(at: Hub) -> None:
    eventually(lambda: at.get("/status").json["streams"] == 0, 20)


async def test_streams_by_the_thousand_leave_nothing_behind() -> None:
    """2,000 agents come and go: no storm of notices, and memory and descriptors are back where they were."""
    with hub() as at:
        for writer in [writer for _, writer in await _open_many(at, 200)]:  # warm: what is kept for good is kept
            writer.close()
        await asyncio.to_thread(_all_gone, at)
        memory, descriptors = at.memory, at.descriptors
        for round_ in range(2):
            clients = await _open_many(at, 2000)
            assert at.get("/status").json["streams"] == 2000
            assert at.descriptors > descriptors + 1900
            for _, writer in clients:
                if round_:
                    writer.transport.abort()
                else:
                    writer.close()
            await asyncio.to_thread(_all_gone, at)
        status = at.get("/status").json
        assert {name: count for name, count in status["queues"].items() if count} == {}
        assert eventually(lambda: at.descriptors <= descriptors + 5, 10)
        assert at.memory - memory < 40 * MIB, f"{(at.memory - memory) / MIB:.0f} MiB more"


# ------------------------------------------------------------------------------------------------------- slow readers


@pytest.mark.timeout(120)
def test_a_reader_that_does_not_read_costs_little_and_is_cut_off() -> None:
    """Constant memory, cut after 10 s without progress, the rest unaffected, and an exact resume."""
    with hub() as at:
        at.claim("slow"), at.claim("quick")
        slow = Stream(at, native("slow"), receive_bytes=4096)
        quick = Stream(at, native("quick"))
        memory = at.memory
        text = "x" * 100_000
        for number in range(160):  # 16 MB, over its window of 1 MiB and whatever the kernel holds
            at.send("slow", f"{number} {text}", "sender")
        begun = time.monotonic()
        while is_online(at, "slow"):
            at.send("quick", "now", "sender")
            quick.next(1 * MARGIN)
            assert time.monotonic() - begun < STALL_SECONDS * MARGIN, "it is still there"
            assert at.memory - memory < 30 * MIB
        took = time.monotonic() - begun
        assert took > STALL_SECONDS / 2, f"cut after {took:.1f} s"
        seen = [int(text.split()[0]) for text in texts([e for e in slow.rest() if e.kind == "message"])]
        assert seen == list(range(len(seen)))
        with Stream(at, native("slow"), last_event_id=slow.last_id or None) as stream:
            while len(seen) < 160:
                item = stream.next().json
                number = int(item["message"]["text"].split()[0])
                if number not in seen:
                    assert number == len(seen)
                    seen.append(number)
        assert seen == list(range(160))
        quick.close()


def test_a_reader_that_reads_slowly_is_not_cut_off() -> None:
    with hub(env={"ANGELIA_LIMITS_STREAM_STALL_SECONDS": "1"}) as at:
        at.claim("slow")
        with Stream(at, native("slow"), receive_bytes=4096) as stream:
            for number in range(30):
                at.send("slow", f"{number} " + "x" * 100_000, "sender")
            found = []
            begun = time.monotonic()
            while time.monotonic() - begun < 2.5:
                found.append(stream.next())
                time.sleep(0.1)
            found += stream.messages(30 - len(found))
        assert [int(text.split()[0]) for text in texts(found)] == list(range(30))
        assert {event.json["attempt"] for event in found} == {1}


def test_a_stopped_process_does_not_hold_up_the_others(running: Hub, agent: str) -> None:
    """A client under SIGSTOP: its kernel takes what fits, and nobody else waits."""
    running.claim(f"{agent}b")
    words = [sys.executable, "-c", READER, str(running.port), agent]
    with subprocess.Popen(words, env=environment(running.base)) as child:
        try:
            eventually(lambda: is_online(running, agent))
            child.send_signal(signal.SIGSTOP)
            with Stream(running, native(f"{agent}b")) as other:
                for _ in range(50):
                    running.send(agent, "x" * 100_000, "sender")
                    running.send(f"{agent}b", "y", "sender")
                    other.next(1 * MARGIN)
        finally:
            child.kill()
    eventually(lambda: running.inbox(agent)["total"] > 0)


READER = """
import socket, sys
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
sock.sendall(f"GET /subscribe?agent={sys.argv[2]} HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\n\\r\\n".encode())
while sock.recv(65536):
    pass
"""


# --------------------------------------------------------------------------------------------------- keeping it alive


def test_a_silent_stream_says_that_it_lives() -> None:
    with hub(env={"ANGELIA_KEEPALIVE_SECONDS": "0.5"}) as at, Stream(at, "/subscribe?agent=openclaw") as stream:
        begun = time.monotonic()
        said = [stream.next(5 * MARGIN, comments=True) for _ in range(3)]
        took = time.monotonic() - begun
        assert [event.kind for event in said] == ["comment"] * 3
        assert 1.0 < took < (3 * 0.5 + 3 * 1.0) * MARGIN
        at.broadcast({"n": 1}, "hermes", "openclaw")
        assert stream.next().json["n"] == 1


# ------------------------------------------------------------------------------------------- a client that is not ours


def test_httpx_sse_reads_our_stream(running: Hub, agent: str) -> None:
    odd = "line\nbreaks\r\nand \u2028 and \x00 and data: x\n\nevent: bye"
    with (
        httpx.Client(base_url=running.url, timeout=20) as client,
        connect_sse(client, "GET", native(agent)) as source,
    ):
        events = source.iter_sse()
        source.response.raise_for_status()
        sent = [running.send(agent, text, "sender") for text in ("one", odd)]
        found = [next(events), next(events)]
    assert [event.event for event in found] == ["message", "message"]
    assert [json.loads(event.data)["message"]["text"] for event in found] == ["one", odd]
    assert [json.loads(event.data)["message"]["id"] for event in found] == [each["id"] for each in sent]
    assert found[1].id.endswith(str(sent[1]["deliveries"][0]["seq"]))
    assert found[0].retry in (None, 2000)


async def test_a_stream_ends_when_its_client_does(running: Hub, agent: str) -> None:
    """A client that is cancelled in the middle leaves no stream open."""
    opened = asyncio.Event()

    async def read() -> None:
        async for _ in Talk(running.port).stream(native(agent)):
            opened.set()

    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(read())
        async with asyncio.timeout(10):
            await opened.wait()
        reading.cancel()
    await asyncio.to_thread(gone, running, agent)
