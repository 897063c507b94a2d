"""Moments that all share: what is done again and again is done at the same ones, so that an idle hub wakes once for all
of it. A wake-up after a pause costs up to some milliseconds, however little is done in it: its caches are cold.

What must stay true: whatever has a time of its own (a reminder, an expiry) waits for no beat.
"""

from math import ceil

BEAT_SECONDS = 10.0  # at which an idle hub wakes; where there are readers to keep alive, it does so more often
PING_SECONDS = 30.0  # between two pings of a line: what closes silent ones on the way waits for a minute, mostly
ANSWER_SECONDS = 20.0  # for the answer to one
EARLY_SHARE = 0.01  # of a period: timers may come a moment early, and what was just done is not done again


def to_beat(now: float, seconds: float) -> float:
    """Seconds from ``now`` (monotonic) to the next multiple of ``seconds``; in whole milliseconds, as timers count."""
    left = seconds - now % seconds
    if left < seconds * EARLY_SHARE:
        left += seconds
    return ceil(left * 1000) / 1000
