"""What becomes of queued envelopes: handed out, or ended with a reason."""

import pytest

from angelia.protocol.bot_relay_fates import Fate, end_text, of_queued
from angelia.protocol.bot_relay_mail import RelayEnvelope, new_envelope

NOW = 1_790_000_000


def envelope(age: int) -> RelayEnvelope:
    return new_envelope("f" * 32, NOW - age, ("default", "hermes"), ("vps-1", "ops", "Ops"), "hi")


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


def test_an_end_is_told_in_words_and_by_its_reason() -> None:
    """3.4.5: not delivered, the target, the time to live."""
    told = end_text(Fate.EXPIRED, envelope(901), 900)
    assert "Not delivered to @Ops on vps-1" in told
    assert "900 s" in told
    assert "do not send it again" in end_text(Fate.TIMED_OUT, envelope(1), 900)
    assert (Fate.EXPIRED.value, Fate.TIMED_OUT.value) == ("queued_expired", "delivery_timeout")
