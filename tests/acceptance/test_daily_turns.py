"""Agents that the hub wakes, day by day, at the command line: joining, asking, waking, looking, stopping, mending."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from angelia import AsyncClient, Client
from tests.acceptance.hub import MARGIN, Hub, eventually, hub
from tests.rigs.gateway import desktop

WAIT = "slow"  # the agent whose turns last until a file is there


@pytest.fixture
def running() -> Iterator[Hub]:
    with hub() as started:
        yield started


def join(running: Hub, name: str, command: str, *words: str) -> None:
    done = running.run("join", name, "--command", command, *words)
    assert done.returncode == 0, done.stderr


def script(running: Hub, text: str, name: str = "agent.sh") -> str:
    path = running.base / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return shlex.quote(str(path))


def slow(running: Hub) -> Path:
    """Join an agent whose turns last until this file is there."""
    flag = running.base / "flag"
    join(running, WAIT, script(running, f"until [ -e {flag} ]; do sleep 0.05; done; echo done", "slow.sh"))
    return flag


def asking(running: Hub, *words: str) -> "subprocess.Popen[str]":
    line = [sys.executable, "-m", "angelia", "ask", *words]
    return subprocess.Popen(
        line, env=running.cli_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def turns(running: Hub, *words: str) -> list[dict[str, Any]]:
    done = running.run("turns", "--json", *words)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout)["turns"])


# ---- a program as an agent


def test_a_program_is_an_agent_and_knows_who_writes(running: Hub) -> None:
    join(running, "mirror", script(running, 'cat; echo; echo "$ANGELIA_FROM $ANGELIA_VERIFIED $ANGELIA_AGENT $1|$2"')
         + " 'a b' \"$HOME;*\"")  # fmt: skip
    text = "-n \"quotes\" 'and' $HOME `rm` \\ añ 🐝\n\tend"
    done = running.run("ask", "mirror", text)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{text}\nhuman 1 mirror a b|$HOME;*\n"
    answer = json.loads(running.run("ask", "--as", "scout", "mirror", "hi", "--json").stdout)
    assert answer["reply"]["text"] == "hi\nscout 0 mirror a b|$HOME;*"
    assert answer["reply"]["verified"]


def test_it_runs_where_it_was_joined_and_gets_what_it_asked_for(running: Hub) -> None:
    (running.base / "here").mkdir()
    told = script(running, r'printf "%s" "{\"result\": [{\"text\": \"$(pwd) $(wc -l)\"}]}"')
    join(running, "model", told, "--prompt", "--field", "result.0.text", "--folder", "here")
    said = running.run("ask", "model", "one line").stdout.split()
    assert said[0] == os.path.realpath(running.base / "here")
    assert int(said[1]) > 4, "a prompt says who writes, and fences the text"


def test_what_it_calls_acts_as_itself_wherever_the_hub_was_started_from() -> None:
    with hub(env={"PATH": "/usr/bin:/bin"}) as running:  # as a service is: angelia is not in its path
        join(running, "keeper", "cat")
        join(running, "guesser", script(running, 'angelia ask keeper "$(cat), asks $ANGELIA_AGENT"'))
        done = running.run("ask", "guesser", "is it 7?")
        assert (done.stdout, done.stderr) == ("is it 7?, asks guesser\n", "")
        inbox = running.get("/v1/agents/keeper/inbox?state=answered", token=token(running, "keeper")).json
        asked = inbox["deliveries"][0]["message"]
        assert (asked["from"], asked["verified"]) == ("guesser", True)


def token(running: Hub, name: str) -> str:
    return (running.folder / "tokens" / name).read_text("ascii").strip()


def test_an_adapter_is_changed_and_taken_away_and_mail_waits_meanwhile(running: Hub) -> None:
    join(running, "echo", "cat")
    assert running.run("join", "echo", "--title", "Echo").returncode == 0
    assert running.run("ask", "echo", "one").stdout == "one\n"
    assert "online, command" in running.run("agents").stdout
    join(running, "echo", "wc -w")
    assert running.run("ask", "echo", "one two three").stdout.strip() == "3"
    assert running.run("join", "echo", "--no-adapter").returncode == 0
    assert running.run("ask", "echo", "waits", "--wait", "0.5").returncode == 5
    assert "nothing wakes echo" in running.run("wake", "echo").stderr
    join(running, "echo", "cat")
    assert running.run("ask", "echo", "goes on").stdout == "goes on\n"


# ---- wake


def test_waking_tells_the_route_the_time_and_the_answer(running: Hub) -> None:
    join(running, "echo", "cat")
    done = running.run("wake", "echo")
    assert done.returncode == 0, done.stderr
    first, second, third = done.stdout.splitlines()
    assert re.fullmatch(r"echo answered after \d\.\d s, by its program \(command\)", first)
    (word,) = re.findall(r"asked for, ([0-9a-f]{8}):", second)
    assert word in third
    told = json.loads(running.run("wake", "echo", "--json").stdout)
    assert told["answered"]
    assert told["word_came_back"]
    assert told["word"] != word
    assert told["route"] == "program"


@pytest.mark.parametrize(
    ("text", "reason", "said"),
    [
        ("echo 'HTTP 429: slow down' >&2; exit 1", "provider_rate_limit", "exit code 1"),
        ("echo out of funds; exit 3", "provider_quota_limit", "exit code 3"),
        ("exit 4", "unknown", "exit code 4"),
        ("kill -9 $$", "outcome_unknown", "SIGKILL"),  # another than the hub did it: taken once more
    ],
)
def test_a_turn_that_fails_says_why_typed(running: Hub, text: str, reason: str, said: str) -> None:
    join(running, "broken", script(running, text))
    done = running.run("wake", "broken", "--json")
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert (told["answered"], told["reason"]) == (False, reason)
    assert said in told["text"]
    assert told["attempt"] == (2 if reason in ("provider_rate_limit", "outcome_unknown") else 1)


def test_a_program_that_went_away_is_found_by_doctor_and_by_waking(running: Hub) -> None:
    path = script(running, "cat")
    join(running, "gone", path)
    well = json.loads(running.run("doctor", "--json").stdout)
    (seen,) = [check for check in well["checks"] if check["name"] == "agent gone"]
    assert seen["state"] == "ok"
    assert path in seen["text"]
    (running.base / "agent.sh").unlink()
    done = running.run("doctor")
    assert done.returncode == 1
    assert f"WRONG     agent gone: command ({path}): {path} is not there" in done.stdout
    assert "→ then try it: angelia wake gone" in done.stdout
    told = json.loads(running.run("wake", "gone", "--json").stdout)
    assert told["reason"] == "missing_config"
    assert (
        "cannot be woken yet"
        in running.run("join", "acp", "--adapter", "claude_code", "--option", "program=/x/y").stderr
    )


def test_what_doctor_wrote_is_one_conversation(running: Hub) -> None:
    assert running.run("doctor").returncode == 0
    (thread,) = json.loads(running.run("threads", "--json").stdout)["threads"]
    assert running.run("thread", thread["thread"]).stdout.count("to myself, by") == 3


# ---- turns


def test_what_runs_is_seen_and_stopped_by_the_beginning_of_its_id(running: Hub) -> None:
    slow(running)
    with asking(running, WAIT, "go", "--as", "scout") as asked:
        (turn,) = eventually(lambda: turns(running))
        assert (turn["agent"], turn["from"], turn["state"]) == (WAIT, "scout", "running")
        listed = running.run("turns").stdout.splitlines()
        assert listed[1].split()[:3] == [turn["id"][:12], WAIT, "scout"]
        assert f"\n1 turn runs: {WAIT} for scout (" in running.run("status").stdout
        done = running.run("turns", "stop", turn["id"][:12])
        assert done.stdout == f"{turn['id']}: the turn of {WAIT} for scout is being stopped\n"
        assert asked.wait(10 * MARGIN) == 1
        assert asked.stderr is not None
        assert "(cancelled)" in asked.stderr.read()
    assert running.run("turns").stdout == "no turn runs\n"
    (ended,) = turns(running, "--all")
    assert (ended["state"], ended["reason"]) == ("failed", "cancelled")
    assert running.run("turns", "stop", turn["id"]).returncode == 1


def test_looking_at_turns_and_stopping_them_is_the_owners(running: Hub) -> None:
    assert running.get("/v1/turns").status == 401
    assert running.post(f"/v1/turns/{'a' * 32}/stop", {}).status == 401
    assert running.get("/v1/agents/hermes/check").status == 401
    assert (
        running.call("PUT", "/v1/agents/hermes", {"adapter": {"kind": "command", "argv": ["/bin/cat"]}}).status == 401
    )
    join(running, "scout", "cat")
    own = running.call("PUT", "/v1/agents/scout", {"adapter": None}, token=token(running, "scout"))
    assert own.status == 403, "an agent does not say how it is run"
    assert running.run("ask", "scout", "still").stdout == "still\n"


def test_while_one_turn_runs_the_next_message_waits(running: Hub) -> None:
    flag = slow(running)
    with asking(running, WAIT, "first") as one, asking(running, WAIT, "second") as two:
        eventually(lambda: turns(running))
        eventually(lambda: json.loads(running.run("status", "--json").stdout)["queues"][WAIT] == 1)
        assert len(turns(running)) == 1
        flag.touch()
        assert (one.wait(10 * MARGIN), two.wait(10 * MARGIN)) == (0, 0)
    assert len(turns(running, "--all")) == 2


# ---- message_agent and briefing


def as_a_tool(running: Hub, name: str, target: str, text: str) -> Any:
    line = [sys.executable, "-m", "angelia", "message-agent", "--as", name, "--target", target]
    done = subprocess.run(
        line, input=text, env=running.cli_environment(), capture_output=True, text=True, check=True
    )  # fmt: skip
    return json.loads(done.stdout)


async def test_message_agent_goes_the_whole_way_by_every_door(running: Hub) -> None:
    long = "n" * 64
    join(running, long, "wc -m", "--title", "Counter of Letters")
    text = "é" * 16_000
    told = [as_a_tool(running, "m" * 64, long, text)]
    with Client(running.url, name="m" * 64) as blocking:
        told.append(blocking.message_agent("counter-of-letters", text))
    async with AsyncClient(running.url, name="m" * 64) as client:
        told.append(await client.message_agent(f"@{long.upper()}@local", text))
        assert (await client.message_agent("nobody", "x"))["reason"] == "unknown"
        for each in told:
            assert (each["status"], each["to"], each["reply_delivery"]) == ("queued", f"@{long}", "poll")

            def answered(message_id: str = each["delivery_id"]) -> Any:
                return running.receipt(message_id).get("reply")

            assert int(eventually(answered)["text"]) == 16_000


async def test_message_agent_reaches_those_that_a_desktop_brought_whatever_their_names(running: Hub) -> None:
    long, me = "o" * 64, "m" * 64
    rows = [
        {"profile": long, "connection_id": "c" * 64, "connection_label": "Rack 3", "title": "Ops Bot", "online": True},
        {"profile": "night", "connection_id": "vps-1", "online": False},
        {"profile": "default", "connection_id": "local"},
    ]
    async with desktop(running.port) as peer, AsyncClient(running.url, name=me) as client:
        assert (await peer.result("bot_relay.roster.sync", agents=rows))["count"] == 3
        listed = {f"{row['handle']}@{row['connection']}": row for row in await client.agents()}
        assert listed[f"{long}@{'c' * 64}"]["presence"] == "online"
        assert listed["night@vps-1"]["presence"] == "offline"
        assert listed["hermes@desktop"]["presence"] == "unknown"
        assert (await client.message_agent("night", "hi"))["reason"] == "runtime_offline"
        targets = ("ops-bot", f"{long}@{'c' * 64}")
        told = [await client.message_agent(target, "é" * 16_000) for target in targets]
        assert {(each["status"], each["to"]) for each in told} == {("queued", f"@{long} on Rack 3")}
        sending: dict[str, Any] = {"from": me, "target": "ops-bot", "message": "by the gateway"}
        asked = await peer.result("message_agent", **sending)
        assert asked["status"] == "queued"
        drained = await peer.drain()
        assert [mail["id"] for mail in drained] == [each["delivery_id"] for each in (*told, asked)]
        assert drained[0]["message"].endswith("): " + "é" * 16_000)
        assert len(drained[0]["message"]) <= 16_200
        briefing = await client.briefing()
        assert f"- `@{long}` — on Rack 3 — Ops Bot\n" in briefing
        assert "- `@hermes@desktop` — on desktop\n" in briefing


def test_an_agent_that_is_woken_writes_to_another_and_its_answer_is_its_next_turn(running: Hub) -> None:
    log = running.base / "log"
    join(
        running,
        "builder",
        script(
            running,
            f"""
