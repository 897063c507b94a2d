"""The ways to read one's own mail, as plans: a stream, its messages alone, or claims; and to watch a hub.

What must stay true: ``Client`` and ``AsyncClient`` have them from here, with these arguments and these words. All ways
of one client share what it has finished, so that a message which comes again by another way is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from angelia.client.core.answers import query
from angelia.client.core.finishing import Finished, Items, Messages
from angelia.client.core.following import Following, Item
from angelia.client.core.keeping import KEEP_SECONDS, LEASE_SECONDS, claiming
from angelia.client.core.verbs import Verbs

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from angelia.client.core.steps import Plan


def quiet(_: str) -> None:
    """Tell nobody."""


class Claims(NamedTuple):
    """How to take one message after another, and how to keep each."""

    plan: Plan[None]
    lease_seconds: float
    keep_seconds: float


class Reader:
    """One agent who reads."""

    def __init__(self, verbs: Verbs) -> None:
        self.verbs = verbs
        self.finished = Finished()

    def follow(
        self,
        *,
        ack: str = "manual",
        window: int | None = None,
        last_event_id: str = "",
        notice: Callable[[str], None] = quiet,
    ) -> Following[Item]:
        """The bare stream of one's own mailbox: nothing dropped, and it can be closed from elsewhere."""
        path = self._path(ack, window)
        return Following(self.verbs.post.where, path, last_event_id=last_event_id, notice=notice)

    def stream(
        self,
        *,
        ack: str = "manual",
        window: int | None = None,
        last_event_id: str = "",
        finished: Container[str] = (),
        notice: Callable[[str], None] = quiet,
    ) -> Following[Item]:
        """One's own mail for ever, each message once, with all that the hub says of it. Out: ``Item``s.

        ``manual``: a message is settled by ``ack``; ``finished`` are ids that were dealt with before: when one comes
        again it is acked and dropped. ``window`` is how many may be handed over and not acked (1 to 16). ``auto``: a
        message counts as dealt with once the next one is asked for. The last item is ``superseded``, when another
        stream of this name took over. ``notice`` is told when the hub is away and when it is back. Raises ``HubError``
        or ``NotAHub`` when going on would be of no use.
        """
        hand = Items(self.verbs, self.finished, finished, auto=ack == "auto").hand
        path = self._path(ack, window)
        return Following(self.verbs.post.where, path, last_event_id=last_event_id, notice=notice, hand=hand)

    def messages(
        self, *, last_event_id: str = "", finished: Container[str] = (), notice: Callable[[str], None] = quiet
    ) -> Following[dict[str, Any]]:
        """One's own mail for ever, each message once. Out: messages, ``{id, from, text, …}``.

        A message is acked when the next one is asked for, and the hub hands over no other before that. Where the loop
        ends by an error or a ``break`` the message was not dealt with, and is handed over again. Raises ``Superseded``
        when another stream of this name took over.
        """
        hand = Messages(self.verbs, self.finished, finished).hand
        path = self._path("manual", 1)
        return Following(self.verbs.post.where, path, last_event_id=last_event_id, notice=notice, hand=hand)

    def claims(
        self,
        *,
        lease_seconds: float = LEASE_SECONDS,
        wait_seconds: float | None = None,
        keep_seconds: float = KEEP_SECONDS,
        finished: Container[str] = (),
        notice: Callable[[str], None] = quiet,
    ) -> Claims:
        """One's own mail, one message at a time, under a lease that is renewed while it is worked on. Out: ``Claim``s.

        Each is a context: ``with claim as message`` acks the message at its end, and gives it back on an error. The
        lease is renewed for up to ``keep_seconds``. ``wait_seconds`` ends the loop when no message came for so long;
        None waits for ever, through a hub's absence too.
        """
        plan = claiming(
            self.verbs, self.finished, finished, lease_seconds=lease_seconds, wait_seconds=wait_seconds, notice=notice
        )
        return Claims(plan, lease_seconds, keep_seconds)

    def events(
        self,
        *,
        agent: str | None = None,
        last: int | None = None,
        last_event_id: str = "",
        notice: Callable[[str], None] = quiet,
    ) -> Following[Item]:
        """All that happens at the hub, for ever; admin. Out: ``Item``s, whose ``kind`` says what happened.

        ``agent``: only what one has a part in. ``last``: first so many events that happened before. ``lagged`` tells
        how many were missed, ``reset`` that the hub began anew.
        """
        path = f"/v1/events{query({'agent': agent, 'last': last})}"
        return Following(self.verbs.post.where, path, last_event_id=last_event_id, notice=notice)

    def _path(self, ack: str, window: int | None) -> str:
        return f"/v1/agents/{self.verbs.me()}/stream{query({'ack': ack, 'window': window})}"
