"""Who is known here: the names of this hub and their tokens, in memory, written through to the store.

What must stay true: no name becomes known by being written *to*; a name is learnt in the commit of the call that made
it known; the memory changes only after that commit. So a unit that changes a name begins with the row as the store has
it (the memory lags behind units of the same commit, and would undo them). Presence never touches mail.
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches

from angelia.bus.ports import Store, Tx
from angelia.bus.visits import Visits
from angelia.model.address import PERSON, RESERVED, SEED_AGENTS, Address
from angelia.model.agent import Agent, Token
from angelia.model.errors import RateLimited, UnknownAgent

MOST_LONGER = 3  # letters by which a close name may be longer or shorter
MOST_LETTERS = 1_000  # of names that are compared with an unknown one, a millisecond or two: all others wait meanwhile
DESKTOP = "@"  # before the name of a desktop, where its tokens are kept among those of agents: no handle begins so
SEEN_STEP_MS = 3_600_000  # how stale ``seen_at`` on disk may be: it serves only to forget after 30 days


class Directory:
    """The agents and tokens of this hub. Reads are look-ups, on the loop and inside units; writes happen inside a unit.
    ``on_change`` is called whenever a name has come, gone or changed, and raises nothing.

    What changes on the loop is never walked over elsewhere, only copied in one step.
    """

    def __init__(self) -> None:
        self.agents: dict[str, Agent] = {}
        self.visits = Visits()
        self.on_change: Callable[[], None] = lambda: None
        self._tokens: dict[bytes, Token] = {}
        self._ending: dict[bytes, int] = {}  # tokens that were rotated: until when they prove anything (UTC ms)
        self._members: set[str] = set()
        self._left: set[str] = set()
        self._addresses: dict[str, Address] = {}
        self._listed: tuple[int, tuple[Address, ...]] = (-1, ())  # as it was after so many changes
        self._changes = 0
        self._known = 0  # names, as the units see it

    async def open(self, store: Store, now: int) -> None:
        """Read everything in, and add the two names that are known from the start."""
        agents, tokens = await store.read(lambda view: (view.agents(), view.tokens()))
        self._known = len(agents)
        for agent in agents:
            self._set(agent)
        for token in tokens:
            self._set_token(token)
        missing = [name for name in SEED_AGENTS if name not in self.agents]
        if missing:

            def unit(tx: Tx) -> None:
                for name in missing:
                    self.learn(tx, name, now, member=True, most=None)

            await store.write(unit)

    @property
    def changes(self) -> int:
        """Rises whenever a name comes, goes or changes."""
        return self._changes

    def find(self, mailbox: str) -> Agent | None:
        """The agent of a mailbox key, or None."""
        return self.agents.get(mailbox)

    def is_keyed(self, name: str | None) -> bool:
        """True where the name takes a token."""
        mailbox = name.lower() if name else ""
        agent = self.agents.get(mailbox)
        return mailbox in self._left if agent is None else agent.keyed

    def name_of(self, mailbox: str) -> str:
        """The name as registered (the mailbox key where it is not known)."""
        agent = self.agents.get(mailbox)
        return agent.handle if agent else mailbox

    def require(self, name: str, *, hint: bool = True) -> str:
        """The name as registered, for a local handle that mail can be sent to; else ``UnknownAgent``, with close names
        where a ``hint`` is wanted."""
        mailbox = name.lower()
        if mailbox == PERSON:
            return PERSON
        agent = self.agents.get(mailbox)
        if agent is not None:
            return agent.handle
        close = self._close(mailbox) if hint else []
        meant = f" Did you mean {', '.join(close)}?" if close else ""
        raise UnknownAgent(f"Nobody here is called '{name}'.{meant} Nothing was stored.", suggestions=close)

    def _close(self, mailbox: str) -> list[str]:
        """Names that one who wrote ``mailbox`` may have meant; likelier ones, which begin as it does, before others."""
        near = [name for name in [*self.agents, PERSON] if abs(len(name) - len(mailbox)) <= MOST_LONGER]
        near.sort(key=lambda name: name[:1] == mailbox[:1])
        return get_close_matches(mailbox, near[-(MOST_LETTERS // (len(mailbox) or 1)) :], n=3, cutoff=0.6)

    def address(self, mailbox: str) -> Address | None:
        """The address of a name that is known, by its mailbox key as it stands."""
        return self._addresses.get(mailbox)

    def members(self) -> tuple[Address, ...]:
        """Who gets what is sent to ``*``, in the order of their mailboxes; put together once for all until it changes.

        The count is read first: where a name changes meanwhile, what is made here is made again the next time.
        """
        changes, found = self._listed
        if changes != self._changes:
            changes = self._changes
            found = tuple([self._addresses.get(box) or Address(box) for box in sorted(self._members)])
            self._listed = changes, found
        return found

    def token_agent(self, digest: bytes, now: int) -> str | None:
        """The handle that a token with this digest proves, or None."""
        agent = self.agents.get(self._holder(digest, now))
        return agent.handle if agent and agent.keyed else None

    def token_desktop(self, digest: bytes, now: int) -> str | None:
        """The name of the desktop that it proves, or None."""
        holder = self._holder(digest, now)
        return holder.removeprefix(DESKTOP) if holder.startswith(DESKTOP) else None

    def _holder(self, digest: bytes, now: int) -> str:
        """Whose token it is; empty where it proves nothing."""
        token = self._tokens.get(digest)
        return "" if token is None or (token.ends_at is not None and token.ends_at <= now) else token.mailbox

    def tokens_of(self, mailbox: str) -> list[Token]:
        """The tokens of one name."""
        return [token for token in list(self._tokens.values()) if token.mailbox == mailbox]  # the loop changes it

    def learn(self, tx: Tx, name: str, now: int, *, member: bool, most: int | None) -> None:
        """Make ``name`` known inside this unit; ``member`` also puts it among those whom ``*`` reaches.

        Raises ``RateLimited`` when ``most`` names are known already.
        """
        mailbox = name.lower()
        if mailbox in RESERVED:
            return
        known = self.agents.get(mailbox)
        if known is not None and (known.member or not member) and now - known.seen_at < SEEN_STEP_MS:
            return
        agent = tx.agent(mailbox)
        if agent is None:
            if most is not None and self._known >= most:
                raise RateLimited(
                    f"{most} names are known here, and '{name}' is not one of them: it cannot be learnt just by using "
                    f"it. What helps: the owner makes it known (angelia join {name}), or gives up names that nobody "
                    "needs (angelia leave NAME); an open name that is idle for 30 days is forgotten by itself.",
                    limit=most,
                )
            agent = Agent(handle=name, member=member, created_at=now, seen_at=now)
        self.put(tx, replace(agent, member=agent.member or member, seen_at=now))

    def put(self, tx: Tx, agent: Agent) -> None:
        """Write an agent as it stands."""
        if tx.agent(agent.mailbox) is None:
            self._count(tx, 1)
        tx.put_agent(agent)
        tx.then(lambda: self._set(agent))

    def remove(self, tx: Tx, mailbox: str) -> None:
        """Forget a name and its tokens. That a keyed name is keyed is kept: its mail is for nobody else's eyes."""
        agent = tx.agent(mailbox)
        tx.remove_agent(mailbox)
        tx.then(lambda: self._unset(mailbox))
        if agent is not None and agent.keyed:
            left = replace(agent, member=False, title="", description="", adapter=None)
            tx.put_agent(left)
            tx.then(lambda: self._set(left))
        elif agent is not None:
            self._count(tx, -1)

    def put_token(self, tx: Tx, token: Token) -> None:
        """Write a token."""
        tx.put_token(token)
        tx.then(lambda: self._set_token(token))

    def remove_token(self, tx: Tx, token: Token) -> None:
        """Forget a token: from the commit on it proves nothing."""
        tx.remove_token(token.id)
        tx.then(lambda: self._forget(token))

    def _count(self, tx: Tx, more: int) -> None:
        self._known += more

        def undo() -> None:
            self._known -= more

        tx.otherwise(undo)

    def _set(self, agent: Agent) -> None:
        if agent.has_left:
            self._left.add(agent.mailbox)
            return
        self._left.discard(agent.mailbox)
        self.agents[agent.mailbox] = agent
        self._addresses[agent.mailbox] = Address(agent.handle)
        (self._members.add if agent.member else self._members.discard)(agent.mailbox)
        self._changed()

    def _changed(self) -> None:
        self._changes += 1
        self.on_change()

    def end_visits(self, now: int) -> int | None:
        """End what is still at work under a token that was rotated and whose time is over; when the next one's is."""
        for digest in [digest for digest, ends_at in self._ending.items() if ends_at <= now]:
            del self._ending[digest]
            self.visits.end(digest)
        return min(self._ending.values(), default=None)

    def _set_token(self, token: Token) -> None:
        self._tokens[token.digest] = token
        if token.ends_at is not None:
            self._ending[token.digest] = token.ends_at

    def _forget(self, token: Token) -> None:
        self._tokens.pop(token.digest, None)
        self._ending.pop(token.digest, None)
        self.visits.end(token.digest)

    def _unset(self, mailbox: str) -> None:
        self.agents.pop(mailbox, None)
        self._addresses.pop(mailbox, None)
        self._members.discard(mailbox)
        self._changed()
        for token in self.tokens_of(mailbox):
            self._forget(token)


def digest_of(token: str) -> bytes:
    """What is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
