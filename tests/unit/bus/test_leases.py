"""Tokens that cannot be made up, and the book of who holds what."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angelia.bus.leases import Lease, LeaseBook, read_token, token_for
from angelia.model.delivery import Hand
from angelia.model.errors import UnknownMessage
from tests.fakes.small_hub import SmallHub

SECRET = bytes(range(32))
NUMBERS = st.integers(0, 1 << 62)


@given(NUMBERS, NUMBERS)
def test_a_token_names_its_delivery_and_attempt(key: int, attempt: int) -> None:
    assert read_token(SECRET, token_for(SECRET, key, attempt)) == (key, attempt)


@given(NUMBERS, NUMBERS, st.binary(min_size=32, max_size=32))
def test_a_token_of_another_store_is_none(key: int, attempt: int, secret: bytes) -> None:
    if secret != SECRET:
        with pytest.raises(UnknownMessage):
            read_token(SECRET, token_for(secret, key, attempt))


@given(st.text(max_size=80))
def test_no_text_that_was_made_up_is_a_token(text: str) -> None:
    with pytest.raises(UnknownMessage):
        read_token(SECRET, text)


@pytest.mark.parametrize(
    "change", [("7-1-", "7-2-"), ("7-1-", "8-1-"), ("7-1-", "07-1-"), ("7-1-", " 7-1-"), ("7-1-", "7-+1-")]
)
def test_a_token_that_was_changed_is_none(change: tuple[str, str]) -> None:
    with pytest.raises(UnknownMessage):
        read_token(SECRET, token_for(SECRET, 7, 1).replace(*change))


def test_a_token_is_the_same_after_a_restart() -> None:
    assert token_for(SECRET, 7, 1) == token_for(SECRET, 7, 1)


async def lease_on(hub: SmallHub, **more: Any) -> Lease:
    await hub.send()
    (parcel,) = await hub.take(hand=Hand.POLL)
    return Lease(parcel.delivery, Hand.CLAIM, since=0, ends=None, deadline=None, cap=None, **more)


async def test_the_book_knows_a_lease_by_its_attempt(hub: SmallHub) -> None:
    book, lease = LeaseBook(), await lease_on(hub)
    book.add(lease)
    assert book.get(lease.key, 1) is lease
    assert book.get(lease.key, 2) is None
    assert (book.holder(lease.key), len(book)) == (lease, 1)


async def test_the_end_of_an_old_attempt_leaves_the_new_one(hub: SmallHub) -> None:
    book, lease = LeaseBook(), await lease_on(hub)
    book.add(lease)
    book.drop(lease.key, 0)
    book.drop(lease.key + 1, 1)
    assert book.get(lease.key, 1) is lease
    book.drop(lease.key, 1)
    book.drop(lease.key, 1)
    assert (book.holder(lease.key), len(book)) == (None, 0)


async def test_a_newer_lease_replaces_an_older_one(hub: SmallHub) -> None:
    book, old = LeaseBook(), await lease_on(hub)
    new = replace(old, delivery=old.delivery._replace(attempt=2))
    book.add(old)
    book.add(new)
    assert (book.get(old.key, 1), book.get(old.key, 2)) == (None, new)


async def test_a_lease_that_is_dropped_takes_its_reminder_with_it(hub: SmallHub) -> None:
    await hub.send_all("1", "2")
    one, two = await hub.take()
    assert len(hub.bus.timers) == 2
    await hub.ack(one)
    assert len(hub.bus.timers) == 1
    await hub.nack(two, 0)
    assert len(hub.bus.timers) == 0
