"""The ways to read: what is handed over, when it counts as finished, and what becomes of what comes again."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from angelia.client.core.finishing import Finished
from angelia.client.core.following import Following, Item
from angelia.client.core.reading import Reader
from angelia.client.core.steps import Exchange, Head, Open
from angelia.client.errors import HubError, Superseded
from tests.fakes.script import Script, absent, no, ok

STREAM = Head(200, "text/event-stream")
OVER = b"event: superseded\ndata: {}\n\n"
ACKED = ok({"state": "delivered"})


def an_id(number: int) -> str:
    return f"{number:032x}"


def event(number: int, attempt: int = 1, *, again: bool = False) -> bytes:
    lease = "" if again else f', "lease": {{"token": "{number}-{attempt}-ff"}}'
    shown = f'{{"message": {{"id": "{an_id(number)}", "text": "no. {number}"}}{lease}, "again": {str(again).lower()}}}'
    return f"id: e-{number}\ndata: {shown}\n\n".encode()


def leases(script: Script) -> list[str]:
    """What was settled, and how."""
    return [step.path.removeprefix("/v1/leases/") for step in script.exchanges]


def reader(*outcomes: Any) -> tuple[Reader, Script]:
    script = Script(*outcomes)
    return Reader(script.verbs()), script


# ---- follow, stream


def test_follow_hands_over_everything() -> None:
    one, script = reader(STREAM, event(1), b"event: bye\ndata: {}\n\n", event(1, 2), OVER)
    kinds = [item.kind for item in script.items(one.follow().run())]
    assert kinds == ["message", "bye", "message", "superseded"]
    assert not script.exchanges


def test_the_path_says_how_it_is_acked_and_how_much_at_once() -> None:
    ways: list[Callable[[Reader], Following[Any]]] = [
        lambda one: one.follow(),
        lambda one: one.stream(ack="auto"),
        lambda one: one.stream(window=3),
        lambda one: one.messages(),
    ]
    paths = []
    for way in ways:
        one, script = reader(STREAM, OVER)
        with suppress(Superseded):
            list(script.items(way(one).run()))
        paths += [step.path.removeprefix("/v1/agents/scout/stream") for step in script.steps if isinstance(step, Open)]
    assert paths == ["?ack=manual", "?ack=auto", "?ack=manual&window=3", "?ack=manual&window=1"]


def test_stream_settles_what_the_caller_has_finished() -> None:
    one, script = reader(STREAM, event(1) + event(2), ACKED, OVER)
    items: list[Item] = list(script.items(one.stream(finished={an_id(1)}).run()))
    assert [item.id for item in items] == ["e-2", ""] or [item.kind for item in items] == ["message", "superseded"]
    assert leases(script) == ["1-1-ff/ack"]


def test_an_ack_that_fails_does_not_end_the_stream() -> None:
    one, script = reader(STREAM, event(1) + event(2), no(409, "lease_lost"), OVER)
    assert [item.kind for item in script.items(one.stream(finished={an_id(1)}).run())] == ["message", "superseded"]


def test_a_manual_stream_shows_what_comes_again_and_leaves_it_to_its_reader() -> None:
    one, script = reader(STREAM, event(1) + event(1, 2) + OVER)
    assert [item.kind for item in script.items(one.stream().run())] == ["message", "message", "superseded"]


def test_an_auto_stream_hands_over_each_once() -> None:
    one, script = reader(STREAM, event(1, again=False), b"", STREAM, event(1, again=True) + event(2) + OVER)
    items = list(script.items(one.stream(ack="auto").run()))
    assert [item.data["message"]["text"] for item in items if item.kind == "message"] == ["no. 1", "no. 2"]


def test_goodbye_is_not_its_readers_business() -> None:
    one, script = reader(STREAM, b"event: bye\ndata: {}\n\n" + OVER)
    assert [item.kind for item in script.items(one.stream().run())] == ["superseded"]


# ---- messages


def test_a_message_is_acked_when_the_next_one_is_asked_for() -> None:
    one, script = reader(STREAM, event(1) + event(2), ACKED)
    messages = script.items(one.messages().run())
    assert next(messages)["text"] == "no. 1"
    assert leases(script) == []
    assert next(messages)["text"] == "no. 2"
    assert leases(script) == ["1-1-ff/ack"]


def test_a_loop_that_ends_leaves_its_message_unfinished() -> None:
    one, script = reader(STREAM, event(1), ACKED)
    messages = script.items(one.messages().run())
    next(messages)
    messages.close()
    assert leases(script) == []
    assert an_id(1) not in one.finished


def test_what_comes_again_is_settled_and_dropped() -> None:
    """Its ack was lost with the hub; the hub offers it again, at its next attempt."""
    again = [STREAM, event(1, 2) + event(2), ACKED]
    one, script = reader(STREAM, event(1), absent(), b"", *again)
    messages = script.items(one.messages().run())
    assert [next(messages)["text"], next(messages)["text"]] == ["no. 1", "no. 2"]
    assert leases(script) == ["1-1-ff/ack", "1-2-ff/ack"]


def test_what_the_caller_has_finished_is_settled_and_dropped() -> None:
    one, script = reader(STREAM, event(1) + event(2), ACKED)
    assert next(script.items(one.messages(finished=[an_id(1)]).run()))["text"] == "no. 2"


def test_copies_and_presence_are_not_handed_over() -> None:
    presence = b'data: {"type": "subscriber_connected", "agent": "hermes"}\n\n'
    one, script = reader(STREAM, presence + event(1, again=True) + event(2))
    assert next(script.items(one.messages().run()))["text"] == "no. 2"
    assert not script.exchanges


def test_being_superseded_is_an_error() -> None:
    one, script = reader(STREAM, OVER)
    with pytest.raises(Superseded, match="scout"):
        list(script.items(one.messages().run()))


def test_all_ways_share_what_is_finished() -> None:
    one, script = reader(STREAM, event(1), ACKED, OVER)
    with pytest.raises(Superseded):
        list(script.items(one.messages().run()))
    assert an_id(1) in one.finished


def test_a_refused_ack_of_a_message_is_known_afterwards() -> None:
    one, script = reader(STREAM, event(1), no(404, "unknown_message"), OVER)
    with pytest.raises(Superseded):
        list(script.items(one.messages().run()))
    assert an_id(1) in one.finished
    assert isinstance(script.exchanges[0], Exchange)


def test_reading_needs_a_name() -> None:
    script = Script(ok({}))
    with pytest.raises(ValueError, match="name"):
        Reader(script.verbs(None)).messages()


def test_a_refusal_ends_it() -> None:
    one, script = reader(Head(401), no(401, "token_required")[1], b"")
    with pytest.raises(HubError):
        list(script.items(one.messages().run()))


def test_only_the_newest_are_remembered() -> None:
    finished = Finished(kept=3)
    for number in (1, 2, 3, 1, 4):
        finished.add(an_id(number))
    assert [number for number in range(6) if an_id(number) in finished] == [1, 3, 4]


# ---- watching a hub


def test_events_are_handed_out_as_they_are_and_resumed_behind_the_last() -> None:
    happened = b'id: ab-1\nevent: accepted\ndata: {"id":"x"}\n\nevent: lagged\ndata: {"missed":4}\n\n'
    one, script = reader(STREAM, happened, b"", STREAM, OVER)
    items = list(script.items(one.events(agent="a b", last=5).run()))
    assert [(item.kind, item.data) for item in items[:2]] == [("accepted", {"id": "x"}), ("lagged", {"missed": 4})]
    opened = [step for step in script.steps if isinstance(step, Open)]
    assert [step.path for step in opened] == ["/v1/events?agent=a+b&last=5"] * 2
    assert opened[1].headers["Last-Event-ID"] == "ab-1"
