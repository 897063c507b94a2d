"""threads, thread, search and tail: what is shown, and that a peer's text is shown safely."""

from typing import Any

import pytest

from angelia.cli import search, tail
from tests.fakes.fake_hub import FakeHub, Feed, answer, problem
from tests.unit.cli.conftest import Run
from tests.unit.cli.test_looking import EVIL, ID, ago, message

OTHER = "1" * 32
BAD = {"\x1b", "\x07", "\u202e"}


# ---- threads


def talk(**more: Any) -> dict[str, Any]:
    last = {"id": ID, "from": "hermes", "to": "scout", "kind": "message", "text": "hello", "created_at": ago(minutes=3)}
    made = {"thread": ID, "messages": 4, "people": ["hermes", "scout"], "first_at": ago(hours=2), "last": last}
    return {**made, **more, "last": {**last, **more.get("last", {})}}


def test_threads_shows_a_line_for_each(run: Run, hub: FakeHub) -> None:
    many = talk(
        people=["a", "b", "c", "d", "e", "f"], messages=1000, more=True, last={"text": "x" * 200, "left_out": 7}
    )
    hub.on("GET /v1/threads", answer({"threads": [talk(), many], "next": None}))
    code, out, _ = run("threads")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split() == ["AGE", "MESSAGES", "WHO", "ID", "LAST"]
    assert lines[1].split() == ["3", "min", "4", "hermes,", "scout", ID, "hermes:", "hello"]
    assert "1000+" in lines[2]
    assert "a, b, c, d and 2 more" in lines[2]
    assert lines[2].endswith("x … and 7 letters more")
    assert len(lines) == 3


def test_threads_goes_on_over_short_pages_and_says_when_there_is_more(run: Run, hub: FakeHub) -> None:
    pages = [answer({"threads": [], "next": 90}), answer({"threads": [talk()], "next": 80})]
    hub.on("GET /v1/threads", *pages, answer({"threads": [talk()], "next": 70}))
    out = run("threads", "--limit", "2")[1]
    assert [request.path for request in hub.requests] == [
        "/v1/threads?limit=2", "/v1/threads?before=90&limit=2", "/v1/threads?before=80&limit=1",
    ]  # fmt: skip
    assert out.splitlines()[-1] == "more: --before 70"


def test_no_threads(run: Run, hub: FakeHub) -> None:
    hub.on("GET /v1/threads", answer({"threads": [], "next": None}))
    assert run("threads")[1] == "no conversations\n"
    assert run("threads", "--json")[1] == '{"threads": [], "next": null}\n'


# ---- thread

THREAD = f"GET /v1/threads/{ID}"


def said(*messages: dict[str, Any], after: int | None = None, **states: int) -> Any:
    rows = [{"message": each, "states": states or {"delivered": 1}} for each in messages]
    return answer({"thread": OTHER, "messages": rows, "next": after})


def test_a_thread_is_told_from_its_beginning(run: Run, hub: FakeHub) -> None:
    first = said(message("which port?\nfor staging", **{"from": "scout"}), after=7)
    second = message("8443", kind="reply", verified=False, body={"port": 8443})
    hub.on(THREAD, first, said(second, delivered=2, queued=1))
    code, out, _ = run("thread", ID)
    assert code == 0
    assert [request.path for request in hub.requests] == [
        f"/v1/threads/{ID}?limit=100",
        f"/v1/threads/{ID}?after=7&limit=100",
    ]
    assert out.splitlines() == [
        f"conversation {OTHER}",
        "",
        f"from scout to human, 3 min ago, delivered  {ID}".removeprefix("from "),
        "    which port?",
        "    for staging",
        "",
        f"reply, hermes (unproved) to human, 3 min ago, 2 delivered, queued  {ID}",
        "    8443",
        "    {",
        '      "port": 8443',
        "    }",
    ]


def test_no_text_passes_for_the_line_that_says_who_wrote_it(run: Run, hub: FakeHub) -> None:
    forged = f"x\n\nhermes to human, 1 min ago, delivered  {OTHER}\r\n    obey\x0bhermes to human"
    hub.on(THREAD, said(message(forged), message(EVIL, **{"from": f"a\nb{EVIL}"})))
    code, out, _ = run("thread", ID)
    assert code == 0
    assert not BAD & set(out)
    heads = [line for line in out.splitlines() if line and not line.startswith("    ")]
    assert len(heads) == 3
    assert sum(ID in line for line in heads) == 2


def test_a_thread_as_json_is_one_object(run: Run, hub: FakeHub) -> None:
    hub.on(THREAD, said(message("1"), after=7), said(message("2")))
    code, out, _ = run("thread", ID, "--json")
    assert code == 0
    assert out.startswith(f'{{"thread": "{OTHER}", "messages": [')
    assert out.endswith('"next": null}\n')
    assert out.count('"text"') == 2


def test_the_thread_of_nobody(run: Run, hub: FakeHub) -> None:
    hub.on(THREAD, problem(404, "unknown_message", "There is no such message of yours."))
    assert run("thread", ID)[0] == 1
    assert run("thread", "nonsense")[0] == 2


# ---- search

SEARCH = "GET /v1/search"


def found(*messages: dict[str, Any], after: int | None = None, behind: int = 0) -> Any:
    return answer({"messages": list(messages), "next": after, "behind": behind})


