"""Who a command acts as, and which way it goes."""

import json
from pathlib import Path

import pytest

from angelia.cli import tokens
from tests.fakes.fake_hub import FakeHub, answer, problem
from tests.unit.cli.conftest import Run

ROUTE = "POST /v1/messages"
SENT = answer({"id": "0" * 32, "thread": "0" * 32, "deliveries": [{"to": "hermes", "seq": 1, "state": "queued"}]}, 201)
EMPTY = answer({"deliveries": [], "total": 0, "hidden": 0, "oldest_unread_at": None, "next": None})


def health(instance: str) -> object:
    return answer({"product": "angelia", "status": "ok", "instance": instance})


def note(data_dir: Path, **what: object) -> None:
    (data_dir / "hub.json").write_text(json.dumps(what))


def test_the_owner_goes_by_the_socket_and_needs_no_token(run: Run, hub: FakeHub) -> None:
    hub.on(ROUTE, SENT)
    assert run("send", "hermes", "hi")[0] == 0
    assert hub.requests[0].json["from"] == "human"
    assert "authorization" not in hub.requests[0].headers


def test_human_by_name_is_the_owner_too(run: Run, hub: FakeHub) -> None:
    hub.on(ROUTE, SENT)
    assert run("send", "hermes", "hi", "--as", "Human")[0] == 0
    assert hub.requests[0].json["from"] == "human"


def test_an_agent_uses_its_own_file(run: Run, hub: FakeHub, data_dir: Path) -> None:
    tokens.save(str(data_dir), "scout", "of-scout")
    tokens.save(str(data_dir), "other", "of-other")
    hub.on(ROUTE, SENT)
    assert run("send", "--as", "scout", "hermes", "hi")[0] == 0
    assert hub.requests[0].headers["authorization"] == "Bearer of-scout"
    assert hub.requests[0].json["from"] == "scout"


