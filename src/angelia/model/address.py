"""Who a message is for: ``handle``, ``handle@connection``, ``#room`` or ``*``.

What must stay true: a name is checked here and nowhere else; two spellings that differ only in case are one mailbox;
nothing that fails the grammar ever becomes a path, a query or a key, and no token becomes a name. An empty recipient is
an error, never "everyone".
"""

import re
from dataclasses import dataclass, field

from angelia.model.errors import BadName
from angelia.model.tokens import is_like_a_token, masked

LOCAL = "local"
EVERYONE = "*"
HUB = "angelia"
PRESENCE = "interop"
PERSON = "human"
SEED_AGENTS = ("hermes", "openclaw")
RESERVED = frozenset({PERSON, HUB, PRESENCE, LOCAL, "desktop", "default", "all", "everyone"})

PATTERN = "[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
_NAME = re.compile(PATTERN, re.ASCII)
_RULE = "1 to 64 letters, digits, '_' or '-', the first a letter or digit"


@dataclass(frozen=True, slots=True)
class Address:
    """One recipient as resolved. ``name`` keeps the case it was written in; ``mailbox`` does not.

    ``carrier``: who fetches mail for it (a key, lower case), where somebody does; it is no part of the name.
    """

    name: str
    connection: str = LOCAL
    room: bool = False
    carrier: str | None = None
    mailbox: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Work out the key of the mailbox: lower case, with ``@connection`` unless it is here."""
        key = "#" + self.name.lower() if self.room else mailbox_of(self.name, self.connection)
        object.__setattr__(self, "mailbox", key)

    @property
    def is_local(self) -> bool:
        """True where the mailbox is an agent of this hub."""
        return self.connection == LOCAL and not self.room

    def __str__(self) -> str:
        if self.room:
            return "#" + self.name
        return self.name if self.connection == LOCAL else f"{self.name}@{self.connection}"


def mailbox_of(name: str, connection: str = LOCAL) -> str:
    """The mailbox key of a handle on a connection."""
    return name.lower() if connection == LOCAL else f"{name.lower()}@{connection.lower()}"


def check_handle(name: object, what: str = "agent") -> str:
    """Return ``name`` if it is a handle, else raise ``BadName`` saying what a handle is."""
    if not isinstance(name, str) or not name:
        raise BadName(f"The {what} is missing: it is {_RULE}.")
    if is_like_a_token(name):
        raise BadName(
            f"The {what} that is named looks like a token, so it is not repeated here. A name stands there; a token "
            "goes into the header Authorization. Nothing was done."
        )
    if _NAME.fullmatch(name) is None:
        raise BadName(f"'{masked(name[:200])[:80]}' is no name of an agent or a connection: it is {_RULE}.")
    return name


def parse(text: object) -> Address:
    """Read ``handle``, ``handle@connection`` or ``#room`` (``*`` is not one address: see ``EVERYONE``).

    Raises ``BadName``. ``handle@local`` is the handle itself.
    """
    if not isinstance(text, str) or not text:
        raise BadName("The recipient is empty. Name an agent, agent@connection, #room, or * for everyone.")
    if text.startswith("#"):
        return Address(check_handle(text[1:], "room"), room=True)
    handle, at, connection = text.partition("@")
    check_handle(handle)
    if not at:
        return Address(handle)
    check_handle(connection, "connection")
    return Address(handle, LOCAL if connection.lower() == LOCAL else connection)
