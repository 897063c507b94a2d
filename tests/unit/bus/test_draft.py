"""A draft names what nobody said: nothing is wanted, nothing is proved, and it has not crossed."""

from angelia.bus.draft import Draft
from angelia.model.envelope import Kind, Lane, Replay


def test_what_nobody_said_is_the_least() -> None:
    draft = Draft(sender="ops")
    assert (draft.verified, draft.crossing, draft.outcome, draft.intent, draft.id) == (False, None, False, None, None)
    assert (draft.kind, draft.lane, draft.replay) == (Kind.MESSAGE, Lane.NORMAL, Replay.ONCE)
