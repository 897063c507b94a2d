"""A connection: another hub, or a gateway of Hermes', under the name that it has here.

What must stay true: a connection's name follows the grammar of handles and is none of the reserved names; secrets are
never part of it in the clear but for the key of a paired hub: it says in which file or variable they stand.
"""

from dataclasses import dataclass
from enum import StrEnum

from angelia.model.address import RESERVED, check_handle
from angelia.model.errors import BadName


class Speaks(StrEnum):
    """What is behind it; ``auto``: found out when it is dialled."""

    AUTO = "auto"
    HUB = "hub"
    HERMES = "hermes"


class Away(StrEnum):
    """What becomes of mail while it is down: it waits, or is refused at once."""

    WAIT = "wait"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """One connection as it was made. ``target``: a URL of the schemes ws, wss, ssh, exec or docker; empty where only
    the other side dials.

    ``share``: agents that the other side sees, and may write to (None: all). ``accept``: its agents that are seen here,
    and may write here (None: all). Both as handles, lower case. ``token_file``, ``password_file``, ``ca_file``: full
    paths; ``token_variable``, ``password_variable``: names in the hub's environment. ``command``: what ssh runs there.
    ``hub``: the id of the hub behind it, once known; ``key``: what only that hub and this one know, after pairing.
    ``fixed``: it stands in the settings, so that no command removes it.
    """

    name: str
    target: str = ""
    speaks: Speaks = Speaks.AUTO
    away: Away = Away.WAIT
    share: tuple[str, ...] | None = None
    accept: tuple[str, ...] | None = None
    token_file: str | None = None
    token_variable: str | None = None
    user: str | None = None
    password_file: str | None = None
    password_variable: str | None = None
    ca_file: str | None = None
    command: str | None = None
    hub: str | None = None
    key: bytes | None = None
    fixed: bool = False

    @property
    def id(self) -> str:
        """The name as a key, lower case: mail for it is carried under this."""
        return self.name.lower()

    @property
    def secret_variables(self) -> frozenset[str]:
        """Names in the hub's environment that hold its secrets, and so are for no program."""
        return frozenset(filter(None, (self.token_variable, self.password_variable)))

    def shares(self, handle: str) -> bool:
        """Whether the other side may see, and write to, an agent."""
        return self.share is None or handle.lower() in self.share

    def accepts(self, handle: str) -> bool:
        """Whether an agent of the other side is seen, and may write, here."""
        return self.accept is None or handle.lower() in self.accept


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """How a connection stands. ``since``: UTC ms of the last change between up and down; ``problem`` and ``advice``:
    why it is down, and what to do, in a sentence each. ``kind``: unreachable, refused, wrong_version, or None.

    ``waiting``: deliveries that wait to go there, ``oldest_at`` the first of them (UTC ms). ``agents``: how many are
    known behind it. ``warning``: that another relay is at work there, say.
    """

    connection: Connection
    speaks: Speaks
    up: bool
    since: int
    kind: str | None = None
    problem: str | None = None
    advice: str | None = None
    warning: str | None = None
    version: str | None = None
    agents: int = 0
    waiting: int = 0
    oldest_at: int | None = None


def check_connection_name(name: object) -> str:
    """Return ``name`` if a connection may be called so, else raise ``BadName``."""
    found = check_handle(name, "connection")
    if found.lower() in RESERVED:
        raise BadName(f"'{found}' is reserved; choose another name for the connection.")
    return found
