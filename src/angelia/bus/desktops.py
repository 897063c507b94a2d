"""Desktops with a token of their own: relays that push rosters and fetch mail, and are no agents.

What must stay true: a desktop's token is good for its own rows and its own mail, under its own name, whatever a call
says it is called; it is no agent, sends nothing of its own and administers nothing. Once a desktop has a token, nobody
without one is that desktop, but for the owner: whoever called itself so before is not, either. A desktop and a
connection never have one name.
"""

from angelia.bus.agents import issue
from angelia.bus.caller import Caller, Rank
from angelia.bus.core import Bus
from angelia.bus.directory import DESKTOP
from angelia.bus.events import What
from angelia.bus.ports import Tx
from angelia.bus.remotes import ANONYMOUS, check_scope
from angelia.model.agent import Token
from angelia.model.errors import BadName, BadRequest, NotFound, TokenRequired
from angelia.model.tokens import written


async def make_token(bus: Bus, name: str) -> tuple[str, Token]:
    """Give a desktop a token, or rotate it: the new one (shown this once) and its record. Older ones end soon.

    Raises ``BadRequest`` for what is no name, or a connection's; ``BadName`` for that of the nameless desktop.
    """
    desktop = check_scope(name).lower()
    if desktop == ANONYMOUS:
        raise BadName(f"'{ANONYMOUS}' is what a desktop is called that says no name; give this one another.")
    _not_a_connection(bus, desktop)
    secret = written(bus.ids.secret())

    def unit(tx: Tx) -> Token:
        token = issue(bus, tx, DESKTOP + desktop, secret)
        tx.then(lambda: bus.events.note(What.TOKEN_MADE, bus.clock.now(), DESKTOP + desktop))
        return token

    return secret, await bus.store.write(unit)


async def remove(bus: Bus, name: str) -> None:
    """Make all tokens of a desktop worthless at once; its connections end. Raises ``NotFound`` where it has none."""
    holder = DESKTOP + name.lower()
    if not bus.directory.tokens_of(holder):
        raise NotFound("No desktop of that name has a token. Nothing was changed.")

    def unit(tx: Tx) -> None:
        for token in (each for each in tx.tokens() if each.mailbox == holder):
            bus.directory.remove_token(tx, token)
        tx.then(lambda: bus.events.note(What.TOKEN_REVOKED, bus.clock.now(), holder))

    await bus.store.write(unit)


def scope_of(bus: Bus, caller: Caller, said: object) -> str:
    """Which desktop a call comes from: that of its token, else the one that it says (None: the nameless one).

    Raises ``BadRequest`` for what is no name or a connection's, ``TokenRequired`` for a desktop that has a token.
    """
    if caller.rank is Rank.LINK and caller.name is not None:
        _not_a_connection(bus, caller.name.lower())
        return caller.name
    name = check_scope(said)
    _not_a_connection(bus, name.lower())
    if caller.rank is not Rank.ADMIN and bus.directory.tokens_of(DESKTOP + name.lower()):
        raise TokenRequired(f"The desktop {name} has a token of its own; show it. Nothing was done.")
    return name


def speaks_for(bus: Bus, caller: Caller, desktop: str) -> bool:
    """Whether an outcome of what this desktop (by its key) fetched may come from a caller. What a link of ours carried
    to a gateway of Hermes' has its outcome from there, or from the owner."""
    if caller.rank is Rank.ADMIN:
        return True
    if caller.rank is Rank.LINK:
        return caller.mailbox == desktop
    return not bus.directory.tokens_of(DESKTOP + desktop) and bus.neighbours.behind(desktop) is None


def _not_a_connection(bus: Bus, desktop: str) -> None:
    if desktop == bus.neighbours.name.lower() or bus.neighbours.behind(desktop) is not None:
        raise BadRequest(f"{desktop} is a hub's name, or a connection's, here; a desktop needs a name of its own.")
