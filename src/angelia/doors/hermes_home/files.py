"""The files of a Hermes home's relay, as far as this hub has to do with them.

What must stay true:

- Only letters for our own connection are touched; all others are left to whoever serves them. What nobody can answer
  (it has no id, or is no file) is passed over, logged once, and not read again before it changes.
- A claim is one rename, to the letter's id: of several relays one gets it, and of several letters of one id the first.
  What was claimed and has no answer yet can be found again.
- The first answer to an envelope stands, whoever else writes one. Every file appears whole, under its name, 0600.
- The roster is rewritten as a whole, with everybody else's rows as they stand.

Nothing here knows the bus; all of it may wait for a disk, so it runs on a thread.
"""

import logging
import os
import secrets
import shlex
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from angelia.protocol.bot_relay import CLAIMED, DEFAULT_HANDLE, FOLDER, OUTBOX, REPLIES, ROSTER, STALE_SECONDS
from angelia.protocol.bot_relay_mail import BadEnvelope, RelayEnvelope, RelayReply, read_envelope, read_reply
from angelia.protocol.bot_relay_rows import Row, is_name, merge, read_roster, roster_bytes

log = logging.getLogger("angelia.hermes_home")
MOST_BYTES = 1024 * 1024  # of an envelope; Hermes' longest has 16,200 characters
READ_BYTES = 8 * MOST_BYTES  # of a file that is read, so that the sender of what is too large can be told
Stamp = tuple[int, int, int]
_OTHERS_WRITE = 0o022


@dataclass(frozen=True, slots=True)
class Letter:
    """What lies in a file for us under an id: an envelope, or what is wrong with it. ``modified``: the file's time,
    epoch seconds. ``own``: it is for sure from an agent of this install."""

    path: Path
    modified: float
    id: str
    envelope: RelayEnvelope | BadEnvelope
    own: bool


