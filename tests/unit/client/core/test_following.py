"""The stream: what reconnects, what ends it, where it goes on, and what it waits for. No socket, no time."""

import json
from typing import Any

import pytest

from angelia.client.core.following import Following, Item, lease_token, message_id
from angelia.client.core.steps import Head, Open, Read, Shut
from angelia.client.errors import ClientError, HubError, NotAHub
from tests.fakes.script import Script, absent, another, lost, no, silent
from tests.unit.protocol.sse_cases import CASES, Case

STREAM = Head(200, "text/event-stream; charset=utf-8")
CALM = b": connected\nretry: 100\n"
OVER = b'event: superseded\ndata: {"reason": "another"}\n\n'


def mail(*numbers: int) -> bytes:
    return b"".join(b'id: e-%d\ndata: {"message": {"id": "%032x"}, "n": %d}\n\n' % (n, n, n) for n in numbers)


def followed(*outcomes: Any, **more: Any) -> tuple[list[Item], Script]:
    """All items of a stream that ends for good, and what happened."""
    script = Script(*outcomes)
    following: Following[Item] = Following("http://hub", "/s", **{"draw": lambda: 1.0, **more})
    return list(script.items(following.run())), script


def opens(script: Script) -> list[Open]:
    return [step for step in script.steps if isinstance(step, Open)]


def resumed_at(script: Script) -> list[str | None]:
    return [step.headers.get("Last-Event-ID") for step in opens(script)]


# ---- the rules of a connection

# What answers the GET, in outcomes; what then: "again", or the error that ends it.
AGAIN: list[tuple[str, list[Any]]] = [
    ("no hub", [absent()]),
    ("a break before the head", [lost()]),
    ("silence", [silent()]),
    ("an end at once", [STREAM, b""]),
    ("an end after a comment", [STREAM, CALM, b""]),
    ("a break after the head", [STREAM, lost()]),
    ("silence after the head", [STREAM, CALM, silent()]),
    ("goodbye", [STREAM, CALM + b"event: bye\ndata: {}\n\n", b""]),
    ("a type in capitals", [Head(200, "TEXT/Event-Stream"), b""]),
    *((f"a refusal with {status}", [Head(status, "application/problem+json"), no(status, "x")[1], b""])
      for status in (408, 425, 429, 500, 502, 503, 504, 507)),
    *((f"a proxy's {status}", [Head(status, "text/html"), b"<html>", b""]) for status in (502, 503, 504)),
]  # fmt: skip
FOR_GOOD: list[tuple[str, list[Any], type[ClientError]]] = [
    *((f"a refusal with {status}", [Head(status, "application/problem+json"), no(status, "x")[1], b""], HubError)
      for status in (400, 401, 403, 404, 405, 409, 421)),
    ("no content", [Head(204)], NotAHub),
    ("reset content", [Head(205)], NotAHub),
    ("another type", [Head(200, "text/html")], NotAHub),
    ("no type", [Head(200, "")], NotAHub),
    ("a type that only begins so", [Head(200, "text/event-streams")], NotAHub),
    *((f"a redirect with {status}", [Head(status, "text/html", "http://elsewhere/"), b""], NotAHub)
      for status in (301, 302, 303, 307, 308)),
    ("a stranger's 404", [Head(404, "text/html"), b"<html>", b""], NotAHub),
    ("no HTTP", [another()], NotAHub),
]  # fmt: skip
THEN_GOOD = [STREAM, CALM + mail(7) + OVER]


@pytest.mark.parametrize(("what", "outcomes"), AGAIN, ids=[row[0] for row in AGAIN])
def test_what_reconnects(what: str, outcomes: list[Any]) -> None:
    items, script = followed(*outcomes, *THEN_GOOD)
    assert [item.kind for item in items if item.kind != "bye"] == ["message", "superseded"]
    assert len(opens(script)) == 2
    assert len(script.pauses) == 1
    assert script.steps.count(Shut()) == 2


@pytest.mark.parametrize(("what", "outcomes", "error"), FOR_GOOD, ids=[row[0] for row in FOR_GOOD])
def test_what_ends_it_for_good(what: str, outcomes: list[Any], error: type[ClientError]) -> None:
    script = Script(*outcomes)
    with pytest.raises(error):
        list(script.items(Following("http://hub", "/s").run()))
    assert len(opens(script)) == 1
    assert not script.pauses


