"""``angelia restore``: put a copy in the place of the store, while no hub serves it.

What must stay true: a hub that runs is named and left alone. The copy is looked through before anything is changed;
what was there is kept, and where is said.
"""

import os
import time
from pathlib import Path

from angelia.cli import exits, parse, say, session
from angelia.cli.copies import taken
from angelia.model.errors import AngeliaError
from angelia.settings import Settings
from angelia.storage import folder
from angelia.storage.lock import FolderLock, FolderTaken
from angelia.storage.sqlite.restoring import Restored, restore


def run(argv: list[str], settings: Settings) -> int:
    """Put a copy back, and say what it means."""
    made = parse.parser(
        "restore",
        "Put a copy in the place of the hub's store. The hub has to be down. What is there now is kept beside it.",
        "angelia down\nangelia restore ~/.angelia/backups/angelia-20261129T181000Z.db",
    )
    made.add_argument("file", metavar="FILE", help="the copy")
    given = parse.parse(made, argv)
    session.owners_only(settings)
    file = Path(os.path.abspath(os.path.expanduser(given.file)))
    if not file.is_file():
        raise exits.Refused(f"{file} is no file")
    try:
        folder.prepare(settings.data_dir)
        lock = FolderLock.acquire(settings.data_dir)
        try:
            done = restore(file, Path(settings.data_dir, folder.STORE), time.time_ns() // 1_000_000)
        finally:
            lock.release()
    except FolderTaken as error:
        return taken(error, f"Stop it first: {session.command(settings, 'down')}")
    except (AngeliaError, folder.UnfitFolder) as error:
        raise exits.Refused(str(error)) from None
    if given.json:
        say.data(_shown(file, done))
        return exits.DONE
    say.line(f"restored {done.messages} messages and {done.deliveries} deliveries from {file}")
    if done.kept is not None:
        say.line(f"what was there is in {done.kept}")
    starting = session.command(settings, "up")
    say.line(f"readers begin anew, and may get again what they have had since the copy was made; start it: {starting}")
    return exits.DONE


def _shown(file: Path, done: Restored) -> dict[str, object]:
    return {
        "restored": str(file), "messages": done.messages, "deliveries": done.deliveries, "epoch": done.epoch,
        "kept": done.kept,
    }  # fmt: skip