class RelayFiles:
    """The relay folder of one Hermes install. ``connection``: how this hub is called there."""

    def __init__(self, root: str, connection: str) -> None:
        self.root, self.connection = Path(root), connection
        self.folder = self.root / FOLDER
        self._passed_over: dict[Path, Stamp] = {}  # as they stood when they were read
        self._told_wide = False

    @property
    def is_there(self) -> bool:
        """Whether there is a Hermes install at all."""
        return self.root.is_dir()

    def outbox_changed(self) -> int:
        """When the outbox changed last (ns); 0 where there is none. A look that waits for no disk."""
        return _changed(self.folder / OUTBOX)

    def roster_stamp(self) -> Stamp | None:
        """What tells this roster from any other; None where there is none."""
        return _stamp(self.folder / ROSTER)

    def queued(self) -> list[Letter]:
        """Letters for us in the outbox, the oldest first."""
        return self._letters(OUTBOX)

    def unanswered(self) -> list[Letter]:
        """Letters for us that were claimed and have no answer."""
        return [letter for letter in self._letters(CLAIMED) if not self._reply(letter.id).exists()]

    def is_known(self, id: str) -> bool:
        """Whether there was a letter of this id before: claimed, or answered."""
        return self._claimed(id).exists() or self._reply(id).exists()

    def claim(self, letter: Letter, now: float) -> Letter | None:
        """Take it out of the outbox; None where somebody else was quicker."""
        self._made(CLAIMED)
        claimed = self._claimed(letter.id)
        try:
            letter.path.rename(claimed)
        except FileNotFoundError:
            return None
        os.utime(claimed, (now, now))
        return replace(letter, path=claimed, modified=now)

    def drop(self, letter: Letter) -> None:
        """It is over, and nothing of it is kept."""
        letter.path.unlink(missing_ok=True)

    def answer(self, reply: RelayReply) -> bool:
        """Write the answer; False where there is one already, which stands."""
        folder, path = self._made(REPLIES), self._reply(reply.id)
        with suppress(OSError):
            if read_reply(path.read_bytes()) is None:
                path.unlink()  # half of a file answers nobody
        part = _written(folder, ".rep-", reply.file())
        try:
            os.link(part, path)
            return True
        except FileExistsError:
            return False
        finally:
            part.unlink(missing_ok=True)

    def profiles(self) -> set[str]:
        """The profiles of this install: its own agents, which are no teammates of theirs."""
        folder = self.root / "profiles"
        with suppress(OSError):
            return {entry.name for entry in folder.iterdir() if is_name(entry.name) and entry.is_dir()}
        return set()

    def put_roster(self, ours: Sequence[Row], now: int, *, anyway: bool) -> Stamp | None:
        """Put our rows among the others'. ``anyway``: write it even where it says so already (to be fresh). The stamp
        of the roster that has them, whoever may have rewritten it since."""
        path = self.folder / ROSTER
        while True:
            stamp = _stamp(path)
            data = _read(path)
            found = read_roster(data)
            mine = [row for row in found if row.connection_id == self.connection]
            wanted = merge(ours, [row for row in found if row.connection_id != self.connection])
            if data is None and not ours:
                return stamp
            if tuple(found) == tuple(wanted) and not (anyway and (ours or mine)):
                return stamp
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            part = _written(self.folder, ".roster-", roster_bytes(wanted, now))
            if _stamp(path) == stamp:
                written = _stamp(part)
                part.replace(path)
                return written
            part.unlink(missing_ok=True)  # somebody wrote it meanwhile: theirs would be gone

    def sweep(self, now: float) -> int:
        """Remove what is older than six hours in all three folders, whoever's it is; how many."""
        swept = 0
        for name in (OUTBOX, CLAIMED, REPLIES):
            for path in _names(self.folder / name):
                with suppress(OSError):
                    if now - path.stat().st_mtime > STALE_SECONDS:
                        path.unlink()
                        swept += 1
        return swept

    def _letters(self, name: str) -> list[Letter]:
        found: list[Letter] = []
        paths = _names(self.folder / name)
        for path in paths:
            with suppress(OSError):
                status = path.lstat()
                stamp = _stamp_of(status)
                if self._passed_over.get(path) == stamp:
                    continue
                letter = self._letter(path, status)
                if letter is not None:
                    found.append(letter)
                else:
                    self._passed_over[path] = stamp
        gone = {path for path in self._passed_over if path.parent.name == name}.difference(paths)
        for path in gone:
            del self._passed_over[path]
        return sorted(found, key=lambda letter: (letter.modified, letter.path.name))

    def _letter(self, path: Path, status: os.stat_result) -> Letter | None:
        """What lies there for us; None where it is somebody else's, or nobody's, which is said in the log."""
        if not stat.S_ISREG(status.st_mode) or status.st_size > READ_BYTES:
            log.warning("%r of Hermes is left as it is: no file, or one of more than %d bytes", path.name, READ_BYTES)
            return None
        data = _read(path, READ_BYTES)
        if data is None:
            raise OSError(f"{path} cannot be read now")
        try:
            envelope: RelayEnvelope | BadEnvelope = read_envelope(data, MOST_BYTES)
        except BadEnvelope as bad:
            envelope = bad
        connection = envelope.connection if isinstance(envelope, BadEnvelope) else envelope.target_connection
        if envelope.id is None or connection is None:
            log.warning("%r of Hermes is left as it is: nobody can be answered. %s", path.name, envelope)
            return None
        is_ours = connection.lower() == self.connection.lower()
        if not is_ours:
            return None
        own = isinstance(envelope, RelayEnvelope) and self._is_of_own(path, envelope.sender)
        return Letter(path, status.st_mtime, envelope.id, envelope, own)

    def _is_of_own(self, path: Path, sender: str) -> bool:
        """Whether ``sender`` is a profile of this install, and nobody but the install's owner, or the hub's, can have
        written that file or put it where it was found."""
        if sender.lower() != DEFAULT_HANDLE and sender not in self.profiles():
            return False
        places = (self.root, self.folder, self.folder / OUTBOX, path.parent, path)
        try:
            found = {place: place.stat() for place in places}
        except FileNotFoundError:
            return False
        owners = {found[self.root].st_uid, os.geteuid()}
        wide = [place for place, status in found.items() if status.st_mode & _OTHERS_WRITE]
        if wide and not self._told_wide:
            self._told_wide = True
            log.warning(
                "others may write to %s: letters from there count as from anybody, until: chmod go-w %s",
                wide[0],
                shlex.quote(str(wide[0])),
            )
        return not wide and all(status.st_uid in owners for status in found.values())

    def _claimed(self, id: str) -> Path:
        return self.folder / CLAIMED / f"{id}.json"

    def _reply(self, id: str) -> Path:
        return self.folder / REPLIES / f"{id}.json"

    def _made(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder


def _stamp(path: Path) -> Stamp | None:
    try:
        return _stamp_of(path.stat())
    except OSError:
        return None


def _stamp_of(status: os.stat_result) -> Stamp:
    """When a file was written, how long it is, and which it is: a new one within the clock's tick is another, too."""
    return status.st_mtime_ns, status.st_size, status.st_ino


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _names(folder: Path) -> list[Path]:
    with suppress(OSError):
        return [entry for entry in folder.iterdir() if entry.suffix == ".json" and not entry.name.startswith(".")]
    return []


def _read(path: Path, most: int = MOST_BYTES) -> bytes | None:
    """A regular file of a size that is possible; None else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)  # open() refuses a folder and leaves it open: one descriptor lost with each look
        return None
    with open(descriptor, "rb") as file:
        data = file.read(most + 1)
    return data if len(data) <= most else None


def _written(folder: Path, prefix: str, data: bytes) -> Path:
    """A new private file that nobody's pattern finds yet."""
    path = folder / f"{prefix}{secrets.token_hex(8)}.tmp"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path
