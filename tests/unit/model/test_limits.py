"""Bounds that hang together: a limit that waits on another follows it."""

from dataclasses import FrozenInstanceError, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angelia.model.limits import DAY, Limits, nack_delay


@pytest.mark.parametrize(("used", "seconds"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 32), (7, 60), (8, 60)])
def test_nacks_wait_one_two_four_up_to_sixty_seconds(used: int, seconds: int) -> None:
    assert nack_delay(used) == seconds


@given(st.integers(-10, 10_000))
def test_a_nack_always_waits_and_never_for_more_than_a_minute(used: int) -> None:
    assert 1 <= nack_delay(used) <= 60


@given(st.integers(0, 60 * DAY))
def test_a_retry_is_known_for_a_day_at_least(keep: int) -> None:
    limits = Limits(settled_keep_seconds=keep)
    assert limits.idempotency_seconds >= max(keep, DAY)


def test_what_must_fit_into_another_does() -> None:
    limits = Limits()
    assert limits.text_bytes + limits.body_bytes <= limits.request_bytes <= limits.batch_bytes
    assert limits.text_bytes <= limits.stream_window_bytes <= limits.claim_bytes <= limits.mailbox_bytes
    assert limits.mailbox_deliveries_per_sender <= limits.mailbox_deliveries
    assert limits.request_bytes <= limits.mailbox_bytes_per_sender == limits.mailbox_bytes // 4
    assert limits.manual_window_deliveries <= limits.stream_window_deliveries <= limits.claim_deliveries
    assert limits.streams_per_agent <= limits.streams
    assert limits.lease_min_seconds <= limits.lease_seconds <= limits.lease_max_seconds <= limits.lease_total_seconds
    assert limits.ttl_min_seconds <= limits.ttl_seconds <= limits.ttl_max_seconds
    assert limits.replay_seconds <= limits.settled_keep_seconds
    assert limits.turn_attempts <= limits.reader_attempts


@given(st.integers(1, 100_000), st.integers(1, 1 << 30))
def test_a_tenth_of_a_mailbox_is_kept_from_senders_without_proof(count: int, size: int) -> None:
    limits = Limits(mailbox_deliveries=count, mailbox_bytes=size)
    assert count * 9 <= limits.mailbox_deliveries_unproved * 10 < count * 9 + 10
    assert size * 9 <= limits.mailbox_bytes_unproved * 10 < size * 9 + 10


def test_limits_cannot_be_changed_while_the_hub_runs() -> None:
    with pytest.raises(FrozenInstanceError):
        Limits().streams = 1  # type: ignore[misc]


def test_every_time_says_in_its_name_that_it_is_in_seconds() -> None:
    times = [field.name for field in fields(Limits) if isinstance(field.default, float)]
    assert times
    assert [name for name in times if not name.endswith("_seconds")] == []


def test_every_bound_is_above_zero() -> None:
    assert [field.name for field in fields(Limits) if not getattr(Limits(), field.name) > 0] == []
