"""What becomes of queued and claimed envelopes: handed out, once more, or ended with a reason."""

import pytest

from angelia.protocol.bot_relay import Times
from angelia.protocol.bot_relay_fates import Fate, end_text, of_claimed, of_queued
from angelia.protocol.bot_relay_mail import RelayEnvelope, new_envelope

NOW, TIMES = 1_790_000_000, Times()


def envelope(age: int, reoffered: int | None = None) -> RelayEnvelope:
    made = new_envelope("f" * 32, NOW - age, ("default", "hermes"), ("vps-1", "ops", "Ops"), "hi")
    return made if reoffered is None else made.reoffered(NOW - reoffered)


@pytest.mark.parametrize(
    ("age", "ttl", "fate"),
    [
        (900, 900, Fate.HAND_OUT),
        (901, 900, Fate.EXPIRED),
        (901, None, Fate.HAND_OUT),
        (-50, 900, Fate.HAND_OUT),
        (61, 60, Fate.EXPIRED),
    ],
)
def test_what_waited_too_long_is_not_handed_out(age: int, ttl: float | None, fate: Fate) -> None:
    """9.1 drain_expires_old_envelope_with_queued_expired_reply, drain_delivers_fresh_envelope_under_ttl,
    drain_ttl_zero_disables_expiry."""
    assert of_queued(envelope(age), NOW, NOW, ttl) is fate


def test_without_a_time_of_its_own_the_files_counts() -> None:
    """3.4.5 falsy created_at ⇒ mtime."""
    assert of_queued(envelope(NOW), NOW - 901, NOW, 900) is Fate.EXPIRED
    assert of_queued(envelope(NOW), NOW - 899, NOW, 900) is Fate.HAND_OUT


@pytest.mark.parametrize(
    ("claimed", "fate"),
    [
        (10, Fate.WAIT),
        (1559, Fate.WAIT),
        (1560, Fate.HAND_OUT),
        (2460, Fate.HAND_OUT),
        (2461, Fate.EXPIRED),
        (3120, Fate.EXPIRED),
        (3121, Fate.TIMED_OUT),
    ],
)
def test_a_claim_that_stayed_unanswered_is_offered_again_within_its_time(claimed: int, fate: Fate) -> None:
    """10.11, 11.10 and 3.5: a Desktop that drops after the drain loses nothing, and nothing is offered for ever."""
    assert of_claimed(envelope(claimed), NOW - claimed, NOW, 900, TIMES) is fate


def test_it_is_offered_again_at_most_once() -> None:
    """3.5 b."""
    assert of_claimed(envelope(2000, reoffered=400), NOW - 2000, NOW, 900, TIMES) is Fate.WAIT
    assert of_claimed(envelope(3121, reoffered=400), NOW - 3121, NOW, 900, TIMES) is Fate.TIMED_OUT


def test_the_times_of_an_offer_follow_the_lock_wait() -> None:
    """10.9: a client that ignores the configured lock wait breaks the chain."""
    longer = Times(lock_wait_seconds=720)
    assert of_claimed(envelope(1560), NOW - 1560, NOW, 900, longer) is Fate.WAIT
    assert of_claimed(envelope(2160), NOW - 2160, NOW, 900, longer) is Fate.HAND_OUT


def test_without_a_time_to_live_a_claim_still_ends() -> None:
    """3.5 d: only where TTL > 0."""
    assert of_claimed(envelope(3000), NOW - 3000, NOW, None, TIMES) is Fate.HAND_OUT
    assert of_claimed(envelope(3121), NOW - 3121, NOW, None, TIMES) is Fate.TIMED_OUT


def test_an_end_is_told_in_words_and_by_its_reason() -> None:
    """3.4.5: not delivered, the target, the time to live."""
    told = end_text(Fate.EXPIRED, envelope(901), 900)
    assert "Not delivered to @Ops on vps-1" in told
    assert "900 s" in told
    assert "do not send it again" in end_text(Fate.TIMED_OUT, envelope(1), 900)
    assert (Fate.EXPIRED.value, Fate.TIMED_OUT.value) == ("queued_expired", "delivery_timeout")
