"""listen --fifo: lines in a named pipe, whole, acked once they were taken out of it, and nothing lost with a reader."""

import array
import fcntl
import json
import os
import re
import signal
import stat
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from angelia.cli.exits import UsageError
from angelia.cli.to_fifo import ABSENT_SECONDS, HELD_SECONDS, ToFifo
from tests.fakes.fake_hub import FakeHub, Feed, answer
from tests.unit.cli.conftest import Run
from tests.unit.cli.test_listen import ROUTE, SOON, ack, an_id, mail

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a writer what is left in a pipe")


class Listening(subprocess.Popen[bytes]):
    """``angelia listen --fifo``."""

    def __init__(self, path: Path, *words: str) -> None:
        line = [sys.executable, "-m", "angelia", "listen", "--as", "scout", "--fifo", str(path), *words]
        super().__init__(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def __enter__(self) -> "Listening":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.communicate()

    def waits(self) -> None:
        """Until it has said that nobody reads."""
        assert self.stderr is not None
        assert b"waits for a reader" in self.stderr.readline()

    def has_closed(self, path: Path) -> bool:
        """Whether it has noticed that its reader is gone."""
        listed = [os.path.realpath(each) for each in Path(f"/proc/{self.pid}/fd").iterdir()]
        return str(path) not in listed

    def end(self) -> tuple[int, bytes, bytes]:
        self.send_signal(signal.SIGTERM)
        out, err = self.communicate(timeout=SOON)
        return self.returncode, out, err


@pytest.fixture
def path(data_dir: Path) -> Path:
    return data_dir / "a pipe"


@pytest.fixture
def feed(hub: FakeHub) -> Feed:
    made = Feed(": connected\nretry: 100\n\n")
    hub.on(ROUTE, made)
    for number in range(1, 10):
        hub.on(ack(number), answer({"state": "delivered"}))
    return made


def unread(pipe: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


def line(text: bytes) -> Any:
    assert text.endswith(b"\n")
    return json.loads(text)


def test_a_line_for_each_and_an_ack_after_it(hub: FakeHub, feed: Feed, path: Path) -> None:
    with Listening(path) as child:
        child.waits()
        found = path.stat()
        assert stat.S_ISFIFO(found.st_mode)
        assert stat.S_IMODE(found.st_mode) == 0o600
        with path.open("rb") as reader:
            for number in (1, 2):
                feed.event(mail(number, text="a\nb"), id=f"e-{number}")
                assert line(reader.readline())["id"] == an_id(number)
                hub.wait_for(ack(number))
            assert hub.asked(ROUTE)[0].path.endswith("?ack=manual&window=1")
            assert child.end() == (0, b"", b"")
            assert reader.read() == b""
    assert not path.exists()


def test_while_nobody_reads_no_mail_is_asked_for(hub: FakeHub, feed: Feed, path: Path) -> None:
    with Listening(path) as child:
        child.waits()
        assert child.end()[0] == 0
    assert hub.asked(ROUTE) == []


@LINUX
def test_what_nobody_took_out_of_the_pipe_is_not_acked(hub: FakeHub, feed: Feed, path: Path) -> None:
    with Listening(path) as child:
        child.waits()
        reader = os.open(path, os.O_RDONLY)
        feed.event(mail(1), id="e-1")
        while not unread(reader):
            hub.wait_for(ROUTE)
        child.end()
        os.close(reader)
    assert hub.asked(ack(1)) == []


@LINUX
def test_a_reader_that_goes_away_in_the_middle_of_a_line_loses_nothing(hub: FakeHub, feed: Feed, path: Path) -> None:
    with Listening(path) as child:
        child.waits()
        reader = os.open(path, os.O_RDONLY)
        feed.event(mail(1, text="x" * 300_000), id="e-1")
        assert os.read(reader, 1000).startswith(b'{"id"')
        os.close(reader)
        while not child.has_closed(path):
            assert child.poll() is None
        with path.open("rb") as following:
            assert line(following.readline())["text"] == "x" * 300_000
            hub.wait_for(ack(1))
            feed.event(mail(2), id="e-2")
            assert line(following.readline())["id"] == an_id(2)
        assert child.poll() is None
    assert len(hub.asked(ROUTE)) == 1  # so short an absence is none


def test_a_reader_for_each_line(hub: FakeHub, feed: Feed, path: Path) -> None:
    with Listening(path) as child:
        child.waits()
        for number in range(1, 6):
            feed.event(mail(number), id=f"e-{number}")
            with path.open("rb") as reader:
                assert line(reader.readline())["id"] == an_id(number)
            hub.wait_for(ack(number))
        assert child.end()[0] == 0


def test_it_ends_while_a_slow_reader_lets_nothing_through(hub: FakeHub, feed: Feed, path: Path) -> None:
    with Listening(path) as child:
        child.waits()
        reader = os.open(path, os.O_RDONLY)
        feed.event(mail(1, text="x" * 300_000), id="e-1")
        os.read(reader, 1)
        assert child.end()[0] == 0
        os.close(reader)
    assert hub.asked(ack(1)) == []


def test_once(hub: FakeHub, path: Path) -> None:
    hub.on("POST /v1/agents/scout/claim", answer({"deliveries": [mail(1)], "remaining": 0}))
    hub.on(ack(1), answer({"state": "delivered"}))
    with Listening(path, "--once") as child, path_open(child, path) as reader:
        assert line(reader.readline())["id"] == an_id(1)
        assert child.wait(SOON) == 0
    assert hub.asked(ack(1))


def path_open(child: Listening, path: Path) -> Any:
    child.waits()
    return path.open("rb")


# ---- the pipe


def test_a_pipe_that_was_there_stays(hub: FakeHub, feed: Feed, path: Path) -> None:
    os.mkfifo(path, 0o640)
    with Listening(path) as child:
        child.waits()
        assert child.end()[0] == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_what_took_the_place_of_our_pipe_stays(path: Path) -> None:
    with ToFifo(str(path), lambda: True):
        path.unlink()
        path.write_text("mine")
    assert path.read_text() == "mine"


@pytest.mark.parametrize("place", ["a file", "none/pipe"])
def test_what_is_no_pipe_and_can_be_none(run: Run, hub: FakeHub, data_dir: Path, place: str) -> None:
    (data_dir / "a file").write_text("mine")
    code, _, err = run("listen", "--as", "scout", "--fifo", str(data_dir / place))
    assert code == 2
    assert place in err
    assert (data_dir / "a file").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_somebody_elses_pipe_is_refused(path: Path) -> None:
    os.mkfifo(path)
    os.chown(path, 12345, -1)
    with pytest.raises(UsageError, match="belongs to uid 12345"), ToFifo(str(path), lambda: True):
        pass


@LINUX
def test_one_pipe_has_one_writer(path: Path) -> None:
    with ToFifo(str(path), lambda: True) as one, ToFifo(str(path), lambda: True) as other:
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        assert one.ready()
        with pytest.raises(UsageError, match=re.escape("another listener writes")):
            other.ready()
        os.close(reader)


def test_a_command_and_a_pipe_are_one_too_many(run: Run, path: Path) -> None:
    assert run("listen", "--as", "scout", "--fifo", str(path), "--exec", "cat")[0] == 2
    assert not path.exists()


# ---- how long it waits


def test_a_reader_that_is_away_is_given_up_later_when_a_message_is_in_hand(path: Path) -> None:
    now = [1000.0]
    with ToFifo(str(path), lambda: True, lambda: now[0]) as fifo:
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        assert fifo.ready()
        now[0] += 10 * HELD_SECONDS
        assert not fifo.given_up(holding=False)
        os.close(reader)
        assert not fifo.ready()
        assert not fifo.given_up(holding=False)
        now[0] += ABSENT_SECONDS
        assert fifo.given_up(holding=False)
        assert not fifo.given_up(holding=True)
        now[0] += HELD_SECONDS
        assert fifo.given_up(holding=True)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        assert fifo.ready()
        assert not fifo.given_up(holding=True)
        os.close(reader)
