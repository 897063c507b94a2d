"""Who calls, and the table of who may do what.

What must stay true: a caller is made once, outermost, and this table is the whole truth: doors name a verb and never
look at tokens. A name is *open* (anyone on loopback may use it) or *keyed* (only with its token). Open never
administers. What a caller may not see is "not found", not "forbidden".
"""

from dataclasses import dataclass, field
from enum import Enum, auto

from angelia.model.address import HUB, PERSON, PRESENCE, RESERVED, check_handle
from angelia.model.errors import BadName, BadRequest, NotAllowed, NotYourName, TokenRequired


class Rank(Enum):
    """The four kinds of caller."""

    OPEN = auto()
    AGENT = auto()
    LINK = auto()
    ADMIN = auto()


@dataclass(frozen=True, slots=True)
class Caller:
    """One request's origin. ``name`` is the token's agent or connection; None for open and admin. ``token``: the digest
    of an agent's token that it showed."""

    rank: Rank
    name: str | None = None
    token: bytes | None = field(default=None, compare=False, repr=False)

    @property
    def mailbox(self) -> str | None:
        """The name as a mailbox key."""
        return self.name.lower() if self.name else None


OPEN = Caller(Rank.OPEN)
ADMIN = Caller(Rank.ADMIN)

_ANYONE = frozenset({Rank.OPEN, Rank.AGENT, Rank.LINK, Rank.ADMIN})
_PARTIES = frozenset({Rank.OPEN, Rank.AGENT, Rank.ADMIN})
_OWNERS = frozenset({Rank.AGENT, Rank.ADMIN})
_ADMINS = frozenset({Rank.ADMIN})
_RELAYS = frozenset({Rank.OPEN, Rank.LINK, Rank.ADMIN})  # an agent's token proves nothing of a relay

MAY: dict[str, frozenset[Rank]] = {
    "send": _PARTIES,
    "read": _PARTIES,
    "settle": _PARTIES,
    "cancel": _PARTIES,
    "look_at_message": _PARTIES,
    "look_at_agents": _ANYONE,
    "edit_own": _OWNERS,
    "rotate_token": _OWNERS,
    "put_agent": _ADMINS,
    "remove_agent": _ADMINS,
    "key_name": _ADMINS,
    "person_lane": _ADMINS,
    "put_adapter": _ADMINS,
    "look_at_turns": _ADMINS,
    "stop_turn": _ADMINS,
    "relay": _RELAYS,
    "relay_deliver": _ANYONE,
    "dead_letters": _ADMINS,
    "look_at_events": _ADMINS,
    "look_at_connections": _ANYONE,
    "connect": _ADMINS,
    "back_up": _ADMINS,
    "stop_hub": _ADMINS,
}


def may(caller: Caller, verb: str) -> None:
    """Return if ``caller`` may do ``verb``, else raise ``TokenRequired`` (open) or ``NotAllowed``."""
    if caller.rank in MAY[verb]:
        return
    if caller.rank is Rank.OPEN:
        raise TokenRequired(
            f"This takes more than an open caller has ({verb}). Call over the hub's Unix socket, or with a token."
        )
    raise NotAllowed(f"{caller.rank.name.lower()} {caller.name or ''} may not do this ({verb}).")


def act_as(caller: Caller, name: str | None, *, keyed: bool, what: str = "from") -> tuple[str, bool]:
    """The name that ``caller`` acts as, and whether that is proved.

    ``name`` is what the request says (None when it says nothing), ``keyed`` whether that name is keyed here. Admin is
    ``human`` unless it names another. Raises ``BadRequest``, ``BadName``, ``NotYourName`` or ``TokenRequired``.
    """
    if caller.rank is Rank.AGENT and caller.name is not None:
        if name is not None and name.lower() != caller.mailbox:
            raise NotYourName(f"The token belongs to {caller.name}; it cannot act as '{name[:80]}'.")
        return caller.name, True
    if caller.rank is Rank.ADMIN:
        if name is None or name.lower() == PERSON:
            return PERSON, True
        proved = False
    elif name is None:
        raise BadRequest(f"Say who is calling: '{what}' is missing, and there is no token.")
    else:
        proved = False
    check_handle(name)
    if name.lower() in RESERVED:
        raise BadName(_reserved(name))
    if keyed:
        raise TokenRequired(f"The name {name} is keyed: it takes the token of {name} itself.")
    return name, proved


def _reserved(name: str) -> str:
    role = {PERSON: "the hub's owner", HUB: "the hub", PRESENCE: "the hub's presence notices"}.get(name.lower())
    return f"'{name}' is reserved{f' for {role}' if role else ''}; choose another name."
