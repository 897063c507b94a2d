"""The sums of rows: each bit of each column counts, and a row is what was written or it is nothing."""

from typing import Any

import pytest

from angelia.model.delivery import Delivery, Hand, State
from angelia.model.failure import Reason
from angelia.storage.sqlite.rows import Row, delivery_of, delivery_row, delivery_sum, is_right, summed
from tests.conformance.mail import NOW, delivery, envelope

ROW = delivery(envelope(7), 7)
FULL = ROW._replace(
    state=State.LEASED, hand=Hand.TURN, reason=Reason.RUNTIME_OFFLINE, connection="c", owes="o", to="Claude@x",
    late=True, attempt=3, used=2, leased_at=NOW, delivered_at=NOW, answered_at=NOW, ended_at=NOW,
)  # fmt: skip


def read_back(delivery: Delivery) -> Row:
    """As SQLite gives it: no enums, no bools."""
    row = delivery_row(7, delivery)
    plain = [int(value) if isinstance(value, int) else str(value) if isinstance(value, str) else value for value in row]
    return (*plain[1:3], delivery.message_id, *plain[3:])


def changes(value: Any) -> list[Any]:
    """What one bit makes of it."""
    if isinstance(value, int):
        return [value ^ 1 << bit for bit in range(47)]
    if isinstance(value, str):
        data = value.encode()
        flips = [
            data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :] for at in range(len(data)) for bit in range(7)
        ]
        return [each.decode() for each in flips]
    return [0, 1, "", "x", b""]


@pytest.mark.parametrize("whole", [ROW, ROW._replace(deferred=True), FULL])
def test_a_delivery_is_read_as_it_was_written_or_not_at_all(whole: Delivery) -> None:
    row = read_back(whole)
    assert delivery_of(row) == whole
    assert delivery_sum(*row[:-1]) == row[-1]
    for at, value in enumerate(row):
        for changed in changes(value):
            assert delivery_of((*row[:at], changed, *row[at + 1 :])) is None, (at, changed)


def test_any_other_row_ends_with_its_sum() -> None:
    row = summed("name", b"value", None, 7)
    assert is_right(row)
    for at, value in enumerate(row):
        for changed in changes(value) if not isinstance(value, bytes) else [b"valuf", b"", None, "value"]:
            assert not is_right((*row[:at], changed, *row[at + 1 :])), (at, changed)
