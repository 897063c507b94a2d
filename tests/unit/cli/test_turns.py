"""turns, and what status and doctor say of agents that are woken: all of it fits a terminal and obeys nobody."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from angelia.cli.checks import DOUBTFUL, OK, WRONG, Finding
from angelia.cli.woken import woken
from angelia.client.find import Address
from angelia.settings import load
from tests.fakes.fake_hub import FakeHub, answer, problem
from tests.unit.cli.conftest import Run

TURNS = "GET /v1/turns"


def turn(number: int = 0, state: str = "running", **more: object) -> dict[str, object]:
    since = (datetime.now(UTC) - timedelta(seconds=90)).isoformat()
    made = {"id": f"0197f0c2a4b{number:x}{'7' * 20}", "agent": "scout", "from": "boss", "thread": "0" * 32,
            "kind": "command", "attempt": 1, "since": since, "state": state}  # fmt: skip
    return {**made, **more}


def turns(*rows: dict[str, object]) -> Any:
    return answer({"turns": list(rows), "running": sum(row["state"] == "running" for row in rows)})


# ---- the list


def test_what_runs_since_when_and_for_whom(run: Run, hub: FakeHub) -> None:
    hub.on(TURNS, turns(turn(), turn(1, attempt=2), turn(2, "answered")))
    code, out, _ = run("turns")
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [
        ["ID", "AGENT", "FROM", "FOR", "STATE", "BY"],
        ["0197f0c2a4b0", "scout", "boss", "1", "min", "running", "command"],
        ["0197f0c2a4b1", "scout", "boss", "1", "min", "attempt", "2", "command"],
    ]


def test_those_that_ended_too(run: Run, hub: FakeHub) -> None:
    took: Any = {"since": "2026-11-29T12:00:00.000Z", "ended": "2026-11-29T12:00:07.250Z"}
    hub.on(TURNS, turns(turn(), turn(1, "answered", **took), turn(2, "failed", reason="provider_quota_limit", **took)))
    lines = run("turns", "--all")[1].splitlines()
    assert [line.split()[3:-1] for line in lines[1:]] == [
        ["1", "min", "running"], ["7", "s", "answered"], ["7", "s", "provider_quota_limit"],
    ]  # fmt: skip


def test_none(run: Run, hub: FakeHub) -> None:
    hub.on(TURNS, turns(turn(state="answered")))
    assert run("turns") == (0, "no turn runs\n", "")


def test_whatever_there_is_it_fits_a_terminal(run: Run, hub: FakeHub) -> None:
    evil: dict[str, Any] = {"agent": "a" * 64, "from": "b\x1b[2J\n" + "b" * 60 + "@" + "c" * 64, "kind": "claude_code",
            "reason": "provider_auth_or_access"}  # fmt: skip
    hub.on(TURNS, turns(*(turn(id=f"{number:012x}{'7' * 20}", state="failed", **evil) for number in range(200))))
    out = run("turns", "--all")[1]
    lines = out.splitlines()
    assert len(lines) <= 23
    assert max(map(len, lines)) <= 80
    assert lines[-1] == "… and 180 more: --json"
    assert "\x1b" not in out


def test_names_are_whole_while_there_is_room(run: Run, hub: FakeHub) -> None:
    hub.on(TURNS, turns({**turn(agent="night-build-of-the-ops"), "from": "a-long-name@vps-1"}))
    assert run("turns")[1].splitlines()[1].split()[1:3] == ["night-build-of-the-ops", "a-long-name@vps-1"]
    hub.on(TURNS, turns({**turn(), "from": "f" * 64}))
    (line,) = run("turns")[1].splitlines()[1:]
    assert (len(line), line.split()[1]) == (80, "scout")


def test_ids_are_as_long_as_tells_them_apart(run: Run, hub: FakeHub) -> None:
    hub.on(TURNS, turns(turn(id="a" * 20 + "0" * 12), turn(id="a" * 20 + "1" * 12)))
    assert [line.split()[0] for line in run("turns")[1].splitlines()[1:]] == ["a" * 20 + "0", "a" * 20 + "1"]


def test_the_list_in_json(run: Run, hub: FakeHub) -> None:
    hub.on(TURNS, turns(turn(), turn(1, "answered")))
    assert [row["state"] for row in json.loads(run("turns", "--json")[1])["turns"]] == ["running"]
    assert len(json.loads(run("turns", "--all", "--json")[1])["turns"]) == 2


# ---- stopping one


@pytest.mark.parametrize("word", ["0197f0c2a4b1", "0197F0C2A4B1", f"0197f0c2a4b1{'7' * 20}"])
def test_the_beginning_of_an_id_is_enough(run: Run, hub: FakeHub, word: str) -> None:
    whole = str(turn(1)["id"])
    hub.on(TURNS, turns(turn(), turn(1), turn(2, "answered")))
    hub.on(f"POST /v1/turns/{whole}/stop", answer({"stopping": whole}))
    code, out, _ = run("turns", "stop", word)
    assert (code, out) == (0, f"{whole}: the turn of scout for boss is being stopped\n")
    assert json.loads(run("turns", "stop", word, "--json")[1]) == {"stopping": whole}


@pytest.mark.parametrize(
    ("word", "said"),
    [("0197", "2 turns run whose ids begin with '0197'"), ("f", "no turn runs"), ("0197f0c2a4b2", "no turn runs"),
     ("../x", "no turn runs")],
)  # fmt: skip
def test_what_does_not_lead_to_one_that_runs_stops_nothing(run: Run, hub: FakeHub, word: str, said: str) -> None:
    hub.on(TURNS, turns(turn(), turn(1), turn(2, "answered")))
    code, out, err = run("turns", "stop", word)
    assert (code, out) == (1, "")
    assert said in err
    assert [request.method for request in hub.requests] == ["GET"]


def test_one_that_ended_meanwhile(run: Run, hub: FakeHub) -> None:
    hub.on(TURNS, turns(turn()))
    hub.on(f"POST /v1/turns/{turn()['id']}/stop", problem(404, "not_found", "No turn runs for it."))
    code, _, err = run("turns", "stop", "0197")
    assert code == 1
    assert "No turn runs for it." in err


@pytest.mark.parametrize("words", [["stop"], ["list", "0197"], ["burn"]])
def test_turns_used_wrongly(run: Run, hub: FakeHub, words: list[str]) -> None:
    assert run("turns", *words)[0] == 2
    assert not hub.requests


# ---- status


def test_status_tells_of_turns_that_run_in_one_line(run: Run, hub: FakeHub) -> None:
    hub.on("GET /health", answer({"product": "angelia", "status": "ok"})).on("GET /status", answer({"queues": {}}))
    hub.on(TURNS, turns(turn(), turn(1, "answered")))
    assert "\n1 turn runs: scout for boss (1 min)\n" in run("status")[1]
    hub.on(TURNS, turns(*(turn(number, agent="a" * 60) for number in range(8))))
    (line,) = [line for line in run("status")[1].splitlines() if "turns run" in line]
    assert line.startswith("8 turns run: aaa")
    assert len(line) <= 80
    hub.on(TURNS, turns())
    assert "turn" not in run("status")[1]


def test_status_without_leave_to_look_at_turns(run: Run, hub: FakeHub) -> None:
    hub.on("GET /health", answer({"product": "angelia", "status": "ok"})).on("GET /status", answer({"queues": {}}))
    hub.on(TURNS, problem(401, "token_required"))
    code, out, err = run("status")
    assert (code, err) == (0, "")
    assert "turn" not in out


# ---- doctor, and the list of agents

SEEN = {"kind": "hermes", "program": "/usr/bin/hermes", "version": "0.9", "ways": ["command line"], "problem": None,
        "notes": []}  # fmt: skip


def looked(hub: FakeHub, data_dir: Path, seen: Any) -> list[tuple[str, str, str, str]]:
    rows = [{"handle": "scout", "adapter": {"kind": "hermes"}}, {"handle": "ann", "adapter": None}, {"handle": "bob"}]
    hub.on("GET /v1/agents", answer({"agents": rows})).on("GET /v1/agents/scout/check", seen)
    found: list[Finding] = list(woken(Address(path=str(data_dir / "hub.sock")), load({})))
    return [(each.name, each.state, each.text, each.mend) for each in found]


def test_doctor_looks_at_each_agent_that_is_woken(hub: FakeHub, data_dir: Path) -> None:
    text = "hermes (/usr/bin/hermes 0.9), by command line"
    assert looked(hub, data_dir, answer(SEEN)) == [("agent scout", OK, text, "")]
    ways = {**SEEN, "ways": ["API server", "command line"], "notes": ["Its key is old."]}
    (found,) = looked(hub, data_dir, answer(ways))
    assert found[1:3] == (DOUBTFUL, "hermes (/usr/bin/hermes 0.9), by API server, else command line; Its key is old.")


def test_doctor_says_what_is_wrong_and_how_to_try_it(hub: FakeHub, data_dir: Path) -> None:
    gone = {**SEEN, "program": None, "version": None, "ways": [], "problem": "There is no hermes: install it."}
    (found,) = looked(hub, data_dir, answer(gone))
    assert found[1:] == (
        WRONG,
        "hermes: There is no hermes: install it.",
        f"then try it: angelia wake scout --data-dir {data_dir}",
    )
    (found,) = looked(hub, data_dir, problem(400, "bad_request", "It cannot be read."))
    assert found[1:3] == (WRONG, "it cannot be looked at: It cannot be read.")


def test_doctor_of_a_hub_that_lists_nobody(hub: FakeHub, data_dir: Path) -> None:
    hub.on("GET /v1/agents", problem(503, "unwell"))
    (found,) = woken(Address(path=str(data_dir / "hub.sock")), load({}))
    assert found.state == WRONG


def test_agents_shows_by_what_each_is_woken(run: Run, hub: FakeHub) -> None:
    rows = [
        {"handle": "scout", "presence": "away", "keyed": True, "adapter": {"kind": "hermes"}},
        {"handle": "ann", "presence": "away", "keyed": False, "adapter": {"kind": "command"}},
    ]
    hub.on("GET /v1/agents", answer({"agents": rows}))
    lines = run("agents")[1].splitlines()
    assert [line.split(maxsplit=1)[1] for line in lines[1:]] == ["away, hermes", "away, command (open)"]
