"""Carries plans out on asyncio: what ``calls.py`` does for the blocking client."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from angelia.client.core.steps import Course, Out, Step
from angelia.client.errors import ClientError

if TYPE_CHECKING:
    from angelia.client.core.steps import Plan

T = TypeVar("T")
CarryOut = Callable[[Step], Awaitable[object]]


async def handed_out(course: Course, carry_out: CarryOut) -> AsyncGenerator[Any, None]:
    """Carry a plan out, each step by ``carry_out``. Yields what it hands out; raises what it ended with."""
    try:
        step = course.next()
        while step is not None:
            outcome, trouble = None, None
            if isinstance(step, Out):
                yield step.value
            else:
                try:
                    outcome = await carry_out(step)
                except ClientError as error:
                    trouble = error
            step = course.next(outcome, trouble)
    finally:
        course.close()


async def carried_out(plan: Plan[T], carry_out: CarryOut) -> T:
    """Carry out a plan that hands nothing out; what it returned, or the error that it ended with."""
    course = Course(plan)
    async for value in handed_out(course, carry_out):
        raise AssertionError(f"this plan hands something out: {value}")
    result: T = course.result  # type: ignore[assignment]  # Course is for plans of every kind
    return result
