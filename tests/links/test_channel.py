"""JSON-RPC both ways over a real line: every call ends, every request has one answer, and nothing else is answered."""

import asyncio
import json
import logging
from typing import Any

import pytest
from websockets.asyncio.connection import Connection

from angelia.links.channel import AT_ONCE, Channel, Refused
from angelia.links.port import LineLost
from angelia.links.websocket import WebSocketWire
from angelia.model.errors import UnknownAgent
from angelia.protocol.gateway import Refusal
from angelia.protocol.jsonrpc import Request
from tests.links.lines import LOOPS, MOST, SECONDS, a_line, at_work


@pytest.fixture(scope="module", params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


async def nothing(request: Request) -> object:
    raise AssertionError(f"nobody should call {request.method}")


async def echo(request: Request) -> object:
    return {"method": request.method, **request.params}


def deaf(type: str, payload: dict[str, object]) -> None:
    raise AssertionError(f"nobody should tell {type}")


def channel(wire: WebSocketWire, handle: Any = nothing, heard: Any = deaf) -> Channel:
    return Channel(wire, max_bytes=MOST, depth=16, handle=handle, heard=heard)


async def said(theirs: Connection) -> Any:
    """What our end sent next."""
    async with asyncio.timeout(SECONDS):
        return json.loads(await theirs.recv())


async def test_both_sides_call_each_other_at_once_and_answers_come_in_any_order() -> None:
    second = asyncio.Event()

    async def handle(request: Request) -> object:
        if request.params["n"] == 1:
            await second.wait()
        second.set()
        return request.params["n"] * 10

    async with a_line() as (wire, theirs):
        ours, far = channel(wire, handle), channel(WebSocketWire(theirs), handle)
        async with at_work(ours, far):
            asked = [side.call("ten", {"n": n}, SECONDS) for side in (ours, far) for n in (1, 2)]
            assert await asyncio.gather(*asked) == [10, 20, 10, 20]


async def test_requests_are_begun_in_the_order_of_their_frames() -> None:
    begun: list[int] = []

    async def handle(request: Request) -> object:
        begun.append(request.params["n"])
        await asyncio.sleep(0)
        return None

    async with a_line() as (wire, theirs):
        ours, far = channel(wire), channel(WebSocketWire(theirs), handle)
        async with at_work(ours, far):
            await asyncio.gather(*(ours.call("count", {"n": n}, SECONDS) for n in range(500)))
    assert begun == list(range(500))


@pytest.mark.parametrize(
    ("error", "code", "message", "data"),
    [
        (UnknownAgent("Nobody is called x.", suggestions=["y"]), 404, "Nobody is called x.",
         {"code": "unknown_agent", "suggestions": ["y"], "reason": "unknown"}),
        (Refusal(5096, "busy", {"reason": "target_busy"}), 5096, "busy", {"reason": "target_busy"}),
    ],
)  # fmt: skip
async def test_an_error_of_the_hub_is_the_calls_error(error: Exception, code: int, message: str, data: object) -> None:
    async def handle(request: Request) -> object:
        raise error

    async with a_line() as (wire, theirs):
        ours, far = channel(wire), channel(WebSocketWire(theirs), handle)
        async with at_work(ours, far):
            refused = await _refused(ours.call("no", {}, SECONDS))
    assert (refused.code, refused.message, refused.data) == (code, message, data)


async def test_what_breaks_inside_is_logged_once_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    async def handle(request: Request) -> object:
        raise ValueError("our insides")

    async with a_line() as (wire, theirs):
        ours, far = channel(wire), channel(WebSocketWire(theirs), handle)
        async with at_work(ours, far):
            refused = await _refused(ours.call("break", {}, SECONDS))
    assert refused.code == -32000
    assert "insides" not in refused.message + json.dumps(refused.data)
    assert [record.levelno for record in caplog.records if record.name == "angelia.links"] == [logging.ERROR]


async def test_a_call_that_takes_too_long_ends_and_its_answer_is_dropped() -> None:
    async with a_line() as (wire, theirs):
        ours = channel(wire)
        async with at_work(ours):
            with pytest.raises(TimeoutError):
                await ours.call("slow", {}, 0.05)
            late = await said(theirs)
            await theirs.send(json.dumps({"jsonrpc": "2.0", "id": late["id"], "result": "late"}))
            async with asyncio.TaskGroup() as tasks:
                call = tasks.create_task(ours.call("next", {}, SECONDS))
                asked = await said(theirs)
                assert asked["method"] == "next"
                await theirs.send(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": "in time"}))
            assert call.result() == "in time"


async def test_the_end_of_the_line_ends_every_call_and_what_is_at_work() -> None:
    at_it, cancelled = asyncio.Event(), asyncio.Event()

    async def handle(request: Request) -> object:
        at_it.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return None

    async with a_line() as (wire, theirs), asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
        ours = channel(wire, handle)
        running = tasks.create_task(_lost(ours.run()))
        calls = [tasks.create_task(_lost(ours.call("never", {}, SECONDS))) for _ in range(3)]
        for _ in calls:
            await said(theirs)
        await theirs.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "long"}))
        await at_it.wait()
        await theirs.close(1011, "going")
        ends = {await running, *[await call for call in calls]}
        assert ends == {"the other side closed it (1011), saying 'going'"}
        assert cancelled.is_set()
        assert await _lost(ours.call("after", {}, SECONDS)) in ends
        assert await _lost(ours.tell("after", {})) in ends


async def test_whoever_stops_reading_ends_every_call() -> None:
    async with a_line() as (wire, theirs), asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
        ours = channel(wire)
        running = tasks.create_task(ours.run())
        call = tasks.create_task(_lost(ours.call("never", {}, SECONDS)))
        await said(theirs)
        running.cancel()
        assert await call == "the link was ended here"


