"""join and leave: a name becomes an agent's own, and its token a file."""

import json
from pathlib import Path

import pytest

from angelia.cli import tokens
from tests.fakes.fake_hub import FakeHub, answer, problem
from tests.unit.cli.conftest import Run

AGENT = "PUT /v1/agents/scout"
TOKEN = "POST /v1/agents/scout/token"
INBOX = "GET /v1/agents/scout/inbox"
PAGE = answer({"deliveries": [], "total": 0, "hidden": 0, "oldest_unread_at": None, "next": None})


@pytest.fixture(autouse=True)
def willing(hub: FakeHub) -> None:
    hub.on(AGENT, answer({"handle": "scout", "keyed": False}, 201))
    hub.on(TOKEN, answer({"handle": "scout", "id": "1", "token": "secret-1"}, 201))


def test_join_keys_the_name_and_keeps_its_token(run: Run, hub: FakeHub, data_dir: Path) -> None:
    code, out, err = run("join", "scout", "--title", "Scout", "--description", "reads the news")
    assert code == 0
    assert out == f"{data_dir}/tokens/scout\n"
    assert "angelia listen --as scout" in err
    assert "secret-1" not in out + err
    assert tokens.read(str(data_dir), "scout") == "secret-1"
    assert hub.asked(AGENT)[0].json == {"title": "Scout", "description": "reads the news"}


def test_a_title_and_a_description_are_taken_away_by_empty_ones(run: Run, hub: FakeHub) -> None:
    assert run("join", "scout", "--title", "", "--description", "")[0] == 0
    assert hub.asked(AGENT)[0].json == {"title": "", "description": ""}


def test_join_again_keeps_a_token_that_works(run: Run, hub: FakeHub, data_dir: Path) -> None:
    tokens.save(str(data_dir), "scout", "secret-0")
    hub.on(INBOX, PAGE)
    assert run("join", "scout")[0] == 0
    assert not hub.asked(TOKEN)
    assert hub.asked(INBOX)[0].headers["authorization"] == "Bearer secret-0"
    assert hub.asked(AGENT)[0].json == {}


def test_join_again_replaces_one_that_does_not(run: Run, hub: FakeHub, data_dir: Path) -> None:
    tokens.save(str(data_dir), "scout", "secret-0")
    hub.on(INBOX, problem(401, "token_required"))
    assert run("join", "scout")[0] == 0
    assert tokens.read(str(data_dir), "scout") == "secret-1"


def test_join_of_a_name_that_somebody_has_warns(run: Run, hub: FakeHub) -> None:
    hub.on(AGENT, answer({"handle": "scout", "keyed": True}))
    code, _, err = run("join", "scout")
    assert code == 0
    assert "keyed before; if a token made for it elsewhere still works, it ends soon" in err


def test_join_open_leaves_it_open(run: Run, hub: FakeHub, data_dir: Path) -> None:
    assert run("join", "scout", "--open") == (0, "scout is known and open\n", "")
    assert not hub.asked(TOKEN)
    assert tokens.find(str(data_dir), "scout") is None
    hub.on(AGENT, answer({"handle": "scout", "keyed": True}))
    assert "keyed before" in run("join", "scout", "--open")[1]


def test_join_is_the_owners_whoever_asks(run: Run, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANGELIA_AGENT", "other")
    monkeypatch.setenv("ANGELIA_TOKEN", "of-other")
    assert run("join", "scout")[0] == 0
    assert all("authorization" not in request.headers for request in hub.requests)


def test_join_in_json(run: Run, data_dir: Path) -> None:
    _, out, _ = run("join", "scout", "--json")
    assert json.loads(out) == {"agent": "scout", "keyed": True, "token_file": f"{data_dir}/tokens/scout"}


def test_join_elsewhere_is_refused(run: Run, far: FakeHub) -> None:
    far.on("GET /health", answer({"product": "angelia", "status": "ok", "instance": "bb"}))
    code, _, err = run("join", "scout", "--hub", far.url)
    assert code == 1
    assert "not the owner" in err


def test_join_what_is_no_name(run: Run, hub: FakeHub) -> None:
    assert run("join", "../x")[0] == 2
    assert not hub.requests


def test_leave(run: Run, hub: FakeHub, data_dir: Path) -> None:
    tokens.save(str(data_dir), "scout", "secret-0")
    hub.on("DELETE /v1/agents/scout", answer({"removed": "scout"}))
    assert run("leave", "scout") == (0, "scout is gone\n", "")
    assert tokens.find(str(data_dir), "scout") is None


def test_leave_that_is_refused_keeps_the_token(run: Run, hub: FakeHub, data_dir: Path) -> None:
    tokens.save(str(data_dir), "scout", "secret-0")
    hub.on("DELETE /v1/agents/scout", problem(404, "unknown_agent"))
    assert run("leave", "scout")[0] == 1
    assert tokens.find(str(data_dir), "scout") is not None


# ---- an agent that is woken

WEBHOOK = ("--webhook", "http://127.0.0.1:9/", "--secret-file")
WOKEN = "the hub wakes scout for each message. Try it: angelia wake scout"


def test_an_agent_that_is_woken_is_said_to_be_also_when_only_its_title_is_new(run: Run, hub: FakeHub) -> None:
    hub.on(AGENT, answer({"handle": "scout", "keyed": False, "adapter": {"kind": "command"}}))
    _, _, err = run("join", "scout", "--title", "Scout")
    assert WOKEN in err
    assert "angelia listen" not in err
    assert WOKEN in run("join", "scout", "--open")[2]


def test_what_cannot_be_woken_yet_is_not_to_be_tried_and_the_option_is_said_as_it_is_typed(
    run: Run, hub: FakeHub, data_dir: Path
) -> None:
    (data_dir / "secret").write_text("whsec_AAAA")
    hub.on(AGENT, answer({"handle": "scout", "keyed": False, "adapter": {"kind": "webhook"}}))
    hub.on("GET /v1/agents/scout/check", answer({"problem": "It is private: join it with allow_private."}))
    _, _, err = run("join", "scout", *WEBHOOK, str(data_dir / "secret"))
    assert "cannot be woken yet: It is private: join it with --allow-private." in err
    assert "Try it" not in err
    hub.on("GET /v1/agents/scout/check", answer({"problem": None})).on(INBOX, PAGE)
    assert WOKEN in run("join", "scout", *WEBHOOK, str(data_dir / "secret"))[2]
