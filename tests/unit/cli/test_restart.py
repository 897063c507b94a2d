"""Restarting in place: how often, and with which command line."""

import sys

import pytest

from angelia.cli.restart import GivingUp, Handover, command, may_restart


def test_a_hub_that_ran_for_a_while_restarts_at_once() -> None:
    waits: list[float] = []
    assert may_restart(Handover(3, 18900, 2), 10.0, waits.append) == 0
    assert may_restart(None, 0.5, waits.append) == 0  # it has not restarted yet
    assert waits == []


def test_quick_restarts_are_spaced_and_then_given_up() -> None:
    waits: list[float] = []
    handover = Handover(3, 18900, 0)
    for expected in (1, 2, 3):
        quick = may_restart(handover, 4.0, waits.append)
        assert quick == expected
        handover = Handover(3, 18900, quick)
    assert waits == [6.0, 6.0, 6.0]
    with pytest.raises(GivingUp, match="after 3 restarts"):
        may_restart(handover, 4.0, waits.append)


def test_a_handover_is_read_as_it_was_written() -> None:
    found = Handover.read(str(Handover(3, 18900, 2)))
    assert (found.descriptor, found.port, found.quick) == (3, 18900, 2)
    for nonsense in ("", "1:2", "a:b:c"):
        with pytest.raises(ValueError):  # noqa: PT011 - argparse asks for no more
            Handover.read(nonsense)


def test_what_was_meant_once_is_left_out_of_the_next_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["-m", "angelia", "up", "--detach", "--replace", "--port", "5", "--ready-fd=4", "--handover=3:5:1"]
    monkeypatch.setitem(vars(sys), "orig_argv", ["python", *words])
    assert command("--handover=3:5:2") == [sys.executable, "-m", "angelia", "up", "--port", "5", "--handover=3:5:2"]
