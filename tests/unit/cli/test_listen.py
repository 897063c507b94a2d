"""listen, as a process of its own, against a scripted hub: hands over whole, acks after, ends as it should."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.fake_hub import FakeHub, Feed, answer, drop, hold, problem
from tests.unit.cli.conftest import Run

ROUTE = "GET /v1/agents/scout/stream"
CLAIM = "POST /v1/agents/scout/claim"
SOON = 20


def an_id(number: int) -> str:
    return f"{number:032x}"


def mail(number: int, attempt: int = 1, text: str | None = None) -> dict[str, object]:
    message = {"id": an_id(number), "from": "hermes", "thread": an_id(900), "text": text or f"no. {number}"}
    return {
        "message": message,
        "seq": number,
        "attempt": attempt,
        "lease": {"token": f"{number}-{attempt}", "attempt": attempt},
    }


def ack(number: int, attempt: int = 1) -> str:
    return f"POST /v1/leases/{number}-{attempt}/ack"


def nack(number: int, attempt: int = 1) -> str:
    return f"POST /v1/leases/{number}-{attempt}/nack"


class Listening(subprocess.Popen[bytes]):
    def __init__(self, *words: str, stdout: Any = subprocess.PIPE) -> None:
        line = [sys.executable, "-m", "angelia", "listen", "--as", "scout", *words]
        super().__init__(line, stdout=stdout, stderr=subprocess.PIPE)

    def line(self) -> Any:
        assert self.stdout is not None
        return json.loads(self.stdout.readline())

    def end(self, with_signal: int | None = None) -> tuple[int, str]:
        if with_signal is not None:
            self.send_signal(with_signal)
        _, err = self.communicate(timeout=SOON)
        return self.returncode, err.decode()


@pytest.fixture
def feed(hub: FakeHub) -> Feed:
    made = Feed(": connected\nretry: 100\n\n")
    hub.on(ROUTE, made)
    for number in range(1, 10):
        hub.on(ack(number), answer({"state": "delivered"})).on(nack(number), answer({"state": "queued"}))
    return made


@pytest.fixture
def script(data_dir: Path) -> Path:
    """A command that notes what it was given, and ends as ``ends`` beside it says."""
    path = data_dir / "a command"
    path.write_text(
        "#!/bin/sh\n"
        f'cat >> "{data_dir}/stdin"; echo >> "{data_dir}/stdin"\n'
        f'env | grep ^ANGELIA_ | sort >> "{data_dir}/env"\n'
        f'echo "$#|$1|$2" >> "{data_dir}/args"\n'
        f'while [ -e "{data_dir}/wait" ]; do sleep 0.02; done\n'
        f'exit $(cat "{data_dir}/ends" 2>/dev/null || echo 0)\n'
    )
    path.chmod(0o755)
    return path


# ---- lines on stdout


def test_a_line_for_each_and_an_ack_after_it(hub: FakeHub, feed: Feed) -> None:
    child = Listening()
    feed.event(mail(1, text="a\nb\u2028c\x1b[31m 🐝"), id="e-1")
    found = child.line()
    assert found["text"] == "a\nb\u2028c\x1b[31m 🐝"
    assert (found["id"], found["from"], found["attempt"], found["seq"]) == (an_id(1), "hermes", 1, 1)
    hub.wait_for(ack(1))
    assert hub.asked(ROUTE)[0].path.endswith("?ack=manual")
    code, err = child.end(signal.SIGTERM)
    assert (code, err) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_other_signals_end_it_too(hub: FakeHub, feed: Feed, number: int) -> None:
    child = Listening()
    hub.wait_for(ROUTE)
    assert child.end(number) == (0, "")


def test_a_reader_who_goes_away_ends_it_at_once(hub: FakeHub, feed: Feed) -> None:
    child = Listening()
    feed.event(mail(1), id="e-1")
    child.line()
    assert child.stdout is not None
    child.stdout.close()
    child.stdout = None
    assert child.end() == (0, "")


def test_what_could_not_be_written_is_not_acked(hub: FakeHub, feed: Feed) -> None:
    read_end, write_end = os.pipe()
    child = Listening(stdout=write_end)
    os.close(write_end)
    hub.wait_for(ROUTE)
    feed.event(mail(1, text="x" * 3_000_000), id="e-1")
    assert os.read(read_end, 10)
    os.close(read_end)
    assert child.end() == (0, "")
    assert not hub.asked(ack(1))


def test_a_reader_who_takes_nothing_does_not_keep_it_from_ending(hub: FakeHub, feed: Feed) -> None:
    read_end, write_end = os.pipe()
    child = Listening(stdout=write_end)
    os.close(write_end)
    hub.wait_for(ROUTE)
    feed.event(mail(1, text="x" * 3_000_000), id="e-1")
    assert os.read(read_end, 10)
    assert child.end(signal.SIGTERM) == (0, "")
    os.close(read_end)
    assert not hub.asked(ack(1))


def test_it_writes_to_a_file_too(hub: FakeHub, feed: Feed, data_dir: Path) -> None:
    with open(data_dir / "out", "wb") as out:
        child = Listening(stdout=out)
    feed.event(mail(1), id="e-1")
    hub.wait_for(ack(1))
    assert json.loads((data_dir / "out").read_text())["text"] == "no. 1"
    child.end(signal.SIGTERM)


def test_it_outlives_its_hub_and_hands_nothing_over_twice(hub: FakeHub, feed: Feed) -> None:
    later = Feed(": connected\nretry: 100\n\n")
    hub.on(ROUTE, feed, drop, problem(503, "stopping"), later)
    hub.on(ack(1), drop).on(ack(1, attempt=2), answer({"state": "delivered"}))
    child = Listening()
    feed.event(mail(1), id="e-1")
    assert child.line()["text"] == "no. 1"
    hub.wait_for(ack(1))
    feed.cut()
    later.event(mail(1, attempt=2), id="e-2")
    later.event(mail(3), id="e-3")
    assert child.line()["text"] == "no. 3"
    assert hub.wait_for(ack(1, attempt=2))
    assert hub.wait_for(ROUTE, 4)[3].headers["last-event-id"] == "e-1"
    code, err = child.end(signal.SIGTERM)
    assert code == 0
    assert len(err.splitlines()) == 2
    assert err.endswith("the hub is back\n")


def test_killed_between_handing_over_and_acking_it_knows(hub: FakeHub, feed: Feed) -> None:
    """The ack never arrives, the journal is there: the next one acks, and hands nothing over."""
    again = Feed(": connected\n\n")
    hub.on(ROUTE, feed, again)
    hub.on(ack(1), hold).on(ack(1, attempt=2), answer({"state": "delivered"}))
    child = Listening()
    feed.event(mail(1), id="e-1")
    child.line()
    hub.wait_for(ack(1))
    child.end(signal.SIGKILL)
    again.event(mail(1, attempt=2), id="e-2")
    again.event(mail(2), id="e-3")
    second = Listening()
    assert second.line()["text"] == "no. 2"
    hub.wait_for(ack(1, attempt=2))
    second.end(signal.SIGTERM)


def test_another_listener_takes_over(hub: FakeHub, feed: Feed) -> None:
    child = Listening()
    hub.wait_for(ROUTE)
    feed.event({"reason": "another"}, event="superseded")
    code, err = child.end()
    assert code == 1
    assert "another listener of this name has taken over" in err


def test_a_refusal_for_good_ends_it(hub: FakeHub) -> None:
    hub.on(ROUTE, problem(401, "token_required", "The name scout is keyed."))
    code, err = Listening().end()
    assert code == 1
    assert "The name scout is keyed. (token_required)" in err


def test_it_waits_for_a_hub_that_is_not_there_yet(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeHub() as gone:
        url = gone.url
    monkeypatch.setenv("ANGELIA_URL", url)
    child = Listening()
    assert child.stderr is not None
    assert b"trying again" in child.stderr.readline()
    assert child.poll() is None
    assert child.end(signal.SIGTERM)[0] == 0


def test_it_waits_for_its_own_hub_and_finds_its_socket(data_dir: Path) -> None:
    child = Listening()
    assert child.stderr is not None
    assert b"trying again" in child.stderr.readline()
    feed = Feed(": connected\n\n")
    with FakeHub(data_dir / "hub.sock") as hub:
        hub.on(ROUTE, feed).on(ack(1), answer({"state": "delivered"}))
        feed.event(mail(1), id="e-1")
        assert child.line()["text"] == "no. 1"
        hub.wait_for(ack(1))
        assert child.end(signal.SIGTERM)[0] == 0


def test_nohup_is_respected(hub: FakeHub, feed: Feed) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    child = Listening()
    signal.signal(signal.SIGHUP, before)
    hub.wait_for(ROUTE)
    child.send_signal(signal.SIGHUP)
    feed.event(mail(1), id="e-1")
    assert child.line()["text"] == "no. 1"
    child.end(signal.SIGTERM)


def test_without_a_stdout_there_is_nobody_to_hand_mail_to(hub: FakeHub, feed: Feed) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "{sys.executable}" -m angelia listen --as scout >&-'], capture_output=True, check=False
    )
    assert done.returncode == 2
    assert b"stdout is closed" in done.stderr
    assert not hub.requests


# ---- a command


def test_a_command_gets_the_message_and_its_end_is_the_ack(
    hub: FakeHub, feed: Feed, script: Path, data_dir: Path
) -> None:
    child = Listening("--exec", f"'{script}' \"two words\" '$HOME; rm -rf x'")
    feed.event(mail(1, text='`touch x`; "$(id)"\n🐝'), id="e-1")
    hub.wait_for(ack(1))
    assert child.end(signal.SIGTERM)[0] == 0
    given = json.loads((data_dir / "stdin").read_text())
    assert given["text"] == '`touch x`; "$(id)"\n🐝'
    assert given["attempt"] == 1
    assert (data_dir / "args").read_text() == "2|two words|$HOME; rm -rf x\n"
    found = dict(line.split("=", 1) for line in (data_dir / "env").read_text().splitlines())
    assert found["ANGELIA_FROM"] == "hermes"
    assert found["ANGELIA_ID"] == an_id(1)
    assert found["ANGELIA_THREAD"] == an_id(900)
    assert found["ANGELIA_ATTEMPT"] == "1"
    assert found["ANGELIA_AGENT"] == "scout"
    assert found["ANGELIA_DATA_DIR"] == str(data_dir)


def test_a_command_that_fails_gives_it_back(hub: FakeHub, feed: Feed, script: Path, data_dir: Path) -> None:
    (data_dir / "ends").write_text("7")
    child = Listening("--exec", f"'{script}'")
    feed.event(mail(1), id="e-1")
    assert hub.wait_for(nack(1))[0].json["reason"].endswith("ended with 7")
    code, err = child.end(signal.SIGTERM)
    assert code == 0
    assert "goes back to the hub" in err
    assert not hub.asked(ack(1))


def test_a_command_that_ignores_its_stdin(hub: FakeHub, feed: Feed) -> None:
    child = Listening("--exec", "true")
    feed.event(mail(1, text="x" * 1_000_000), id="e-1")
    hub.wait_for(ack(1))
    child.end(signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_running_command_is_let_end(hub: FakeHub, feed: Feed, script: Path, data_dir: Path, number: int) -> None:
    (data_dir / "wait").touch()
    child = Listening("--exec", f"'{script}'")
    feed.event(mail(1), id="e-1")
    feed.event(mail(2), id="e-2")
    while not (data_dir / "args").exists():
        assert child.poll() is None
    child.send_signal(number)
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.3)
    (data_dir / "wait").unlink()
    assert child.end()[0] == 0
    assert hub.asked(ack(1))
    assert not hub.asked(ack(2))
    assert len((data_dir / "args").read_text().splitlines()) == 1


def test_one_at_a_time_and_in_order(hub: FakeHub, feed: Feed, script: Path, data_dir: Path) -> None:
    child = Listening("--exec", f"'{script}'")
    for number in range(1, 6):
        feed.event(mail(number), id=f"e-{number}")
    hub.wait_for(ack(5))
    child.end(signal.SIGTERM)
    acks = [request.route for request in hub.requests if request.route.endswith("/ack")]
    assert acks == [ack(number) for number in range(1, 6)]
    texts = [json.loads(line)["text"] for line in (data_dir / "stdin").read_text().splitlines()]
    assert texts == [f"no. {number}" for number in range(1, 6)]


def test_news_is_no_work(hub: FakeHub, feed: Feed, script: Path, data_dir: Path) -> None:
    child = Listening("--exec", f"'{script}'")
    feed.event({"type": "subscriber_connected", "text": "hermes is connected", "_meta": {"from": "interop"}})
    kept = mail(2)
    kept["message"] = {"id": an_id(2), "from": "interop", "kind": "notice", "text": "hermes is connected"}
    feed.event(kept, id="e-1")
    feed.event(mail(1), id="e-2")
    hub.wait_for(ack(1))
    assert hub.asked(ack(2))
    child.end(signal.SIGTERM)
    assert len((data_dir / "args").read_text().splitlines()) == 1


@pytest.mark.parametrize("command", ["", "  ", "'unclosed", "/nowhere/at/all", "no-such-command-anywhere x"])
def test_a_command_that_cannot_be_run_is_said_before_any_mail_is_taken(run: Run, hub: FakeHub, command: str) -> None:
    code, _, err = run("listen", "--as", "scout", "--exec", command)
    assert code == 2
    assert "--exec" in err
    assert not hub.requests


# ---- once


def claimed(number: int) -> Any:
    return answer({"deliveries": [mail(number)], "remaining": 0})


def test_once_hands_one_over_and_ends(hub: FakeHub, feed: Feed) -> None:
    hub.on(CLAIM, claimed(1), claimed(2))
    child = Listening("--once")
    assert child.line()["text"] == "no. 1"
    assert child.end() == (0, "")
    assert hub.asked(ack(1))
    assert len(hub.asked(CLAIM)) == 1


def test_once_ends_with_1_when_its_command_failed(hub: FakeHub, feed: Feed, script: Path, data_dir: Path) -> None:
    hub.on(CLAIM, claimed(1))
    (data_dir / "ends").write_text("7")
    code, _ = Listening("--once", "--exec", f"'{script}'").end()
    assert code == 1
    assert hub.asked(nack(1))


def test_once_that_waits_ends_when_it_is_told_to(hub: FakeHub) -> None:
    hub.on(CLAIM, hold)
    child = Listening("--once")
    hub.wait_for(CLAIM)
    assert child.end(signal.SIGTERM) == (0, "")
