"""One agent's mail, handed over one message at a time, each of them once: what ``angelia listen`` stands on.

What must stay true:

- The stream is read, and every lease renewed, by threads of their own: a reader that takes an hour over one message
  loses neither the connection nor the messages that wait behind it.
- A message is finished in this order: dealt with, in the journal, acked. What comes again because the ack was lost is
  acked and not handed over. An ack that fails is not repeated: the hub offers the message again, and that settles it.
- Nothing is handed over while an earlier listener of the same name still works on something: the journal is its to
  write until then. That listener is told to end by the hub (``superseded``), since ours has taken its place.
- Copies that the hub shows after a resume (``again``) were settled by somebody; they are not handed over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from angelia.client.backoff import Backoff
from angelia.client.client import Client
from angelia.client.core.answers import may_pass
from angelia.client.core.following import RETRY_MOST_SECONDS, RETRY_SECONDS, Item, lease_token, message_id
from angelia.client.errors import ClientError, HubError
from angelia.client.journal import Journal

LEASE_SECONDS = 60.0
CLAIM_WAIT_SECONDS = 50.0
LOCK_STEP_SECONDS = 0.2
END_SECONDS = 2.0
_REASON_LETTERS = 200


class Taken:
    """A message in this listener's hands. ``lease`` changes when the hub hands it over anew meanwhile; id and lease are
    "" for a notice that is not stored (who came online) and needs no ack.
    """

    __slots__ = ("attempt", "event_id", "id", "lease", "message", "seq")

    def __init__(self, item: Item) -> None:
        self.message: dict[str, Any] = item.data.get("message", item.data)
        self.id = message_id(item)
        self.event_id = item.id
        self.seq = item.data.get("seq")
        self.lease, self.attempt = _lease(item)


class Listener:
    """Takes the mail of ``connect().name``, by a stream. Use it as a context, from one thread."""

    renew_seconds = LEASE_SECONDS / 4  # three renewals may fail before a lease is lost

    def __init__(
        self,
        connect: Callable[[], Client],
        journal: Journal,
        notice: Callable[[str], None] = lambda _: None,
        *,
        window: int | None = None,
    ) -> None:
        """In: what makes a client, one for each thread; the journal; whom to tell what a person should know; and how
        many messages the hub may hand over that are not finished yet (1 to 16).
        """
        self.superseded = False
        self.error: ClientError | None = None
        self._connect = connect
        self._journal = journal
        self._notice = notice
        self._client = connect()
        self._stream = self._client.follow(window=window, notice=notice)
        self._changed = threading.Condition()
        self._held: dict[str, Taken] = {}
        self._waiting: list[Taken] = []
        self._closing = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._read, self._renew)]
        self._locked = False

    def __enter__(self) -> Listener:
        self._locked = self._journal.take()
        self._stream.last_event_id = self._journal.last_event_id
        if not self._locked:
            self._notice("an earlier listener of this name is still at work; waiting for it to end")
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of everything; what was taken and not finished is the hub's again."""
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        self._stream.close()
        for thread in self._threads:
            thread.join(END_SECONDS)
        self._client.close()
        self._journal.close()

    @property
    def ended(self) -> bool:
        """True when no more will come: superseded, or refused for good (``error``)."""
        return self.superseded or self.error is not None

    @property
    def holding(self) -> bool:
        """Whether some message is in this listener's hands, under a lease."""
        with self._changed:
            return bool(self._held)

    def take(self, seconds: float) -> Taken | None:
        """The next message to deal with, or None when there is none yet, or there will be none (``ended``)."""
        if not self._locked and not self._lock_within(seconds):
            return None
        with self._changed:
            if not self._waiting and not self.ended:
                self._changed.wait(seconds)
            if self.superseded or not self._waiting:
                return None
            taken = self._waiting.pop(0)
        if taken.id in self._journal:
            self._settle(taken)
            return None
        return taken

    def finish(self, taken: Taken) -> None:
        """It was dealt with: never hand it over again."""
        if taken.id:
            try:
                self._journal.finish(taken.id, taken.event_id)
            except OSError as error:
                self._notice(f"the journal cannot be written ({error.strerror}): {taken.id} may come again")
        self._settle(taken)

    def give_back(self, taken: Taken, reason: str) -> None:
        """It was not dealt with: the hub hands it over again, later each time."""
        lease = self._let_go(taken)
        if lease:
            with suppress(ClientError):  # then its lease ends by itself
                self._client.nack(lease, reason=reason[:_REASON_LETTERS])

    def _settle(self, taken: Taken) -> None:
        lease = self._let_go(taken)
        if not lease:
            return
        try:
            self._client.ack(lease)
        except HubError as error:
            if error.code != "lease_lost":
                self._notice(f"{taken.id} was dealt with, but its ack was refused: {error.detail}")
        except ClientError:
            pass  # the hub offers it again, and then it is acked

    def _let_go(self, taken: Taken) -> str:
        with self._changed:
            self._held.pop(taken.id, None)
            self._changed.notify_all()
            return taken.lease

    def _lock_within(self, seconds: float) -> bool:
        ends = time.monotonic() + seconds
        while not self.ended and not self._locked and time.monotonic() < ends:
            self._closing.wait(LOCK_STEP_SECONDS)
            self._locked = self._journal.take()
        return self._locked

    def _read(self) -> None:
        """The thread that fills ``_waiting``."""
        try:
            for item in self._stream:
                if item.kind == "message":
                    self._arrived(item)
                elif item.kind == "superseded":
                    self.superseded = True
                elif item.kind == "reset":
                    self._notice(f"the hub cannot resume from here, and begins anew: {item.data.get('why', '')}")
        except ClientError as error:
            self.error = error
        with self._changed:
            self._changed.notify_all()

    def _arrived(self, item: Item) -> None:
        if item.data.get("again"):
            return
        with self._changed:
            known = self._held.get(message_id(item)) if message_id(item) else None
            if known is not None:  # its lease was lost, and this is the next one
                known.lease, known.attempt = _lease(item)
                return
            taken = Taken(item)
            if taken.id and taken.lease:
                self._held[taken.id] = taken
            self._waiting.append(taken)
            self._changed.notify_all()

    def _renew(self) -> None:
        """The thread that keeps every lease."""
        client = self._connect()
        while not self._closing.wait(self.renew_seconds):
            with self._changed:
                held = [(taken, taken.lease) for taken in self._held.values()]
            for taken, lease in held:
                try:
                    client.renew(lease, lease_seconds=LEASE_SECONDS)
                except HubError as error:
                    if error.code == "lease_lost":
                        self._lost(taken, lease)
                except ClientError:
                    break  # no hub: when it is back it hands over anew
        client.close()

    def _lost(self, taken: Taken, lease: str) -> None:
        """The hub took it back. What only waited here is forgotten; what is being dealt with is dealt with."""
        with self._changed:
            if taken.lease == lease and taken in self._waiting:
                self._waiting.remove(taken)
                self._held.pop(taken.id, None)


