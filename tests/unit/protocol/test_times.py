"""Moments are written as RFC 3339 with milliseconds."""

import pytest

from angelia.protocol.times import rfc3339


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_800_000_000_007, "2027-01-15T08:00:00.007Z"),
        (1_800_000_000_999, "2027-01-15T08:00:00.999Z"),
        (951_782_400_000, "2000-02-29T00:00:00.000Z"),
    ],
)
def test_a_moment_is_rfc_3339_in_utc_with_milliseconds(milliseconds: int, text: str) -> None:
    assert rfc3339(milliseconds) == text