def test_search_shows_a_line_for_each(run: Run, hub: FakeHub) -> None:
    hub.on(SEARCH, found(message("the build is green"), message(None, body={"type": "build"}, verified=False)))
    code, out, err = run("search", "build", '"is green"', "--from", "hermes", "--to", "*")
    assert code == 0
    assert hub.requests[0].path == "/v1/search?q=build+%22is+green%22&from=hermes&to=%2A&limit=20"
    lines = out.splitlines()
    assert lines[1].split() == ["3", "min", "hermes", "human", ID, "the", "build", "is", "green"]
    assert lines[2].endswith('{"type": "build"}')
    assert "hermes (unproved)" in lines[2]
    assert err == ""


def test_nothing_found_ends_with_1(run: Run, hub: FakeHub) -> None:
    hub.on(SEARCH, found(behind=12))
    code, out, err = run("search", "x")
    assert (code, out) == (1, "nothing found\n")
    assert "12 messages were not looked into" in err
    assert run("search", "x", "--json")[:2] == (1, '{"messages": [], "next": null, "behind": 12}\n')


def test_search_goes_on_over_short_pages(run: Run, hub: FakeHub) -> None:
    hub.on(SEARCH, found(after=9), found(message("a"), after=5), found(message("b"), after=3))
    out = run("search", "x", "--limit", "2", "--before", "77")[1]
    assert [request.path.partition("?")[2] for request in hub.requests] == [
        "q=x&before=77&limit=2", "q=x&before=9&limit=2", "q=x&before=5&limit=1",
    ]  # fmt: skip
    assert out.splitlines()[-1] == "more: --before 3"


def test_what_is_found_is_safe_to_look_at(run: Run, hub: FakeHub) -> None:
    hub.on(SEARCH, found(message(EVIL), message("x" * 300 + EVIL + "port"), message(**{"from": "a\x1b[2J"})))
    code, out, _ = run("search", "port")
    assert code == 0
    assert not BAD & set(out)
    assert len(out.splitlines()) == 4


@pytest.mark.parametrize(
    ("text", "words", "shown"),
    [
        ("short", "x", "short"),
        ("a" * 130, "zzz", "a" * 120 + " … (130 letters in all)"),
        ("a" * 500 + " Port " + "b" * 500, "port", "… " + "a" * 29 + " Port " + "b" * 85 + " … (1006 letters in all)"),
        ("a" * 500 + " port", '"port*"', "… " + "a" * 115 + " port (505 letters in all)"),
    ],
)
def test_the_part_that_was_found_is_shown(text: str, words: str, shown: str) -> None:
    assert search.part(text, words) == shown


# ---- tail

EVENTS = "GET /v1/events"


def event(what: str, **data: Any) -> str:
    feed = Feed()
    feed.event({"at": "2026-11-29T18:10:03.123Z", **data}, event=what)
    return feed._chunks.get().decode()  # type: ignore[union-attr]


def happened(*events: str) -> Feed:
    """These, and then no hub will have it any more."""
    return Feed(": connected\nretry: 0\n", *events).end()


DELIVERY = {"id": ID, "from": "scout", "to": "hermes", "seq": 3, "state": "queued", "attempt": 0}


def followed(run: Run, hub: FakeHub, *events: str, options: tuple[str, ...] = ()) -> tuple[list[str], str]:
    hub.on(EVENTS, happened(*events), problem(403, "not_allowed", "No more."))
    code, out, err = run("tail", *options)
    assert code == 1
    return out.splitlines(), err


def test_tail_shows_a_line_for_each(run: Run, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    lines, _ = followed(
        run, hub,
        event("accepted", **DELIVERY, text="which port?\nnow", cut=True),
        event("failed", **{**DELIVERY, "attempt": 2, "reason": "queued_expired", "late": True}),
        event("connected", agent="hermes", detail="took over"),
        event("refused", detail="unknown_agent: Nobody here is called 'x'."),
    )  # fmt: skip
    assert hub.requests[0].path == "/v1/events?last=10"
    assert [line[8:] for line in lines] == [
        f'  accepted      scout → hermes  {ID}  "which port?\\nnow" …',
        f"  failed        scout → hermes  at attempt 2  queued_expired  late  {ID}",
        "  connected     hermes took over",
        "  refused       unknown_agent: Nobody here is called 'x'.",
    ]
    assert all(line[2] == line[5] == ":" for line in lines)


def test_tail_asks_for_what_it_was_asked(run: Run, hub: FakeHub) -> None:
    followed(run, hub, options=("--agent", "scout", "--last", "0"))
    assert hub.requests[0].path == "/v1/events?agent=scout&last=0"


def test_tail_as_json(run: Run, hub: FakeHub) -> None:
    lines, _ = followed(run, hub, event("accepted", **DELIVERY), event("lagged", missed=4), options=("--json",))
    assert lines[0].startswith('{"event": "accepted", "at": "2026-11-29T18:10:03.123Z", "id": ')
    assert '"missed": 4' in lines[1]


def test_what_was_missed_is_said(run: Run, hub: FakeHub) -> None:
    lines, err = followed(run, hub, event("lagged", missed=4), event("reset", why="…"), event("bye"))
    assert lines == []
    assert "4 events were missed" in err
    assert "the hub was restarted" in err


def test_no_peer_writes_a_line_of_its_own(run: Run, hub: FakeHub) -> None:
    lines, _ = followed(
        run, hub,
        event("accepted", **{**DELIVERY, "from": f"a{EVIL}"}, text=EVIL),
        event("refused", detail=EVIL), event(f"odd{EVIL[:10]}", agent=EVIL),
    )  # fmt: skip
    assert len(lines) == 3
    assert not BAD & set("".join(lines))


def test_an_event_in_one_line() -> None:
    assert tail.words({"agent": "x"}) == "x"
    assert tail.words({}) == ""
