"""The fixed points of Hermes' relay: where its files are, what waits for what, how much fits.

What must stay true: writer and drainer find the same folder, for every kind of home. A limit that waits on another is
computed from it, so all of them follow when one is changed, and whoever waits outlives what it waits for. A body of
16,000 characters goes through, however long the names in front of it are.

What stands in the files is in ``bot_relay_rows``, ``bot_relay_mail``; who is meant in ``bot_relay_targets``.
"""

import posixpath
from dataclasses import dataclass

from angelia.protocol.prompt import read_attribution

FOLDER, ROSTER, OUTBOX, CLAIMED, REPLIES, LOCKS = "bot_relay", "roster.json", "outbox", "claimed", "replies", "locks"
DEFAULT_PROFILE = "default"  # the profile of the agent that everybody calls ``hermes``
DEFAULT_HANDLE = "hermes"

BODY_CHARS = 16_000  # of a message, at its sender
TEXT_CHARS = 16_200  # of a message with its header, at the gateway that delivers it

LOCK_WAIT_SECONDS = 120.0  # for the turn lock of a profile; Hermes' default
ENVELOPE_TTL_SECONDS = 900.0  # until a queued envelope is worth no more; Hermes' default
ROSTER_FRESH_SECONDS = 600.0  # ten pushes of its sixty seconds were missed
STALE_SECONDS = 6 * 3600.0  # then files are swept: a relay that never comes back leaves no letters on the disk
SWEEP_SECONDS = 3600.0  # how often that is looked at

_REPORT_SECONDS = 180.0  # between the end of a turn's work and the end of the call that waits for it
_MARGIN_SECONDS = 60.0  # between the end of a call and the moment when somebody concludes that none came


@dataclass(frozen=True, slots=True)
class Times:
    """How long each waits, from the bottom up. Given: a turn's limit, its attempts, and its wait for the lock."""

    turn_seconds: float = 600.0
    attempts: int = 2
    lock_wait_seconds: float = LOCK_WAIT_SECONDS

    @property
    def work_seconds(self) -> float:
        """The longest that a delivery can work: waiting for the lock, then every attempt to its limit."""
        return self.lock_wait_seconds + self.attempts * self.turn_seconds

    @property
    def deliver_seconds(self) -> float:
        """What whoever calls ``deliver`` has to wait."""
        return self.work_seconds + _REPORT_SECONDS

    @property
    def reoffer_seconds(self) -> float:
        """After this, what was claimed and not answered is handed out once more."""
        return self.deliver_seconds + _MARGIN_SECONDS

    @property
    def waiter_seconds(self) -> float:
        """When a sender stops waiting: the second delivery would have ended, too."""
        return self.reoffer_seconds + self.deliver_seconds + _MARGIN_SECONDS


def relay_root(hermes_home: str | None, user_home: str) -> str:
    """The folder that holds ``bot_relay``, one for all profiles of an install.

    ``hermes_home``: the variable HERMES_HOME, None or empty when it is not set. A profile's home
    (``<root>/profiles/<name>``) stands for its root.
    """
    home = (hermes_home or "").rstrip("/") or ("/" if hermes_home else posixpath.join(user_home, ".hermes"))
    parent = posixpath.dirname(home)
    return (posixpath.dirname(parent) or ".") if posixpath.basename(parent) == "profiles" else home


def profile_of(name: str) -> str:
    """The profile that a name means: ``hermes`` in any case is ``default``; any other is itself, to the letter."""
    return DEFAULT_PROFILE if name.lower() == DEFAULT_HANDLE else name


def handle_of(profile: str) -> str:
    """The handle of a profile that says none of its own."""
    return DEFAULT_HANDLE if profile == DEFAULT_PROFILE else profile


def fits(text: str) -> bool:
    """Whether ``deliver`` takes this text: by its length with the header, or by its body's, however long the names."""
    if len(text) <= TEXT_CHARS:
        return True
    read = read_attribution(text)
    return read is not None and len(read.body) <= BODY_CHARS
