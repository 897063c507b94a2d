"""The outbox: what is kept stays kept, through a crash at any byte, and whoever else has the file open."""

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from angelia.client import outbox as module
from angelia.client.errors import OutboxError, OutboxFull
from angelia.client.outbox import Outbox

SEND = "/v1/messages"


def message(number: int, text: str = "hi", name: str | None = "scout") -> dict[str, Any]:
    given = {"id": f"{number:032x}", "to": "hermes", "text": text}
    return given if name is None else {**given, "from": name}


def keep(outbox: Outbox, *numbers: int, text: str = "hi") -> None:
    for number in numbers:
        outbox.keep(SEND, message(number, text), None)


def kept(outbox: Outbox, name: str | None = "scout") -> list[int]:
    return [int(each.id, 16) for each in outbox.waiting(name)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out"


def test_what_is_kept_is_known_to_the_next_and_in_order(path: Path) -> None:
    first = Outbox(path)
    first.keep(SEND, message(2, "añ🐝\n\0\u2028"), "key")
    keep(first, 1)
    assert kept(Outbox(path)) == [2, 1]
    one = Outbox(path).waiting("scout")[0]
    assert (one.path, one.key, one.message) == (SEND, "key", message(2, "añ🐝\n\0\u2028"))


def test_what_is_done_is_gone_and_so_is_an_empty_file(path: Path) -> None:
    outbox = Outbox(path)
    keep(outbox, 1, 2)
    outbox.done(f"{1:032x}")
    assert kept(Outbox(path)) == [2]
    outbox.done(f"{2:032x}")
    assert not path.exists()
    keep(outbox, 3)
    assert kept(outbox) == kept(Outbox(path)) == [3]


def test_what_is_kept_is_on_the_disk_first(path: Path) -> None:
    """A stand-in for fsync, which notes what stood in the file when it was called."""
    durable: list[bytes] = []
    outbox = Outbox(path, most_bytes=3000, sync=lambda file: durable.append(os.pread(file, 10_000, 0)))
    keep(outbox, 1, text="x" * 1000)
    assert durable[-1] == path.read_bytes()
    keep(outbox, 2, text="x" * 1000)
    assert durable[-1] == path.read_bytes()
    outbox.done(f"{1:032x}")
    keep(outbox, 3, text="x" * 1000)  # which no longer fits behind the first: the file is written anew
    assert durable[-1] == path.read_bytes()
    assert len(durable) == 4
    outbox.set_aside(outbox.waiting("scout")[0], "code", "detail")
    assert durable[-1] == Path(f"{path}.refused").read_bytes()


def test_what_could_not_be_made_durable_is_not_kept(path: Path) -> None:
    def broken(file: int) -> None:
        raise OSError(5, "Input/output error")

    with pytest.raises(OutboxError, match="Input/output"):
        keep(Outbox(path, sync=broken), 1)
    assert kept(Outbox(path)) == []


def test_it_is_private(path: Path) -> None:
    before = os.umask(0)
    try:
        outbox = Outbox(path)
        keep(outbox, 1)
        outbox.set_aside(outbox.waiting("scout")[0], "code", "detail")
        keep(outbox, 2)
        assert outbox.turn() is not None
    finally:
        os.umask(before)
    assert {stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()} == {0o600}


def test_it_survives_being_cut_off_at_every_byte(path: Path) -> None:
    keep(Outbox(path), 1, 2, 3)
    whole = path.read_bytes()
    head = module._HEAD_BYTES
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        outbox = Outbox(path)
        known = list(range(1, max(0, whole[head:length].count(b"\n")) + 1)) if length >= head else []
        assert kept(outbox) == known
        if len(known) > 1:
            outbox.done(f"{1:032x}")  # a shorter line than the one that was torn
            known.remove(1)
        assert kept(Outbox(path)) == known
        keep(outbox, 99)
        assert kept(Outbox(path)) == [*known, 99]


def test_what_stood_in_it_before_is_not_believed_to_be_in_another_file(path: Path) -> None:
    outbox = Outbox(path)
    keep(outbox, 1, 2)
    path.unlink()
    assert kept(outbox) == []
    keep(Outbox(path), 3, 4, 5)
    assert kept(outbox) == [3, 4, 5]


def test_two_see_what_the_other_does(path: Path) -> None:
    one, other = Outbox(path), Outbox(path)
    keep(one, 1)
    keep(other, 2)
    keep(one, 3)
    other.done(f"{1:032x}")
    assert kept(one) == kept(other) == [2, 3]


def test_each_sender_has_its_own(path: Path) -> None:
    outbox = Outbox(path)
    outbox.keep(SEND, message(1, name="scout"), None)
    outbox.keep(SEND, message(2, name="Adder"), None)
    outbox.keep(SEND, message(3, name=None), None)
    assert (kept(outbox, "SCOUT"), kept(outbox, "adder"), kept(outbox, None)) == ([1], [2], [3])
    assert outbox.count("scout") == 1


def test_the_same_again_is_kept_once_and_another_under_its_id_is_refused(path: Path) -> None:
    outbox = Outbox(path)
    keep(outbox, 1, 1)
    assert kept(outbox) == [1]
    with pytest.raises(OutboxError, match="another message"):
        keep(outbox, 1, text="other")
    assert outbox.waiting("scout")[0].message["text"] == "hi"


# ---- bounds


def test_it_is_bounded_in_messages(path: Path) -> None:
    outbox = Outbox(path, most_messages=3)
    keep(outbox, 1, 2, 3)
    with pytest.raises(OutboxFull) as caught:
        keep(outbox, 4)
    assert caught.value.message_id == f"{4:032x}"
    outbox.done(f"{1:032x}")
    keep(outbox, 4)
    assert kept(outbox) == [2, 3, 4]


def test_it_is_bounded_in_bytes_and_what_is_done_takes_no_room(path: Path) -> None:
    outbox = Outbox(path, most_bytes=3000)
    keep(outbox, 1, 2, text="x" * 1000)
    with pytest.raises(OutboxFull):
        keep(outbox, 3, text="x" * 1000)
    for number in range(3, 40):
        outbox.done(f"{number - 2:032x}")
        keep(outbox, number, text="x" * 1000)
        assert path.stat().st_size <= 3000 + 100  # a line that says done may stand beyond it
    assert kept(outbox) == kept(Outbox(path)) == [38, 39]
    assert not Path(f"{path}.new").exists()


def test_what_was_set_aside_is_there_to_be_read_and_bounded(path: Path) -> None:
    outbox = Outbox(path, most_bytes=1500)
    aside = Path(f"{path}.refused")
    keep(outbox, 1, 2, 3, text="x" * 200)
    one, two, three = outbox.waiting("scout")
    outbox.set_aside(one, "unknown_agent", "Nobody is called that.")
    aside.write_bytes(aside.read_bytes() + b'{"half')
    outbox.set_aside(two, "too_large", "Too large.")
    lines = aside.read_bytes().splitlines()
    assert len(lines) == 3
    assert b"Too large." in lines[2]
    with pytest.raises(OutboxFull, match="refused"):
        outbox.set_aside(three, "unknown_agent", "x" * 1000)
    assert kept(outbox) == [3]


# ---- trouble


def test_a_line_that_cannot_be_read_stops_everything_and_says_where(path: Path) -> None:
    keep(Outbox(path), 1, 2)
    spoilt = path.read_bytes().replace(b'"keep"', b'"kept"', 1)
    path.write_bytes(spoilt)
    for use in (lambda: Outbox(path).waiting("scout"), lambda: keep(Outbox(path), 3)):
        with pytest.raises(OutboxError, match="cannot be read"):
            use()
    assert path.read_bytes() == spoilt


@pytest.mark.parametrize("name", ["out", "out.lock", "out.turn"])
def test_a_link_in_its_place_is_not_followed(path: Path, name: str) -> None:
    (path.parent / name).symlink_to(path.parent / "elsewhere")
    outbox = Outbox(path)
    with pytest.raises(OutboxError, match=r"symbolic|levels"):
        outbox.turn() if name == "out.turn" else keep(outbox, 1)
    assert not (path.parent / "elsewhere").exists()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OutboxError, match="No such file"):
        keep(Outbox(tmp_path / "no" / "out"), 1)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full disk to try it on")
