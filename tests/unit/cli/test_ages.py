"""Ages, as people read them."""

from datetime import UTC, datetime, timedelta

import pytest

from angelia.cli.ages import age, before


def stamp(**time: float) -> str:
    return (datetime.now(UTC) - timedelta(**time)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def test_ages() -> None:
    assert age(stamp(minutes=3.5)) == "3 min"
    assert age(stamp(seconds=0)) == "now"
    assert age(stamp(seconds=-100)) == "now"
    assert before(stamp(hours=2)) == "2 h ago"
    assert before(stamp(seconds=0)) == "just now"


@pytest.mark.parametrize("wrong", [None, "", "soon", 17, {}, "2026-13-40T00:00:00Z"])
def test_what_is_no_time(wrong: object) -> None:
    assert age(wrong) == ""
    assert before(wrong) == ""
