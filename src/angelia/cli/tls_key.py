"""The key to TLS: who else may use it.

What must stay true: a hub that serves with a key has it from its own user or from root, and nobody else can change it
or read it. A group may read it, since that is how systems hand root's keys to a service. Whether it is a key at all is
found out where it is used.
"""

from __future__ import annotations

import os
import stat
from shlex import quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from angelia.settings import Settings

_ROOT = 0  # may read everything anyway
_TOO_OPEN = stat.S_IWGRP | stat.S_IRWXO


def setting(settings: Settings) -> str:
    """Which setting names the file with the key; without one of its own it is in the certificate's."""
    return "tls_certificate" if settings.tls_key is None else "tls_key"


def wrong_with(settings: Settings) -> tuple[str, str] | None:
    """Why the key must not be used, and the command that mends it; None where it may, or none is set."""
    path = settings.tls_key or settings.tls_certificate
    if settings.tls_certificate is None or path is None:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None  # who loads it tells
    user = os.geteuid()
    if found.st_uid not in (user, _ROOT):
        problem = f"{path} holds the key to TLS, and belongs to another user (uid {found.st_uid})"
        return problem, f"chown {user} {quote(path)}"
    mode = stat.S_IMODE(found.st_mode)
    if not mode & _TOO_OPEN:
        return None
    # Root's own stays as readable for this user's group as it is.
    mend = f"chmod {'600' if found.st_uid == user else 'g-w,o='} {quote(path)}"
    return f"{path} holds the key to TLS, and others can use it (mode {mode:o})", mend
