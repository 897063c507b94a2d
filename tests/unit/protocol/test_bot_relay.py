"""The fixed points of Hermes' relay: folder, times, sizes, and what a waiting sender is told."""

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
    read_lock_wait,
    read_ttl,
    relay_root,
    waiter_gave_up,
    waiter_label,
    waiter_output,
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


@pytest.mark.parametrize(
    ("setting", "seconds"),
    [(45, 45), (1.5, 1.5), ("30", 30), (0, 0), (-5, 0), (None, 120), ("soon", 120), ([], 120), ({}, 120), (True, 120),
     ("nan", 120), ("inf", 120), (10**400, 120)],
)  # fmt: skip
def test_the_lock_wait_of_a_configuration(setting: object, seconds: float) -> None:
    """9.3 turn_wait_seconds falls back / reads config."""
    assert read_lock_wait(setting) == seconds


@pytest.mark.parametrize(
    ("setting", "seconds"),
    [(60, 60), ("60", 60), (0, None), (-1, None), ("0", None), (None, 900), ("soon", 900), ([5], 900), (False, 900)],
)
def test_the_time_to_live_of_a_configuration(setting: object, seconds: float | None) -> None:
    """9.1 drain_ttl_zero_disables_expiry, invalid_ttl_config_falls_back."""
    assert read_ttl(setting) == seconds


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


# ---- what a waiting sender is told


@pytest.mark.parametrize(
    ("reply", "error", "reason", "text", "code"),
    [
        ("green", "", "", "Reply from @ops on vps-1:\ngreen\n", 0),
        ("", "", "", "Reply from @ops on vps-1:\n(empty reply)\n", 0),
        ("two\nlines", "", "", "Reply from @ops on vps-1:\ntwo\nlines\n", 0),
        ("", "it broke", "", "Delivery to @ops on vps-1 failed: it broke\n", 1),
        ("", "busy: …", "target_busy", "Delivery to @ops on vps-1 failed [reason: target_busy]: busy: …\n", 1),
    ],
)  # fmt: skip
def test_the_waiter_prints_what_wakes_the_sender(reply: str, error: str, reason: str, text: str, code: int) -> None:
    """9.1 waiter_prints_the_completion_notification_the_sender_wakes_on."""
    assert waiter_output(waiter_label("ops", "vps-1"), reply, error, reason) == (text, code)


def test_a_waiter_whose_time_is_over_warns_of_sending_again() -> None:
    """9.1 the fifth case: label, budget, and that it may still arrive."""
    text, code = waiter_gave_up(waiter_label("ops", "vps-1"), 3120.0)
    assert code == 1
    assert "@ops on vps-1" in text
    assert "3120s" in text
    assert "may still arrive" in text


def test_a_hostile_label_is_printed_as_it_is() -> None:
    """9.1 hostile_roster_fields_ride_as_argv_data: nothing of it is a format or a command."""
    hostile = waiter_label("{0} %s '; touch x #", '"), exec("')
    assert waiter_output(hostile, "hi", "", "")[0] == f"Reply from {hostile}:\nhi\n"
    assert hostile in waiter_gave_up(hostile, 1)[0]
