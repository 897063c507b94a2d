"""Ages, as people read them."""

from datetime import UTC, datetime, timedelta

import pytest

from angelia.cli.ages import age, before, between


def stamp(**time: float) -> str:
    return (datetime.now(UTC) - timedelta(**time)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def test_ages() -> None:
    assert age(stamp(minutes=3.5)) == "3 min"
    assert age(stamp(seconds=0)) == "now"
    assert age(stamp(seconds=-100)) == "now"
    assert before(stamp(hours=2)) == "2 h ago"
    assert before(stamp(seconds=0)) == "just now"


def test_how_long_something_took() -> None:
    assert between("2026-11-29T12:00:00.000Z", "2026-11-29T12:03:59.000Z") == "3 min"
    assert between("2026-11-29T12:00:00.000Z", "2026-11-29T12:00:00.400Z") == "now"


@pytest.mark.parametrize("wrong", [None, "", "soon", 17, {}, "2026-13-40T00:00:00Z"])
def test_what_is_no_time(wrong: object) -> None:
    assert age(wrong) == ""
    assert before(wrong) == ""
    assert between(wrong, stamp()) == between(stamp(), wrong) == ""