async def _lost(waits: Any) -> str:
    with pytest.raises(LineLost) as lost:
        await waits
    return str(lost.value)


async def _refused(waits: Any) -> Refused:
    with pytest.raises(Refused) as refused:
        await waits
    return refused.value


async def test_a_call_that_was_given_up_costs_the_others_nothing() -> None:
    async with a_line() as (wire, theirs):
        ours, far = channel(wire), channel(WebSocketWire(theirs), echo)
        async with at_work(ours, far), asyncio.TaskGroup() as tasks:
            given_up = [tasks.create_task(ours.call("x", {}, SECONDS)) for _ in range(50)]
            kept = [tasks.create_task(ours.call("y", {"n": n}, SECONDS)) for n in range(50)]
            await asyncio.sleep(0)
            for task in given_up:
                task.cancel()
            assert [answer["n"] for answer in await asyncio.gather(*kept)] == list(range(50))


@pytest.mark.parametrize(
    ("frame", "id", "code"),
    [
        ("{", None, -32700),
        ("[]", None, -32600),
        ("{}", None, -32600),
        ('{"id": 7, "method": ""}', 7, -32600),
        ('{"id": 7, "method": "x", "params": []}', 7, -32602),
        ('{"id": true, "method": "x"}', None, -32600),
        ("[" * 17 + "]" * 17, None, -32700),
    ],
)
async def test_what_is_no_request_is_answered_with_what_is_wrong(frame: str, id: object, code: int) -> None:
    async with a_line() as (wire, theirs), at_work(channel(wire, echo)):
        await theirs.send(frame)
        answer = await said(theirs)
        assert (answer["id"], answer["error"]["code"]) == (id, code)
        await theirs.send('{"id": "next", "method": "m", "params": null}')
        assert (await said(theirs))["result"] == {"method": "m"}


async def test_a_request_without_an_id_is_answered_all_the_same() -> None:
    async with a_line() as (wire, theirs), at_work(channel(wire, echo)):
        await theirs.send('{"method": "m", "params": {"a": 1}}')
        assert await said(theirs) == {"jsonrpc": "2.0", "id": None, "result": {"method": "m", "a": 1}}


@pytest.mark.parametrize(
    "answer",
    [
        '{"id": 99, "result": 1}',
        '{"id": true, "result": 1}',
        '{"id": "1", "result": 1}',
        '{"id": [1], "result": 1}',
        '{"id": null, "error": {"code": -32700, "message": "no JSON"}}',
        " \n",
    ],
)
async def test_an_answer_to_nothing_is_not_answered_nor_taken_for_another(answer: str) -> None:
    async with a_line() as (wire, theirs):
        ours = channel(wire)
        async with at_work(ours), asyncio.TaskGroup() as tasks:
            call = tasks.create_task(_refused(ours.call("one", {}, SECONDS)))  # its id is 1
            assert (await said(theirs))["id"] == 1
            await theirs.send(answer)
            await theirs.send('{"id": 1, "error": {"message": "no code"}}')
            assert (await call).message == "{'message': 'no code'}"
            tasks.create_task(ours.tell("next", {}))
            assert (await said(theirs))["params"]["type"] == "next"  # and nothing before it


async def test_what_one_side_tells_the_other_hears_once_and_answers_not() -> None:
    heard: list[tuple[str, object]] = []
    async with a_line() as (wire, theirs):
        ours = channel(wire, echo, lambda type, payload: heard.append((type, payload)))
        far = channel(WebSocketWire(theirs))
        async with at_work(ours, far):
            await far.tell("a", {"n": 1})
            await far.tell("b", ["no object"])
            await far.call("after", {}, SECONDS)
    assert heard == [("a", {"n": 1}), ("b", {})]


async def test_so_many_at_once_and_the_next_waits() -> None:
    may, full, begun = asyncio.Event(), asyncio.Event(), 0

    async def handle(request: Request) -> object:
        nonlocal begun
        begun += 1
        if begun == AT_ONCE:
            full.set()
        await may.wait()
        return None

    async with a_line() as (wire, theirs):
        ours, far = channel(wire), channel(WebSocketWire(theirs), handle)
        async with at_work(ours, far), asyncio.TaskGroup() as tasks:
            calls = [tasks.create_task(ours.call("wait", {}, SECONDS)) for _ in range(AT_ONCE + 10)]
            await full.wait()
            with pytest.raises(TimeoutError):
                await ours.call("one more", {}, 0.1)
            assert begun == AT_ONCE
            may.set()
            await asyncio.gather(*calls)
    assert begun == AT_ONCE + 11


async def test_what_is_too_large_is_refused_and_the_line_goes_on() -> None:
    async def handle(request: Request) -> object:
        return "x" * int(request.params.get("size", 1))

    async with a_line() as (wire, theirs):
        ours, far = channel(wire, handle), channel(WebSocketWire(theirs), handle)
        async with at_work(ours, far):
            for asked in (
                ours.call("large", {"text": "x" * MOST}, SECONDS), ours.call("answer", {"size": MOST}, SECONDS),
                ours.tell("event", "x" * MOST),
            ):  # fmt: skip
                refused = await _refused(asked)
                assert (refused.code, refused.data["code"], refused.data["limit"]) == (413, "too_large", MOST)
            assert await ours.call("small", {}, SECONDS) == "x"


async def test_a_frame_that_is_too_large_ends_the_line() -> None:
    async with a_line() as (wire, theirs), asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(_lost(channel(wire).run()))
        await theirs.send("x" * (MOST + 1))
        assert "closed here (1009)" in await reading
