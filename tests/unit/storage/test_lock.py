"""One owner of a data folder. Other processes here are forked children, which have no locks of their parent."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from angelia.storage.folder import UnfitFolder
from angelia.storage.lock import FolderLock, FolderTaken, read_note, who_holds


def elsewhere(look: Callable[[], object]) -> object:
    """What another process sees; its answer goes through JSON."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, json.dumps(look()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return json.loads(answer)


def holder_of(folder: Path) -> object:
    holder = who_holds(str(folder))
    return holder and {"pid": holder.pid, "port": holder.port, "since": holder.since, "ready": holder.ready}


def refusal(folder: Path) -> str:
    try:
        FolderLock.acquire(str(folder))
    except FolderTaken as error:
        return str(error)
    return ""


def test_who_comes_second_is_told_who_was_first(tmp_path: Path) -> None:
    lock = FolderLock.acquire(str(tmp_path))
    lock.publish(port=18900, version="1", ready=True)
    seen = elsewhere(lambda: holder_of(tmp_path))
    assert seen == {"pid": os.getpid(), "port": 18900, "since": read_note(str(tmp_path))["since"], "ready": True}
    said = str(elsewhere(lambda: refusal(tmp_path)))
    assert f"pid {os.getpid()}, port 18900, since 20" in said
    lock.release()
    assert elsewhere(lambda: holder_of(tmp_path)) is None
    assert elsewhere(lambda: refusal(tmp_path)) == ""


def test_the_same_process_is_kept_out_too_and_looking_loses_nothing(tmp_path: Path) -> None:
    lock = FolderLock.acquire(str(tmp_path))
    lock.publish(port=1)
    assert refusal(tmp_path) != ""
    assert holder_of(tmp_path)
    assert elsewhere(lambda: bool(holder_of(tmp_path))) is True
    assert lock.holds()
    lock.release()


def test_a_note_that_is_not_the_holders_does_not_count(tmp_path: Path) -> None:
    lock = FolderLock.acquire(str(tmp_path))
    (tmp_path / "hub.json").write_text(json.dumps({"pid": 1, "port": 5, "since": "2020-01-01T00:00:00Z"}))
    assert elsewhere(lambda: holder_of(tmp_path)) == {"pid": os.getpid(), "port": None, "since": None, "ready": False}
    for nonsense in ("", "[]", "{", '{"pid": "x"}'):
        (tmp_path / "hub.json").write_text(nonsense)
        assert elsewhere(lambda: bool(holder_of(tmp_path))) is True
    lock.release()


def test_a_note_without_a_lock_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "hub.json").write_text(json.dumps({"pid": os.getpid(), "port": 5, "since": "now"}))
    assert who_holds(str(tmp_path)) is None
    (tmp_path / "hub.lock").touch()
    assert who_holds(str(tmp_path)) is None


def test_a_lock_file_that_was_replaced_is_no_longer_held(tmp_path: Path) -> None:
    lock = FolderLock.acquire(str(tmp_path))
    assert lock.holds()
    (tmp_path / "hub.lock").unlink()
    assert not lock.holds()
    (tmp_path / "hub.lock").touch()
    assert not lock.holds()
    lock.release()


def test_the_lock_passes_over_with_its_since(tmp_path: Path) -> None:
    lock = FolderLock.acquire(str(tmp_path))
    lock.publish(port=7)
    note = read_note(str(tmp_path))
    note["since"] = "2020-01-01T00:00:00Z"
    (tmp_path / "hub.json").write_text(json.dumps(note))
    descriptor = lock.keep_over_exec()
    assert os.get_inheritable(descriptor)
    again = FolderLock.adopt(str(tmp_path), descriptor)
    assert not os.get_inheritable(descriptor)
    again.publish(port=8)
    assert (read_note(str(tmp_path))["since"], read_note(str(tmp_path))["port"]) == ("2020-01-01T00:00:00Z", 8)
    again.release()


def test_a_wrong_descriptor_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / "hub.lock").touch()
    with open(tmp_path / "other", "w") as other, pytest.raises(UnfitFolder, match="was lost"):
        FolderLock.adopt(str(tmp_path), other.fileno())
    with pytest.raises(UnfitFolder, match="was lost"):
        FolderLock.adopt(str(tmp_path), 999)


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnfitFolder, match="cannot be opened"):
        FolderLock.acquire(str(tmp_path / "none"))
    (tmp_path / "hub.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnfitFolder, match="cannot be opened"):
        FolderLock.acquire(str(tmp_path))
