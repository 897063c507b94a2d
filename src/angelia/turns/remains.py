"""Notes on disk of what runs, so that a hub which was killed finds what it left running, and ends it.

What must stay true: a group is ended only where its leader is still the process of the note: same number, same start,
same run of the machine. Whatever a note says beside that, or does not say, nothing else is ever signalled. A note that
was looked at is gone, the broken ones too. Notes need not survive the machine: nothing of theirs would run after it.
"""

import asyncio
import os
import threading
from contextlib import suppress
from pathlib import Path

import msgspec

from angelia.turns.child import GRACE_SECONDS
from angelia.turns.groups import Group, boot, started

_NOTE_BYTES = 4096  # twenty times what a note takes


class _Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One group that runs. ``key``: for what it was started."""

    key: str
    pid: int
    group: int
    started: str
    boot: str


class Remains:
    """The notes of one hub, in a folder of its own."""

    def __init__(self, folder: str) -> None:
        """Takes the folder, which is made and shut to others; so is the one above it, where that is not there yet."""
        os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        os.chmod(folder, 0o700)
        self._folder = Path(folder)
        self._boot = boot()

    def remember(self, group: Group, key: str) -> None:
        """Note that a group runs. Raises ``OSError``."""
        if not group.started:
            return  # it has ended before anybody could look
        note = _Note(key, group.pid, group.pid, group.started, self._boot)
        path = self._path(group)
        path.unlink(missing_ok=True)  # of a group that had the number before
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            file.write(msgspec.json.encode(note))

    def forget(self, group: Group) -> None:
        """The group has ended, or is nobody's business any more."""
        self._path(group).unlink(missing_ok=True)

    def _path(self, group: Group) -> Path:
        return self._folder / f"{group.pid}.json"

    async def end_remains(self, grace_seconds: float = GRACE_SECONDS) -> list[str]:
        """End what an earlier hub left running, before anything else starts. Out: the keys of what was ended."""
        found = [(path, _read(path)) for path in sorted(self._folder.iterdir())]
        left = [note for _, note in found if note is not None and self._is_left(note)]
        async with asyncio.TaskGroup() as tasks:
            for note in left:
                # Beside the end, which does not wait for it.
                threading.Thread(target=_reap, args=(note.pid,), name=f"reap {note.pid}", daemon=True).start()
                tasks.create_task(Group(note.pid, note.started).end(grace_seconds))
        for path, _ in found:
            path.unlink(missing_ok=True)
        return [note.key for note in left]

    def _is_left(self, note: _Note) -> bool:
        if note.pid <= 1 or note.boot != self._boot or started(note.pid) != note.started:
            return False
        with suppress(ProcessLookupError):
            return os.getpgid(note.pid) == note.group == note.pid
        return False


def _read(path: Path) -> _Note | None:
    """A note, if it is one."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            return msgspec.json.decode(file.read(_NOTE_BYTES), type=_Note)
    except (OSError, msgspec.MsgspecError):
        return None


def _reap(pid: int) -> None:
    """Take its exit code where it is a child of this very process, which may have replaced its program since."""
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)
