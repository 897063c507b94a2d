"""Which agents can be woken as they are set up, as far as that is known without trying.

What must stay true: nothing is started to find out. A way to wake an agent counts as working until a turn that could
not begin, or a look at it, has shown otherwise; and again once a turn has come to its end, a look has found nothing
wrong, or the agent is reached in another way: what is known of one way says nothing of the next. It is kept on disk, so
that an agent whose program is gone is not there again because the hub was started anew. How a way is tried, and what is
wrong with it in words, is the business of turns.
"""

from collections.abc import Callable
from hashlib import sha256

from angelia.bus.ports import Store, Tx
from angelia.model.agent import Agent
from angelia.model.failure import Reason

CANNOT_BEGIN = frozenset({Reason.MISSING_CONFIG, Reason.RUNTIME_OFFLINE})  # of a turn: nobody was there to run it
_NOTE = "broken:"  # and the mailbox: which way does not work


def shown_by(outcome: str, reason: Reason | None) -> bool | None:
    """Whether a turn that ended so shows that its agent can be woken; None where it shows nothing."""
    if outcome in ("answered", "accepted"):
        return True
    return False if outcome == "failed" and reason in CANNOT_BEGIN else None


class Working:
    """What is known of the ways. ``on_change`` is called, on the loop, when that is another, and raises nothing."""

    def __init__(self) -> None:
        self._broken: dict[str, bytes] = {}
        self.changes = 0
        self.on_change: Callable[[], None] = lambda: None

    async def open(self, store: Store) -> None:
        """Read what the hub before knew."""
        notes = await store.read(lambda view: view.notes(_NOTE))
        self._broken = {note.name.removeprefix(_NOTE): note.value for note in notes}

    def works(self, agent: Agent) -> bool:
        """Whether the hub can wake it, as far as is known; False where it has no adapter."""
        if agent.adapter is None:
            return False
        broken = self._broken.get(agent.mailbox)
        return broken is None or broken != _mark(agent.adapter)

    def learn(self, tx: Tx, mailbox: str, spec: bytes, *, works: bool, now: int) -> None:
        """That an agent can, or cannot, be woken in this way was seen; inside a unit."""
        broken = None if works else _mark(spec)
        if tx.note(_NOTE + mailbox) != broken:
            tx.put_note(_NOTE + mailbox, broken, now)
            tx.then(lambda: self._set(mailbox, broken))

    def _set(self, mailbox: str, broken: bytes | None) -> None:
        if broken is None:
            self._broken.pop(mailbox, None)
        else:
            self._broken[mailbox] = broken
        self.changes += 1
        self.on_change()


def _mark(spec: bytes) -> bytes:
    """Stands for a way. It may hold secrets, which are kept in one place."""
    return sha256(spec).digest()
