"""Names: making them known, keying them, rotating and revoking their tokens, and forgetting them.

What must stay true: keying a name keeps its mail, and from then on only its own token speaks for it. The old token and
the new one overlap while one is rotated. A token is shown once and kept as its hash. Whoever reads without the token
that a name has come to need reads no more of it.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto

from angelia.bus.caller import Caller, Rank
from angelia.bus.core import Bus
from angelia.bus.directory import digest_of
from angelia.bus.events import What
from angelia.bus.ports import Tx
from angelia.bus.rosters import is_online
from angelia.bus.runs import ADAPTERS
from angelia.model.address import RESERVED, SEED_AGENTS, check_handle
from angelia.model.agent import Agent, Token
from angelia.model.errors import BadName, BadRequest, NotAllowed, NotFound, TooLarge
from angelia.model.tokens import written

OVERLAPPING = 8  # so many old ones at most
OVERLAP_SECONDS = 300  # an old token still works for so long after a rotation: time to restart what uses it
FORGET_BATCH = 256
TITLE_LENGTH = 120
DESCRIPTION_LENGTH = 2000


class Keep(Enum):
    """What is not to be changed."""

    KEEP = auto()


@dataclass(frozen=True, slots=True)
class Presence:
    """How one agent stands: ``online`` as others are told it; what waits for it and since when."""

    agent: Agent
    online: bool
    queued: int
    oldest_unread_at: int | None


async def put_agent(
    bus: Bus,
    caller: Caller,
    name: str,
    title: str | None,
    description: str | None,
    adapter: bytes | Keep | None = Keep.KEEP,
) -> Agent:
    """Make a name known, or edit it. An agent may edit its own; the rest is admin's, and so is every ``adapter``
    (checked before, as compact JSON; None: nothing wakes it)."""
    check_handle(name)
    if name.lower() in RESERVED:
        raise BadName(f"'{name}' is reserved.")
    if title is not None and len(title) > TITLE_LENGTH:
        raise TooLarge(f"A title has at most {TITLE_LENGTH} characters.", limit=TITLE_LENGTH)
    if description is not None and len(description) > DESCRIPTION_LENGTH:
        raise TooLarge(f"A description has at most {DESCRIPTION_LENGTH} characters.", limit=DESCRIPTION_LENGTH)
    own_only(caller, name)

    def unit(tx: Tx) -> Agent:
        now = bus.clock.now()
        old = tx.agent(name.lower()) or Agent(handle=name, created_at=now, seen_at=now)
        agent = replace(
            old,
            title=old.title if title is None else title,
            description=old.description if description is None else description,
            member=True,
            adapter=old.adapter if isinstance(adapter, Keep) else adapter,
        )
        bus.directory.put(tx, agent)
        if agent.adapter != old.adapter:
            tx.then(lambda: bus.runs.signals.wake(ADAPTERS))
        return agent

    return await bus.store.write(unit)


async def remove_agent(bus: Bus, name: str) -> None:
    """Forget a name and its tokens, and end its streams. Mail that waits for it stays until its time to live."""
    agent = bus.directory.find(check_handle(name).lower())
    if agent is None:
        raise NotFound(f"Nobody here is called '{name}'. Nothing was changed.")
    if agent.mailbox in SEED_AGENTS:
        raise BadRequest(f"{agent.handle} is known here from the start and stays so. Nothing was changed.")

    def unit(tx: Tx) -> None:
        tx.then(lambda: _end_reading(bus, agent.mailbox, "removed"))  # first: its tokens end with it, and say less
        bus.directory.remove(tx, agent.mailbox)

    await bus.store.write(unit)
    bus.events.note(What.NAME_REMOVED, bus.clock.now(), agent.handle)
    bus.runs.signals.wake(ADAPTERS)


async def make_token(bus: Bus, caller: Caller, name: str) -> tuple[str, Token]:
    """Key a name, or rotate its token: the new token (shown this once) and its record.

    Older tokens work on for ``OVERLAP_SECONDS``. Keying an open name is admin's; an agent may rotate its own.
    """
    check_handle(name)
    if name.lower() in RESERVED:
        raise BadName(f"'{name}' is reserved and cannot be keyed.")
    own_only(caller, name)
    secret = written(bus.ids.secret())

    def unit(tx: Tx) -> Token:
        now = bus.clock.now()
        agent = tx.agent(name.lower()) or Agent(handle=name, created_at=now, seen_at=now)
        bus.directory.put(tx, replace(agent, keyed=True, member=True))
        if not agent.keyed:  # whoever reads it now has shown no token
            tx.then(lambda: _end_reading(bus, agent.mailbox, "keyed"))
        token = issue(bus, tx, agent.mailbox, secret)
        tx.then(lambda: bus.events.note(What.TOKEN_MADE, now, agent.handle))
        return token

    token = await bus.store.write(unit)
    return secret, token


def issue(bus: Bus, tx: Tx, holder: str, secret: str) -> Token:
    """Give a holder (a mailbox, or a desktop's key) a token, inside a unit; its older ones end soon, and at once where
    they are many."""
    now = bus.clock.now()
    olds = sorted((each for each in tx.tokens() if each.mailbox == holder), key=lambda each: each.created_at)
    for left, old in zip(range(len(olds), 0, -1), olds, strict=True):
        if left > OVERLAPPING or (old.ends_at is not None and old.ends_at <= now):
            bus.directory.remove_token(tx, old)
        elif old.ends_at is None:
            bus.directory.put_token(tx, replace(old, ends_at=now + OVERLAP_SECONDS * 1000))
    token = Token(id=bus.ids.message_id()[-16:], mailbox=holder, digest=digest_of(secret), created_at=now)
    bus.directory.put_token(tx, token)
    return token


async def revoke_token(bus: Bus, caller: Caller, name: str, token_id: str) -> None:
    """Make a token worthless at once; the streams of its name end. The name stays keyed."""
    own_only(caller, name)
    token = next((t for t in bus.directory.tokens_of(name.lower()) if t.id == token_id), None)
    if token is None:
        raise NotFound(f"{name} has no token '{token_id[:40]}'. Nothing was changed.")
    await bus.store.write(lambda tx: bus.directory.remove_token(tx, token))
    bus.events.note(What.TOKEN_REVOKED, bus.clock.now(), bus.directory.name_of(token.mailbox))
    _end_reading(bus, token.mailbox, "revoked")


def _end_reading(bus: Bus, mailbox: str, why: str) -> None:
    """Who may still read comes back, and says so anew; who waits in a claim or an ask looks again whether it may."""
    for stream in bus.streams.of(mailbox):
        stream.end(why)
    bus.signals.wake(mailbox)
    for message_id in bus.asks.of(mailbox):
        bus.signals.wake("message:" + message_id)


def forget_idle(bus: Bus) -> None:
    """Forget open names that nobody has used for 30 days, have no stream, and wait for no mail. Keyed ones stay."""
    oldest = bus.clock.now() - bus.limits.open_name_idle_seconds * 1000
    idle = [agent.mailbox for agent in bus.directory.agents.values() if agent.seen_at < oldest and not agent.keyed]
    idle = [box for box in idle if box not in SEED_AGENTS and not bus.streams.of(box)][:FORGET_BATCH]

    def unit(tx: Tx) -> None:
        for mailbox in idle:
            agent = tx.agent(mailbox)
            used = agent is None or agent.keyed or agent.seen_at >= oldest or tx.load(mailbox).open
            if not used and mailbox not in bus.streams.attached:
                bus.directory.remove(tx, mailbox)

    if idle:
        bus.submit(unit, essential=False)


def own_only(caller: Caller, name: str) -> None:
    """An agent acts on its own name only."""
    if caller.rank is Rank.AGENT and caller.mailbox != name.lower():
        raise NotAllowed(f"The token belongs to {caller.name}; only an admin may do this for '{name}'.")
    if caller.rank is Rank.LINK:
        raise BadRequest("A link has no names of its own here.")


async def roster(bus: Bus, only: str | None = None) -> list[Presence]:
    """All known agents (or the one of mailbox ``only``) and how they stand, by name."""
    agents = [bus.directory.find(only)] if only else sorted(bus.directory.agents.values(), key=lambda a: a.mailbox)
    found = [agent for agent in agents if agent is not None]
    waiting = [agent.mailbox for agent in found if bus.store.load(agent.mailbox).open]
    oldest = await bus.store.read(lambda view: {box: view.oldest_unread(box) for box in waiting}) if waiting else {}
    return [
        Presence(
            agent,
            online=is_online(bus, agent) is True,
            queued=bus.store.load(agent.mailbox).queued,
            oldest_unread_at=oldest.get(agent.mailbox),
        )
        for agent in found
    ]