def test_the_variable_comes_before_the_file(
    run: Run, hub: FakeHub, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens.save(str(data_dir), "scout", "of-file")
    monkeypatch.setenv("ANGELIA_AGENT", "scout")
    monkeypatch.setenv("ANGELIA_TOKEN", "of-variable")
    hub.on(ROUTE, SENT)
    assert run("send", "hermes", "hi")[0] == 0
    assert hub.requests[0].headers["authorization"] == "Bearer of-variable"


def test_an_agent_without_a_token_is_open_and_gets_nobody_elses(run: Run, hub: FakeHub, data_dir: Path) -> None:
    tokens.save(str(data_dir), "other", "of-other")
    hub.on(ROUTE, SENT)
    assert run("send", "--as", "scout", "hermes", "hi")[0] == 0
    assert "authorization" not in hub.requests[0].headers


def test_the_owner_sends_no_agents_token(run: Run, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANGELIA_TOKEN", "of-somebody")
    hub.on(ROUTE, SENT)
    assert run("send", "hermes", "hi")[0] == 0
    assert "authorization" not in hub.requests[0].headers


@pytest.mark.parametrize("name", ["../x", "a b", "-", "a/b"])
def test_a_name_that_is_none(run: Run, hub: FakeHub, name: str) -> None:
    code, _, err = run("send", "--as", name, "hermes", "hi")
    assert code == 2
    assert "no agent's name" in err
    assert not hub.requests


def test_an_agent_goes_by_the_url_that_was_given(run: Run, far: FakeHub, hub: FakeHub) -> None:
    far.on(ROUTE, SENT)
    assert run("send", "--as", "scout", "--hub", far.url, "hermes", "hi")[0] == 0
    assert not hub.requests


def test_a_url_that_leads_to_our_own_hub_is_left_for_its_socket(
    run: Run, far: FakeHub, hub: FakeHub, data_dir: Path
) -> None:
    note(data_dir, instance="aa", socket=str(data_dir / "hub.sock"))
    far.on("GET /health", health("aa"))  # type: ignore[arg-type]
    hub.on(ROUTE, SENT)
    assert run("send", "--hub", far.url, "hermes", "hi")[0] == 0
    assert [request.route for request in far.requests] == ["GET /health"]
    assert hub.asked(ROUTE)


@pytest.mark.parametrize("theirs", ["bb", ""])
def test_the_owner_of_another_hub_is_somebody_else(
    run: Run, far: FakeHub, hub: FakeHub, data_dir: Path, theirs: str
) -> None:
    note(data_dir, instance="aa", socket=str(data_dir / "hub.sock"))
    far.on("GET /health", health(theirs))  # type: ignore[arg-type]
    code, out, err = run("send", "--hub", far.url, "hermes", "hi")
    assert (code, out) == (1, "")
    assert "--as NAME" in err
    assert not far.asked(ROUTE)
    assert not hub.requests


def test_without_a_socket_nobody_is_the_owner(run: Run, far: FakeHub, data_dir: Path) -> None:
    far.on("GET /health", health("aa"))  # type: ignore[arg-type]
    note(data_dir, instance="aa", socket=str(data_dir / "gone.sock"))
    code, _, err = run("send", "--hub", far.url, "hermes", "hi")
    assert code == 1
    assert "--as NAME" in err


def test_the_socket_is_where_the_hub_says(run: Run, data_dir: Path) -> None:
    with FakeHub(data_dir / "elsewhere") as hub:
        note(data_dir, socket=str(data_dir / "elsewhere"))
        hub.on(ROUTE, SENT)
        assert run("send", "hermes", "hi")[0] == 0


def test_the_hub_of_the_usual_port_is_an_agents(run: Run, far: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANGELIA_PORT", far.url.rpartition(":")[2])
    monkeypatch.delenv("ANGELIA_DATA_DIR")
    far.on(ROUTE, SENT)
    assert run("send", "--as", "scout", "hermes", "hi")[0] == 0


LINES = (
    ["send", "--as", "scout", "hermes", "secret"], ["ask", "--as", "scout", "hermes", "secret"],
    ["reply", "--as", "scout", "0" * 32, "secret"], ["inbox", "--as", "scout"], ["agents", "--as", "scout"],
    ["status", "--as", "scout"], ["message", "--as", "scout", "0" * 32], ["join", "scout"], ["dead"],
)  # fmt: skip


@pytest.mark.parametrize("words", LINES, ids=lambda words: words[0])
def test_nothing_goes_to_whoever_has_the_usual_port_when_a_folder_was_named(
    run: Run, far: FakeHub, data_dir: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setenv("ANGELIA_PORT", far.url.rpartition(":")[2])
    tokens.save(str(data_dir), "scout", "of-scout")
    for line in (words, ["--data-dir", str(data_dir), *words]):
        code, out, err = run(*line)
        assert (code, out) == (4, "")
        assert f"no hub runs on {data_dir}; start one with: angelia up --data-dir {data_dir}" in err
    assert not far.requests


@pytest.mark.parametrize("by_variable", [False, True])
def test_no_token_goes_to_whoever_has_the_usual_port(
    run: Run, far: FakeHub, data_dir: Path, monkeypatch: pytest.MonkeyPatch, by_variable: bool
) -> None:
    monkeypatch.setenv("ANGELIA_PORT", far.url.rpartition(":")[2])
    monkeypatch.delenv("ANGELIA_DATA_DIR")
    monkeypatch.setenv("XDG_DATA_HOME", str(data_dir))
    if by_variable:
        monkeypatch.setenv("ANGELIA_TOKEN", "of-scout")
    else:
        tokens.save(str(data_dir / "angelia"), "scout", "of-scout")
    code, _, err = run("send", "--as", "scout", "hermes", "secret")
    assert code == 4
    assert "angelia up" in err
    assert not far.requests


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_hub_of_this_machine_gets_no_token_of_a_folder_that_is_not_its_own(
    run: Run, far: FakeHub, data_dir: Path, host: str
) -> None:
    tokens.save(str(data_dir), "scout", "of-scout")
    far.on("GET /health", health("bb"))  # type: ignore[arg-type]
    url = far.url.replace("127.0.0.1", host)
    line = ["send", "--as", "scout", "--hub", url, "hermes", "secret"]
    assert run(*line)[0] == 4
    with FakeHub(data_dir / "hub.sock"):
        note(data_dir, instance="aa", socket=str(data_dir / "hub.sock"))
        code, _, err = run(*line)
        assert code == 1
        assert "ANGELIA_TOKEN" in err
    assert {request.route for request in far.requests} == {"GET /health"}
    assert not any("authorization" in request.headers for request in far.requests)


def test_a_token_goes_by_the_socket_of_its_hub_though_a_url_names_it(
    run: Run, far: FakeHub, hub: FakeHub, data_dir: Path
) -> None:
    tokens.save(str(data_dir), "scout", "of-scout")
    note(data_dir, instance="aa", socket=str(data_dir / "hub.sock"))
    far.on("GET /health", health("aa"))  # type: ignore[arg-type]
    hub.on(ROUTE, SENT)
    assert run("send", "--as", "scout", "--hub", far.url, "hermes", "hi")[0] == 0
    assert hub.asked(ROUTE)[0].headers["authorization"] == "Bearer of-scout"
    assert [request.route for request in far.requests] == ["GET /health"]
    assert "authorization" not in far.requests[0].headers


def test_a_token_that_was_set_goes_where_it_was_said(run: Run, far: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANGELIA_TOKEN", "of-scout")
    far.on(ROUTE, SENT)
    assert run("send", "--as", "scout", "--hub", far.url, "hermes", "hi")[0] == 0
    assert far.requests[0].headers["authorization"] == "Bearer of-scout"


def test_no_hub_is_taken_out_of_a_folder_that_others_can_write_to(run: Run, hub: FakeHub, data_dir: Path) -> None:
    """They could name another one there, which would be given tokens."""
    note(data_dir)
    hub.on(ROUTE, SENT)
    data_dir.chmod(0o777)
    code, _, err = run("send", "hermes", "hi")
    assert (code, hub.requests) == (1, [])
    assert f"chmod 700 {data_dir}" in err
    data_dir.chmod(0o700)
    assert run("send", "hermes", "hi")[0] == 0


def test_a_note_that_is_no_json_is_none(run: Run, hub: FakeHub, data_dir: Path) -> None:
    (data_dir / "hub.json").write_text("{")
    hub.on(ROUTE, SENT)
    assert run("send", "hermes", "hi")[0] == 0


def test_looking_around_takes_nobody(run: Run, far: FakeHub) -> None:
    far.on("GET /v1/agents", answer({"agents": []}))
    assert run("agents", "--hub", far.url)[0] == 0


def test_a_hub_that_is_dead_and_left_its_socket(run: Run, data_dir: Path) -> None:
    with FakeHub(data_dir / "hub.sock"):
        pass
    code, _, err = run("send", "hermes", "hi")
    assert code == 4
    assert f"no hub runs on {data_dir}" in err


def test_a_refusal_is_passed_on(run: Run, hub: FakeHub) -> None:
    hub.on("GET /v1/agents/scout/inbox", problem(401, "token_required", "The name scout is keyed."))
    code, _, err = run("inbox", "--as", "scout")
    assert code == 1
    assert "The name scout is keyed. (token_required)" in err


# ---- inside a turn

INSIDE = "this runs inside a turn of scout; the hub's owner does this from a terminal of their own"


@pytest.fixture(params=["ANGELIA_CONVERSATION", "ANGELIA_ID"])
def turn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANGELIA_AGENT", "scout")
    monkeypatch.setenv(request.param, "0" * 32)


OWNERS = (
    "up", "up --replace", "down", "doctor", "service status", "tail", "join x", "leave x", "wake x", "turns", "dead",
    "connect x ws://x", "disconnect x", "pair", "pair x ws://x", "connections --as human",
    "backup", "restore x", "send --as human a b", "send --as other a b", "inbox --as human", "ask --as other a b",
    "listen --as human", "threads --as human", "agents --as human",
    "gateway --stdio --as human", "briefing --as human",
)  # fmt: skip


@pytest.mark.parametrize("line", OWNERS)
@pytest.mark.usefixtures("turn")
def test_what_is_the_owners_ends_in_a_sentence_inside_a_turn(run: Run, hub: FakeHub, data_dir: Path, line: str) -> None:
    (data_dir / "x").touch()
    words = line.replace("restore x", f"restore {data_dir / 'x'}").split()
    code, out, err = run(*words)
    assert (code, (out + err).count("\n")) == (1, 1)
    assert INSIDE in out + err
    assert not hub.requests


@pytest.mark.usefixtures("turn")
def test_inside_a_turn_the_agent_calls_by_the_url_with_its_token_or_as_anyone(
    run: Run, hub: FakeHub, far: FakeHub, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far.on(ROUTE, SENT)
    note(data_dir, instance="aa", socket=str(data_dir / "hub.sock"), addresses=[far.url])
    assert run("send", "hermes", "hi")[0] == 0  # a command of a listener: it has no token, and no URL was said
    monkeypatch.setenv("ANGELIA_URL", far.url)
    assert run("send", "hermes", "hi", "--as", "Scout")[0] == 0
    monkeypatch.setenv("ANGELIA_TOKEN", "of-scout")
    assert run("send", "hermes", "hi")[0] == 0
    assert [request.headers.get("authorization") for request in far.asked(ROUTE)] == [None, None, "Bearer of-scout"]
    assert [request.json["from"].lower() for request in far.asked(ROUTE)] == ["scout"] * 3
    far.on("GET /v1/agents", answer({"agents": []}))
    assert run("agents")[0] == 0
    assert far.requests[-1].headers["authorization"] == "Bearer of-scout"
    assert not hub.requests


@pytest.mark.usefixtures("turn")
def test_inside_a_turn_the_socket_is_no_way_without_a_token(run: Run, hub: FakeHub, data_dir: Path) -> None:
    code, _, err = run("send", "hermes", "hi", "--hub", hub.url)
    assert (code, "has no token" in err) == (1, True)
    assert not hub.requests
    tokens.save(str(data_dir), "scout", "of-scout")
    hub.on(ROUTE, SENT)
    assert run("send", "hermes", "hi")[0] == 0
    assert hub.requests[0].headers["authorization"] == "Bearer of-scout"
