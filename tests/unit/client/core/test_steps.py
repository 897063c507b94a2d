"""Steps and the course of a plan."""

from collections.abc import Generator
from typing import Any

import pytest

from angelia.client.core.steps import Course, Exchange, Out, Pause, Read, Shut, Step
from angelia.client.errors import ClientError


def test_steps_that_ask_for_the_same_are_equal() -> None:
    one = Exchange("GET", "/", None, {}, 1.0)
    assert one == Exchange("GET", "/", None, {}, 1.0)
    assert one != Exchange("GET", "/", None, {}, 2.0)
    assert Pause(1.0) != Out(1.0)
    assert Read() == Read() != Shut()
    assert len({one, Exchange("GET", "/", None, {}, 1.0)}) == 1
    assert repr(Pause(1.5)) == "Pause(1.5,)"


def plan() -> Generator[Step, Any, str]:
    try:
        got = yield Pause(1.0)
    except ClientError:
        got = "trouble"
    yield Out(got)
    return "end"


def test_a_plan_is_sent_what_its_step_came_to() -> None:
    course = Course(plan())
    assert course.next() == Pause(1.0)
    assert course.next("fine") == Out("fine")
    assert course.next() is None
    assert course.result == "end"


def test_a_plan_is_thrown_what_its_step_ended_with() -> None:
    course = Course(plan())
    course.next()
    assert course.next(None, ClientError()) == Out("trouble")


def test_what_a_plan_does_not_catch_comes_out() -> None:
    course = Course(plan())
    course.next()
    course.next()
    with pytest.raises(ClientError):
        course.next(None, ClientError())


def test_a_plan_that_is_closed_is_over() -> None:
    course = Course(plan())
    course.next()
    course.close()
    assert course.next() is None
