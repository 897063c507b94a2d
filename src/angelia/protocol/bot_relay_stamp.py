"""The stamp of a relayed message: whom its reader has to answer.

What must stay true: ``(@hermes)`` of another machine, read here, would mean the hermes here; so a stamp that comes from
elsewhere is made to lead back. Only the header's own stamp is ever rewritten, only where it is bare, and only where it
names the handle that the relay says sent it; whatever stands in the body is the sender's text.
"""

import re
from collections.abc import Iterable, Sequence

from angelia.protocol.bot_relay_rows import Row, is_name
from angelia.protocol.bot_relay_targets import forms
from angelia.protocol.prompt import attribution, read_attribution

_BARE = re.compile(r" \(@[A-Za-z0-9_-]+\):", re.ASCII)


def qualify(text: str, from_handle: str, from_connection: str) -> str:
    """As Hermes' Desktop does on the way: ``(@handle)`` becomes ``(@handle@connection)``."""
    return _restamp(text, from_handle, from_connection, from_handle, from_connection)


def localise(
    text: str,
    from_profile: str,
    from_handle: str,
    from_connection: str,
    rows: Sequence[Row],
    local_names: Iterable[str] = (),
) -> str:
    """As a gateway of Hermes does on arrival: the stamp becomes the shortest form by which its reader can answer, else
    ``(@handle@connection)``. ``rows``, ``local_names``: as for ``bot_relay_targets.forms``."""
    for row, form in forms(rows, local_names).items():
        name = row.profile == from_profile if from_profile else row.handle.lower() == from_handle.lower()
        if name and row.connection_id == from_connection:
            handle, _, connection = form.partition("@")
            return _restamp(text, from_handle, from_connection, handle, connection)
    return qualify(text, from_handle, from_connection)


def is_safe_to_stamp(text: str) -> bool:
    """Whether a gateway of Hermes' that stamps ``text``, whose header says a connection already, leaves it as it is.

    It takes the first bare stamp that it finds for the header's, wherever that stands.
    """
    return _BARE.search(text) is None


def _restamp(text: str, from_handle: str, from_connection: str, handle: str, connection: str) -> str:
    """``text`` under a new header, which leaves room for the longest body; as it is where the sender is not named, the
    stamp is another's, or it says a connection already."""
    read = read_attribution(text)
    if read is None or read.connection or not is_name(from_connection) or not is_name(from_handle):
        return text
    if read.handle.lower() != from_handle.lower():
        return text
    return attribution(read.name, handle, connection) + read.body