@pytest.mark.parametrize(("what", "outcomes", "error"), FOR_GOOD, ids=[row[0] for row in FOR_GOOD])
def test_where_there_was_a_hub_there_will_be_one(what: str, outcomes: list[Any], error: type[ClientError]) -> None:
    script = Script(STREAM, CALM, b"", *outcomes, *THEN_GOOD)
    playing = script.items(Following("http://hub", "/s").run())
    if error is HubError:  # but its own word counts
        with pytest.raises(HubError):
            list(playing)
    else:
        assert [item.kind for item in playing] == ["message", "superseded"]


def test_whoever_is_sent_off_because_of_a_key_comes_back_once_and_hears_why() -> None:
    keyed = b'event: bye\ndata: {"reason": "its name is keyed now: come back with its token", "retry_ms": 100}\n\n'
    script = Script(STREAM, CALM + keyed, b"", Head(401, "application/problem+json"), no(401, "token_required")[1], b"")
    with pytest.raises(HubError) as told:
        list(script.items(Following("http://hub", "/s").run()))
    assert (told.value.status, told.value.code) == (401, "token_required")
    assert len(opens(script)) == 2


def test_a_redirect_is_not_followed_and_says_where_it_points() -> None:
    script = Script(Head(307, "", "http://elsewhere/"), b"")
    with pytest.raises(NotAHub, match="elsewhere"):
        list(script.items(Following("http://hub", "/s").run()))
    assert {step.path for step in opens(script)} == {"/s"}


def test_superseded_is_the_last_word_whatever_stands_behind_it() -> None:
    items, script = followed(STREAM, mail(1) + OVER + mail(2))
    assert [item.kind for item in items] == ["message", "superseded"]
    assert script.steps[-1] == Shut()


def test_an_event_larger_than_any_hubs_is_not_asked_for_again() -> None:
    script = Script(STREAM, *[b"data: " + b"x" * 1024 * 1024 + b"\n"] * 20)
    with pytest.raises(NotAHub, match="larger"):
        list(script.items(Following("http://hub", "/s").run()))
    assert len(opens(script)) == 1


def test_a_refusal_is_read_whole_and_not_for_ever() -> None:
    problem = no(401, "token_required")[1]
    script = Script(Head(401), problem[:10], problem[10:], b"")
    with pytest.raises(HubError, match="Because"):
        list(script.items(Following("http://hub", "/s").run()))
    endless = Script(Head(404), b"x" * 40_000)
    with pytest.raises(NotAHub):
        list(endless.items(Following("http://hub", "/s").run()))
    assert endless.steps.count(Read()) == 2


# ---- the header, and where it goes on


def test_what_is_asked_for() -> None:
    _, script = followed(*THEN_GOOD)
    assert opens(script) == [Open("/s", {"Accept": "text/event-stream", "Cache-Control": "no-store"}, 45.0)]


def test_an_id_goes_out_as_utf_8() -> None:
    _, script = followed(*THEN_GOOD, last_event_id="…✓")
    sent = resumed_at(script)[0]
    assert sent is not None
    assert sent.encode("latin-1") == "…✓".encode()


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ([mail(1, 2), b""], "e-2"),
        ([mail(1) + b'id: e-2\ndata: {"te', lost()], "e-1"),
        ([mail(1) + b'id: e-2\ndata: {"n": 2}\n', b""], "e-1"),
        ([mail(1) + b"id: e-5\n\n", b""], "e-5"),
        ([mail(1) + b"id\n\n", b""], None),
        ([mail(1) + b"id: e\0\n\n", b""], "e-1"),
        ([mail(1) + b'data: {"n": 0}\n\n', b""], "e-1"),
        ([b""], "e-0"),
    ],
)
def test_where_it_goes_on(first: list[Any], then: str | None) -> None:
    _, script = followed(STREAM, *first, *THEN_GOOD, last_event_id="e-0")
    assert resumed_at(script) == ["e-0", then]