text=$(cat); echo "$ANGELIA_KIND from $ANGELIA_FROM: $text" >> {log}
[ "$ANGELIA_KIND" = reply ] || printf 'which colour?' | angelia message-agent --target painter >> {log}""",
        ),
    )
    join(running, "painter", "sh -c 'cat >/dev/null; echo blue'")
    assert running.run("send", "builder", "build a door").returncode == 0
    eventually(lambda: log.exists() and "reply from painter: blue" in log.read_text())
    assert '"reply_delivery": "notification"' in log.read_text()


def test_a_briefing_is_for_its_agent_and_has_a_tag_that_changes_with_it(running: Hub) -> None:
    running.claim("guest")
    first = running.get("/v1/agents/guest/briefing")
    assert (first.status, first.headers["content-type"]) == (200, "text/markdown; charset=utf-8")
    text, tag = first.body.decode(), first.headers["etag"]
    assert re.fullmatch('"[0-9a-f]{12}"', tag)
    assert text.endswith(f"Briefing epoch: {tag.strip(chr(34))}\n")
    assert running.url in text
    for known in (tag, f"W/{tag}", f'"x", {tag}', "*"):
        again = running.get("/v1/agents/guest/briefing", headers={"If-None-Match": known})
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
    assert running.get("/v1/agents/guest/briefing", headers={"If-None-Match": '"x"'}).status == 200
    running.claim("newcomer")
    changed = running.get("/v1/agents/guest/briefing", headers={"If-None-Match": tag})
    assert (changed.status, "`@newcomer`" in changed.body.decode()) == (200, True)
    assert running.run("briefing", "--as", "guest").stdout == changed.body.decode()


def test_who_may_have_a_briefing(running: Hub) -> None:
    for name in ("scout", "other"):
        assert running.run("join", name).returncode == 0
    assert running.get("/v1/agents/scout/briefing").status == 401
    assert running.get("/v1/agents/scout/briefing", token=token(running, "scout")).status == 200
    assert running.get("/v1/agents/scout/briefing", token=token(running, "other")).status == 403
    assert running.get("/v1/agents/scout/briefing", admin=True).status == 200
    assert running.get("/v1/agents/human/briefing", admin=True).status == 200
    assert running.get("/v1/agents/human/briefing").status == 400
    assert running.get("/v1/agents/nobody/briefing").code == "unknown_agent"
    assert running.run("briefing", "--as", "scout").stdout.startswith("# You are @scout\n")
    assert running.run("briefing").stdout.startswith("# You are @human\n")


# ---- who a turn acts as


@pytest.mark.parametrize("words", [(), ("--open",)], ids=["keyed", "open"])
def test_a_turn_acts_as_its_agent_and_never_as_the_hubs_owner(running: Hub, words: tuple[str, ...]) -> None:
    data = f"export ANGELIA_DATA_DIR={running.folder}"  # as the default folder is: a turn finds it
    lines = ["down", "up --replace", "join thief", "leave keeper", "inbox --as human", "send --as human keeper x",
             "send --as keeper human x", "turns", "dead", "backup", "doctor", "wake keeper"]  # fmt: skip
    tried = "\n".join(f"angelia {line} >/dev/null 2>>$0.err; echo {line.split()[0]} $?" for line in lines)
    well = "angelia send keeper hi >/dev/null; echo sent $?; angelia threads --json; angelia status >/dev/null; echo $?"
    join(running, "keeper", "cat")
    assert running.run("join", "vault").returncode == 0
    assert running.run("send", "vault", "not for everybody").returncode == 0
    join(running, "imp", script(running, f"{data}\n{tried}\n{well}", "imp.sh"), *words)
    done = running.run("ask", "imp", "be the owner")
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[: len(lines)] == [f"{line.split()[0]} 1" for line in lines]
    assert said[len(lines)] == "sent 0"
    assert "not for everybody" not in done.stdout, "the conversations that an agent sees are its own"
    assert said[-1] == "0"
    told = (running.base / "imp.sh.err").read_text().splitlines()
    sentence = "this runs inside a turn of imp; the hub's owner does this from a terminal of their own"
    assert told == [f"angelia: {sentence}"] * len(lines)
    assert "thief" not in json.loads(running.run("status", "--json").stdout)["agents"]
    mail = running.get("/v1/agents/keeper/inbox?state=answered,delivered,queued,leased", token=token(running, "keeper"))
    assert {row["message"]["from"] for row in mail.json["deliveries"]} == {"imp"}


def test_of_many_joins_at_once_every_one_ends_well_and_the_token_that_is_kept_is_the_last(running: Hub) -> None:
    line = [sys.executable, "-m", "angelia", "join", "scout"]
    assert running.run("join", "scout").returncode == 0
    (running.folder / "tokens" / "scout").unlink()
    joins = [
        subprocess.Popen(line, env=running.cli_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for _ in range(6)
    ]
    ended = [(each.communicate()[1], each.returncode) for each in joins]
    assert [code for _, code in ended] == [0] * 6, ended
    assert [file.name for file in (running.folder / "tokens").iterdir()] == ["scout"]
    made = sum(b"keyed before" in said for said, _ in ended)
    assert made == 1, "one of them made the token that was missing; the others found it"
    assert running.get("/v1/agents/scout/inbox", token=token(running, "scout")).status == 200


def test_the_examples_of_the_owners_own_briefing_work(running: Hub) -> None:
    text = running.run("briefing").stdout
    examples = re.findall(r"```(sh|python)\n(.*?)```", text, re.DOTALL)
    assert [kind for kind, _ in examples] == ["sh", "sh", "python"]
    for kind, code in examples:
        shell = ["sh", "-ec"] if kind == "sh" else [sys.executable, "-c"]
        done = subprocess.run(
            [*shell, code.replace("NAME", "hermes")], env=running.cli_environment(), cwd=running.base,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert "queued" in done.stdout, (code, done.stdout, done.stderr)
