"""What ``backup`` and ``restore`` share: a folder that somebody serves."""

from angelia.cli import exits, say
from angelia.storage.lock import FolderTaken


def taken(error: FolderTaken, then: str = "") -> int:
    """Say who has the folder; the exit code for it."""
    say.aside(f"{error} Nothing was changed. {then}".strip())
    return exits.TAKEN
