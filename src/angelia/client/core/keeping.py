"""Claims that are kept: how mail is taken one at a time, renewed while it is worked on, and settled at the end.

What must stay true:

- A lease is renewed at a third of its time, so that two renewals may fail before it is lost; and never past the cap
  (``keep_seconds``): a worker that renews for ever is not a worker.
- A lease that is lost is told (``lost``, ``check``, and ``LeaseLost`` at the end), and nothing is done about the work:
  nobody here can know what half of it would mean. The end tries its ack all the same: while nobody has claimed the
  message since, it is still good.
- Work that ended well is finished first and acked then; work that ended with an error is given back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from angelia.client.backoff import Backoff
from angelia.client.core.answers import may_pass, part
from angelia.client.core.finishing import Finished, settled
from angelia.client.core.following import RETRY_MOST_SECONDS, RETRY_SECONDS, Item, lease_token, message_id
from angelia.client.core.steps import Out, Pause
from angelia.client.errors import ClientError, HubError, LeaseLost

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from angelia.client.core.steps import Plan
    from angelia.client.core.verbs import Verbs

LEASE_SECONDS = 60.0
KEEP_SECONDS = 7200.0  # the hub's own cap
CLAIM_WAIT_SECONDS = 50.0  # one POST's wait: below the hub's 60 s, and below the idle limit of common proxies
RENEWALS = 3  # in the time of one lease
AGAIN_SECONDS = 1.0  # a renewal that failed is tried again within this
REASON_LETTERS = 200


class Held:
    """One message under a lease: ``message`` as the hub gives it, its ``id``, ``lease`` (the token), ``attempt`` and
    ``seq``.
    """

    def __init__(self, delivery: dict[str, Any]) -> None:
        item = Item("message", delivery, "")
        self.message: dict[str, Any] = delivery.get("message") or {}
        self.id = message_id(item)
        self.lease = lease_token(item)
        self.attempt: int | None = delivery.get("attempt")
        self.seq: int | None = delivery.get("seq")
        self._lost: LeaseLost | None = None

    @property
    def lost(self) -> bool:
        """Whether the lease is over: somebody else may have the message by now."""
        return self._lost is not None

    def check(self) -> None:
        """Raise ``LeaseLost`` once the lease is over: for work that would rather end than be done twice."""
        if self._lost is not None:
            raise self._lost

    def lose(self, error: LeaseLost) -> None:
        """The lease is over."""
        self._lost = error


def claiming(
    verbs: Verbs,
    own: Finished,
    finished: Container[str],
    *,
    lease_seconds: float,
    wait_seconds: float | None,
    notice: Callable[[str], None],
) -> Plan[None]:
    """Take one message after another; ``Out`` is a delivery. Returns when none came within ``wait_seconds``; None waits
    for ever, through a hub's absence too.
    """
    now = verbs.post.now
    backoff = Backoff(RETRY_SECONDS, RETRY_MOST_SECONDS, verbs.post.draw)
    away: ClientError | None = None
    ends = now() + (wait_seconds or 0.0)
    while True:
        left = CLAIM_WAIT_SECONDS if wait_seconds is None else max(0.0, ends - now())
        try:
            found = yield from verbs.claim(
                limit=1, lease_seconds=lease_seconds, wait_seconds=min(left, CLAIM_WAIT_SECONDS)
            )
        except ClientError as error:
            pause = backoff.next_seconds()
            if not may_pass(error) or (wait_seconds is not None and now() + pause > ends):
                raise
            if away is None:
                notice(f"{error}; trying again")
            away = error
            yield Pause(pause)
            continue
        if away is not None:
            notice("the hub is back")
        away = None
        backoff.reset()
        deliveries = found.get("deliveries") or []
        for delivery in deliveries:
            held = Held(delivery)
            if held.id in own or held.id in finished:
                yield from settled(verbs, held.lease)
            else:
                yield Out(delivery)
                ends = now() + (wait_seconds or 0.0)
        if not deliveries and wait_seconds is not None and now() >= ends:
            return


def renewing(verbs: Verbs, held: Held, *, lease_seconds: float, keep_seconds: float) -> Plan[None]:
    """Keep the lease; returns once it is lost, or was kept for as long as it may be."""
    post = verbs.post
    ends = post.now() + keep_seconds
    pause = lease_seconds / RENEWALS
    path, body = f"/v1/leases/{part(held.lease)}/renew", {"lease_seconds": lease_seconds}
    while True:
        yield Pause(pause)
        if post.now() >= ends:
            held.lose(_at_the_cap(keep_seconds))
            return
        try:
            yield from post.call("POST", path, body, seconds=min(post.answer_seconds, lease_seconds))
        except LeaseLost as error:
            held.lose(error)
            return
        except HubError as error:
            if not may_pass(error):
                held.lose(LeaseLost(error.status, error.code, error.title, error.detail, error.extra))
                return
            pause = min(AGAIN_SECONDS, lease_seconds / RENEWALS / 4)
        except ClientError:
            pause = min(AGAIN_SECONDS, lease_seconds / RENEWALS / 4)
        else:
            pause = lease_seconds / RENEWALS


def ending(verbs: Verbs, held: Held, own: Finished, error: BaseException | None) -> Plan[None]:
    """The work is over. Without an error it is finished and acked; with one it is given back, at once where nobody is
    to blame (the program was told to end). Raises ``LeaseLost`` when finished work has been given to another.
    """
    if error is None:
        own.add(held.id)
        try:
            yield from verbs.post.surely(f"/v1/leases/{part(held.lease)}/ack", {})
        except LeaseLost as lost:
            held.lose(lost)
            raise
        except HubError:
            raise
        except ClientError:
            return  # no hub: when it is back it offers the message again, and then it is known
        return
    ours = not isinstance(error, Exception)
    reason = f"{type(error).__name__}: {error}"[:REASON_LETTERS]
    try:
        yield from verbs.nack(held.lease, delay_seconds=0 if ours else None, reason=reason)
    except ClientError:
        return  # then its lease ends by itself


def _at_the_cap(seconds: float) -> LeaseLost:
    detail = f"This lease was kept for {seconds:g} s; it is not renewed any further."
    return LeaseLost(409, "lease_lost", "The lease is over", detail, {})