def test_a_full_disk_is_said_and_nothing_is_kept(path: Path) -> None:
    outbox = Outbox(path)
    keep(outbox, 1)

    def write_to_a_full_disk() -> None:
        with outbox._locked("7") as file:
            full = os.open("/dev/full", os.O_RDWR)
            os.dup2(full, file)
            os.close(full)
            outbox._append(file, b"{}\n", sync=True)

    with pytest.raises(OutboxError, match="space") as caught:
        write_to_a_full_disk()
    assert (caught.value.path, caught.value.message_id) == (str(path), "7")
    assert kept(outbox) == kept(Outbox(path)) == [1]


def test_one_at_a_time_has_the_turn(path: Path) -> None:
    one, other = Outbox(path), Outbox(path)
    turn = one.turn()
    assert turn is not None
    assert other.turn() is one.turn() is None
    turn.close()
    turn.close()
    second = other.turn()
    assert second is not None
    del second
    assert one.turn() is not None


def test_several_threads_may_keep_at_once(path: Path) -> None:
    outbox = Outbox(path)
    threads = [
        threading.Thread(target=keep, args=(outbox, *range(start, start + 20))) for start in range(100, 500, 100)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(kept(Outbox(path))) == [start + n for start in (100, 200, 300, 400) for n in range(20)]


PROGRAM = """
import sys
from angelia.client.outbox import Outbox
outbox, start = Outbox(sys.argv[1]), int(sys.argv[2])
for number in range(start, start + 25):
    outbox.keep("/v1/messages", {"id": f"{number:032x}", "from": "scout"}, None)
    if number % 5 == 0:
        outbox.done(f"{number:032x}")
"""


def test_several_processes_share_it(path: Path) -> None:
    started = [subprocess.Popen([sys.executable, "-c", PROGRAM, str(path), str(start)]) for start in (1000, 2000, 3000)]
    assert [process.wait(30) for process in started] == [0, 0, 0]
    left = kept(Outbox(path))
    assert sorted(left) == [s + n for s in (1000, 2000, 3000) for n in range(25) if (s + n) % 5]
    for start in (1000, 2000, 3000):  # each in its own order
        mine = [number for number in left if start <= number < start + 25]
        assert mine == sorted(mine)
