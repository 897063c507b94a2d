"""A world for a plan that a test wrote down: what each request comes to, and a clock that only pauses move.

What must stay true: outcomes are used up in order, the last one again and again; every step is noted before it is
carried out. No socket, no file but what a plan's own disk work touches, and no waiting.
"""

import json
from collections.abc import Generator
from typing import Any

from angelia.client.core.posting import Post
from angelia.client.core.steps import Course, Disk, Exchange, Out, Pause, Shut, Step
from angelia.client.core.verbs import Verbs
from angelia.client.errors import ClientError, LostHub, NoHub, NotAHub, TimedOut

WHERE = "http://hub"
WALL = 1_790_000_000.0
Outcome = object  # (status, content), bytes, a Head … or a ClientError, which is thrown


def ok(data: object, status: int = 200) -> tuple[int, bytes]:
    return status, json.dumps(data).encode()


def no(status: int, code: str, **extra: object) -> tuple[int, bytes]:
    return ok({"type": "x", "title": "No", "status": status, "code": code, "detail": "Because.", **extra}, status)


def absent() -> ClientError:
    return NoHub(WHERE, "refused")


def lost(*, kept: bool = False) -> ClientError:
    return LostHub(WHERE, "reset", kept=kept)


def silent() -> ClientError:
    return TimedOut("the hub", 30)


def another() -> ClientError:
    return NotAHub(WHERE, "something else")


class Script:
    """What happens; ``steps`` are all that were asked for, ``now`` is the time by then."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.steps: list[Step] = []
        self.now = 0.0
        self._outcomes = list(outcomes)

    @property
    def exchanges(self) -> list[Exchange]:
        return [step for step in self.steps if isinstance(step, Exchange)]

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(step.content) for step in self.exchanges if step.content is not None]

    @property
    def pauses(self) -> list[float]:
        return [step.seconds for step in self.steps if isinstance(step, Pause)]

    def post(self, name: str | None = "scout", **more: Any) -> Post:
        given = {"answer_seconds": 30.0, "patience_seconds": 15.0, "draw": lambda: 1.0, **more}
        return Post(WHERE, name, now=lambda: self.now, wall=lambda: WALL + self.now, **given)

    def verbs(self, name: str | None = "scout", **more: Any) -> Verbs:
        return Verbs(self.post(name, **more))

    def next_outcome(self) -> Outcome:
        return self._outcomes.pop(0) if len(self._outcomes) > 1 else self._outcomes[0]

    def carry_out(self, step: Step) -> Outcome:
        self.steps.append(step)
        if isinstance(step, Pause):
            self.now += step.seconds
            return None
        if isinstance(step, Shut):
            return None
        if isinstance(step, Disk):
            return step.work()
        found = self.next_outcome()
        if isinstance(found, ClientError):
            raise found
        return found

    def items(self, plan: Generator[Step, Any, Any]) -> Generator[Any, None, Any]:
        """Play it; what it hands out, one at a time, and then what it returned."""
        course = Course(plan)
        step = course.next()
        while step is not None:
            outcome: Outcome = None
            trouble: ClientError | None = None
            if isinstance(step, Out):
                yield step.value
            else:
                try:
                    outcome = self.carry_out(step)
                except ClientError as error:
                    trouble = error
            step = course.next(outcome, trouble)
        return course.result

    def play(self, plan: Generator[Step, Any, Any]) -> Any:
        """Play one that hands nothing out; what it returned."""
        try:
            found = next(self.items(plan))
        except StopIteration as end:
            return end.value
        raise AssertionError(f"it handed out {found}")
