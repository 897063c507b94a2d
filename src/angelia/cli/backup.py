"""``angelia backup``: a verified copy of the hub's store, whether the hub runs or not.

What must stay true: a running hub makes the copy itself; a folder that nobody serves is locked meanwhile, so that no
hub starts on it. "Backed up" is said of a copy that was looked through, in its place.
"""

import os
import time
from pathlib import Path

from angelia.bus.ports import Copy
from angelia.cli import exits, parse, say, session
from angelia.cli.copies import taken
from angelia.model.errors import AngeliaError
from angelia.settings import Settings
from angelia.storage.folder import STORE, UnfitFolder
from angelia.storage.lock import FolderLock, FolderTaken, who_holds
from angelia.storage.sqlite.copying import back_up
from angelia.storage.sqlite.looking import Pace


def run(argv: list[str], settings: Settings) -> int:
    """Make a copy, and say where it is."""
    made = parse.parser(
        "backup",
        "Make a verified copy of the hub's store, while the hub runs or while it does not. Without FILE the copy goes\n"
        "to the folder backups in the data folder, which keeps the newest three.",
        "angelia backup\nangelia backup ~/angelia-before-the-move.db",
    )
    made.add_argument("file", nargs="?", metavar="FILE", help="where to put it; nothing may be there yet")
    given = parse.parse(made, argv)
    session.owners_only(settings)
    file = None if given.file is None else os.path.abspath(os.path.expanduser(given.file))
    try:
        if settings.hub_url or who_holds(settings.data_dir) is not None:
            with session.owner(settings).calls() as hub:
                answer = hub.back_up(file)
        else:
            answer = _shown(_of_the_folder(settings.data_dir, file))
    except FolderTaken as error:
        return taken(error)
    except (AngeliaError, UnfitFolder) as error:
        raise exits.Refused(str(error)) from None
    if given.json:
        say.data(answer)
        return exits.DONE
    what = f"{answer.get('messages')} messages and {answer.get('deliveries')} deliveries"
    say.line(f"backed up {what} to {answer.get('file')} ({_size(answer.get('bytes'))}), verified")
    for old in answer.get("removed") or []:
        say.line(f"removed {old}: the newest three are kept")
    return exits.DONE


def _of_the_folder(data_dir: str, file: str | None) -> Copy:
    store = Path(data_dir, STORE)
    if not store.exists():
        raise exits.Refused(f"{data_dir} holds no store: there is nothing to back up")
    lock = FolderLock.acquire(data_dir)
    try:
        return back_up(store, file, time.time_ns() // 1_000_000, Pace(gentle=False))
    finally:
        lock.release()


def _shown(copy: Copy) -> dict[str, object]:
    return {
        "file": copy.file, "bytes": copy.bytes, "messages": copy.messages, "deliveries": copy.deliveries,
        "made_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(copy.made_at / 1000)), "removed": list(copy.removed),
    }  # fmt: skip


def _size(count: object) -> str:
    size = float(count) if isinstance(count, int) else 0.0
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