def test_what_was_read_and_not_handed_out_is_asked_for_again() -> None:
    script = Script(STREAM, mail(1, 2, 3), b"")
    following: Following[Item] = Following("http://hub", "/s")
    items = script.items(following.run())
    assert [next(items).data["n"], next(items).data["n"]] == [1, 2]
    assert following.last_event_id == "e-1"  # the second is in its reader's hands; the third is nobody's


def test_after_a_reset_it_goes_on_where_the_hub_begins() -> None:
    reset = b'event: reset\ndata: {"asked": "x-9", "why": "another store"}\n\n'
    items, script = followed(STREAM, reset + mail(1), b"", *THEN_GOOD, last_event_id="x-9")
    assert [item.kind for item in items] == ["reset", "message", "message", "superseded"]
    assert resumed_at(script) == ["x-9", "e-1"]


# ---- waits


def test_waits_double_up_to_a_ceiling_and_start_again_once_it_works() -> None:
    script = Script(*[absent()] * 6, STREAM, CALM, b"", absent(), *THEN_GOOD)
    list(script.items(Following("http://hub", "/s", draw=lambda: 1.0).run()))
    assert script.pauses == pytest.approx([2, 4, 8, 16, 30, 30, 0.1, 0.2])


@pytest.mark.parametrize(("retry", "wait"), [(b"7000", 7.0), (b"0", 0.1), (b"x", 2.0), (b"-1", 2.0), (b"", 2.0)])
def test_the_hub_says_how_long(retry: bytes, wait: float) -> None:
    _, script = followed(STREAM, b"retry: %b\n" % retry, b"", *THEN_GOOD)
    assert script.pauses == [wait]


def test_goodbye_is_taken_by_its_word() -> None:
    bye = b"retry: 4321\nevent: bye\ndata: {}\n\n"
    _, script = followed(STREAM, bye, b"", *THEN_GOOD, draw=lambda: 0.0)
    assert script.pauses == [4.321]


def test_that_the_hub_is_away_and_back_is_told_once() -> None:
    told: list[str] = []
    followed(absent(), absent(), silent(), STREAM, CALM, b"", *THEN_GOOD, notice=told.append)
    assert [text.endswith("; trying again") for text in told] == [True, False]
    assert told[1] == "the hub is back"


# ---- events


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_standards_table_reaches_the_reader(case: Case) -> None:
    """Whatever is in the table, with objects for data, so that they are events of ours."""
    expected = [(kind, last_id) for data, kind, last_id in case.expected if _is_object(data)]
    pieces = [case.stream[at : at + 3] for at in range(0, len(case.stream), 3)]
    script = Script(STREAM, *pieces, b"", absent())
    found = []
    following: Following[Item] = Following("http://hub", "/s")
    for item in script.items(_until_away(following, script)):
        found.append((item.kind, item.id))
    assert found == expected


def _is_object(data: str) -> bool:
    try:
        return isinstance(json.loads(data), dict)
    except ValueError:
        return False


def _until_away(following: Following[Item], script: Script) -> Any:
    plan = following.run()
    outcome: Any = None
    while True:
        step = plan.send(outcome)
        if len(opens(script)) == 1 and step == Shut():
            return
        outcome = yield step


def test_events_of_a_later_version_are_passed_over() -> None:
    strange = b"data: no json\n\ndata: [1]\n\nevent: news\ndata: {}\n\ndata: " + b"[" * 100_000 + b"\n\n"
    items, _ = followed(STREAM, strange + OVER)
    assert [item.kind for item in items] == ["news", "superseded"]


def test_what_an_item_holds() -> None:
    whole = Item("message", {"message": {"id": "7"}, "lease": {"token": "7-1-ff"}}, "e-1")
    assert (message_id(whole), lease_token(whole)) == ("7", "7-1-ff")
    for data in ({}, {"message": 5, "lease": 5}, {"message": {"id": 5}, "lease": {"token": 5}}):
        assert (message_id(Item("message", data, "")), lease_token(Item("message", data, ""))) == ("", "")
    assert message_id(Item("bye", {"message": {"id": "7"}}, "")) == ""
    assert lease_token(Item("message", {"lease": "7-1-ff"}, "")) == "7-1-ff"
