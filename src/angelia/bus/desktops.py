"""Desktops with a token of their own: relays that push rosters and fetch mail, and are no agents.

What must stay true: a desktop's token is good for its own rows and its own mail, under its own name, whatever a call
says it is called; it is no agent, sends nothing of its own and administers nothing. Once a desktop has a token, nobody
without one is that desktop, but for the owner: whoever called itself so before is not, either. Who is called so after
that token was removed gets nothing of its mail. A desktop and a connection never have one name, and no desktop has that
of a hub that may come back.
"""

from angelia.bus.agents import issue
from angelia.bus.caller import Caller, Rank
from angelia.bus.carry import AT_ONCE, fail, fail_waiting
from angelia.bus.claim import hand_over
from angelia.bus.core import Bus
from angelia.bus.directory import DESKTOP
from angelia.bus.events import What
from angelia.bus.ports import Tx
from angelia.bus.remotes import ANONYMOUS, check_scope
from angelia.model.agent import Token
from angelia.model.delivery import Hand, State
from angelia.model.errors import BadName, BadRequest, NotFound, TokenRequired
from angelia.model.failure import Reason
from angelia.model.tokens import written

REMOVED = "The desktop that it was for has no token any more."


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
        tx.then(bus.neighbours.changed)  # what its connections are called, and others'
        tx.then(lambda: bus.events.note(What.TOKEN_MADE, bus.clock.now(), DESKTOP + desktop))
        return token

    return secret, await bus.store.write(unit)


async def remove(bus: Bus, name: str) -> None:
    """Make all tokens of a desktop worthless at once; its connections end. Nothing of it is left to whoever is called
    so next: its rows are forgotten, what waits for it or is awaited from it ends, and the senders are told. Raises
    ``NotFound`` where it has none."""
    desktop = name.lower()
    holder = DESKTOP + desktop
    if not bus.directory.tokens_of(holder):
        raise NotFound("No desktop of that name has a token. Nothing was changed.")
    alone = desktop not in bus.neighbours.connections  # the settings may have one that is called so

    def unit(tx: Tx) -> None:
        for token in (each for each in tx.tokens() if each.mailbox == holder):
            bus.directory.remove_token(tx, token)
        if alone:
            bus.remotes.forget(tx, desktop, bus.clock.now())
            _end_mail(bus, tx, desktop)
        tx.then(lambda: bus.events.note(What.TOKEN_REVOKED, bus.clock.now(), holder))

    await bus.store.write(unit)
    if alone:
        await fail_waiting(bus, desktop, REMOVED)  # for what was on its way into the store


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
    neighbours = bus.neighbours
    elsewhere = neighbours.behind(desktop) is not None or neighbours.stood_for(desktop)
    return not elsewhere and not bus.directory.tokens_of(DESKTOP + desktop)


def _end_mail(bus: Bus, tx: Tx, desktop: str) -> None:
    """What waits for a desktop, and what it fetched and has not answered, ends; who waits for an answer is told."""
    after = 0
    while found := tx.carried(desktop, after, AT_ONCE):
        for parcel in found:
            if parcel.delivery.state is State.FORWARDED:
                fail(bus, tx, parcel, Reason.CONNECTION_GONE, REMOVED)
            elif (taken := hand_over(bus, tx, parcel, Hand.LINK, 0)) is not None:
                fail(bus, tx, taken, Reason.RUNTIME_OFFLINE, REMOVED)
        after = found[-1].delivery.key


def _not_a_connection(bus: Bus, desktop: str) -> None:
    neighbours = bus.neighbours
    if neighbours.stood_for(desktop) and neighbours.behind(desktop) is None:
        raise BadRequest(f"{desktop} is the name of a hub that may come back; a desktop needs a name of its own.")
    if desktop == neighbours.name.lower() or neighbours.behind(desktop) is not None:
        raise BadRequest(f"{desktop} is a hub's name, or a connection's, here; a desktop needs a name of its own.")
