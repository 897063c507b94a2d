"""The fixed points of Hermes' relay: folder, times and sizes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angelia.protocol.bot_relay import (
    BODY_CHARS,
    TEXT_CHARS,
    Times,
    fits,
    handle_of,
    profile_of,
    relay_root,
)
from angelia.protocol.prompt import HEADER, HEADER_CHARS, attribution

SECONDS = st.floats(min_value=0, max_value=10_000)


# ---- the folder


@pytest.mark.parametrize(
    ("home", "root"),
    [
        (None, "/home/u/.hermes"),
        ("", "/home/u/.hermes"),
        ("/home/u/.hermes", "/home/u/.hermes"),
        ("/home/u/.hermes/", "/home/u/.hermes"),
        ("/home/u/.hermes/profiles/ops", "/home/u/.hermes"),
        ("/home/u/.hermes/profiles/ops/", "/home/u/.hermes"),
        ("/home/u/.hermes/dev", "/home/u/.hermes/dev"),
        ("/home/u/.hermes/my-profiles/ops", "/home/u/.hermes/my-profiles/ops"),
        ("/home/u/.hermes/Profiles/ops", "/home/u/.hermes/Profiles/ops"),
        ("/home/u/profiles", "/home/u/profiles"),
        ("/profiles/ops", "/"),
        ("profiles/ops", "."),
        ("/", "/"),
    ],
)
def test_writer_and_drainer_find_one_folder_for_every_home(home: str | None, root: str) -> None:
    """9.2 gateway_drains_the_mailbox_the_tools_write_to: the roots agree for profiles/ops and for dev."""
    assert relay_root(home, "/home/u") == root


@pytest.mark.parametrize("name", ["hermes", "Hermes", "HERMES"])
def test_hermes_in_any_case_is_the_default_profile(name: str) -> None:
    """9.2 deliver_validates_profile: `hermes` ⇒ default; any other name stays as it is, to the letter."""
    assert profile_of(name) == "default"
    assert profile_of("Ops") == "Ops"
    assert handle_of("default") == "hermes"
    assert handle_of("ops") == "ops"


# ---- the times


def test_the_times_are_those_of_hermes() -> None:
    """3.1: 600, 2 and 120 make 1320, 1500, 1560 and 3120."""
    times = Times()
    assert (times.work_seconds, times.deliver_seconds, times.reoffer_seconds, times.waiter_seconds) == (
        1320, 1500, 1560, 3120,
    )  # fmt: skip


@given(SECONDS, st.integers(1, 5), SECONDS)
def test_whoever_waits_outlives_what_it_waits_for(turn: float, attempts: int, lock_wait: float) -> None:
    """9.1 waiter_outlives_the_desktop_deliver_deadline, 10.2 and 10.9: also when a limit is set otherwise."""
    times = Times(turn, attempts, lock_wait)
    assert times.waiter_seconds > times.reoffer_seconds + times.deliver_seconds
    assert times.reoffer_seconds > times.deliver_seconds > times.work_seconds
    assert times.work_seconds >= lock_wait + attempts * turn


# ---- the sizes


def test_a_legal_body_goes_through_however_long_the_names_are() -> None:
    """11.6: 16,000 characters of body were refused where the names took more than 200."""
    body = "x" * BODY_CHARS
    assert fits(f"{HEADER}{'n' * 800} (@{'h' * 64}@{'c' * 64}): {body}")
    assert fits(attribution("n" * 900, "h" * 64, "c" * 64) + body)
    assert HEADER_CHARS == TEXT_CHARS - BODY_CHARS


def test_a_longer_body_does_not_go_through() -> None:
    """7.3 4091: more than 16,200 in all, unless the header alone is what is too long."""
    assert fits("x" * TEXT_CHARS)
    assert not fits("x" * (TEXT_CHARS + 1))
    assert not fits(f"{HEADER}{'n' * 900} (@ops): " + "x" * (BODY_CHARS + 1))
    assert not fits(HEADER + "x" * TEXT_CHARS + " (@ops): hi")