class OnceListener(Listener):
    """Takes one message at a time, by a claim, and only when asked for one: for who wants just the next.

    A stream would hand over what lies behind it too, and each time count an attempt at it that nobody made.
    """

    def __init__(
        self,
        connect: Callable[[], Client],
        journal: Journal,
        notice: Callable[[str], None] = lambda _: None,
        *,
        window: int | None = None,
    ) -> None:
        super().__init__(connect, journal, notice, window=window)
        self._wanted = threading.Event()
        self._claims = connect()

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._wanted.set()
        self._claims.connection.shutdown()
        super().__exit__()

    def take(self, seconds: float) -> Taken | None:
        """As ever; from now on until there is one, one is being claimed."""
        if self._locked and not self._held:
            self._wanted.set()
        return super().take(seconds)

    def _read(self) -> None:
        client = self._claims
        away = False
        backoff = Backoff(RETRY_SECONDS, RETRY_MOST_SECONDS)
        while self._wanted.wait() and not self._closing.is_set():
            try:
                found = client.claim(limit=1, lease_seconds=LEASE_SECONDS, wait_seconds=CLAIM_WAIT_SECONDS)
            except ClientError as error:
                if not may_pass(error):
                    self.error = error
                    break
                if not away and not self._closing.is_set():
                    self._notice(f"{error}; trying again")
                away = True
                self._closing.wait(backoff.next_seconds())
                continue
            away = False
            backoff.reset()
            for delivery in found["deliveries"]:
                self._wanted.clear()
                self._arrived(Item("message", delivery, ""))
        client.close()
        with self._changed:
            self._changed.notify_all()


def _lease(item: Item) -> tuple[str, int | None]:
    """Token and attempt; a stream tells the attempt beside the lease, a claim within it."""
    lease = item.data.get("lease")
    attempt = lease.get("attempt") if isinstance(lease, dict) else None
    attempt = attempt if attempt is not None else item.data.get("attempt")
    return lease_token(item), attempt if isinstance(attempt, int) else None
