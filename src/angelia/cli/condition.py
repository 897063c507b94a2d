"""What ``angelia doctor`` has from the hub itself: what it says is wrong, as ``angelia status`` shows it.

What must stay true: nothing is looked for here that the hub does not say; what has a check of its own (the disk, each
connection) is not told twice; and whatever the hub may say one day is shown.
"""

from __future__ import annotations

from collections.abc import Iterator

from angelia.cli import session
from angelia.cli.checks import DOUBTFUL, OK, WRONG, Finding
from angelia.client.calls import Calls
from angelia.client.errors import ClientError
from angelia.client.find import Address
from angelia.settings import Settings

_ANSWER_SECONDS = 5.0
# What else the hub says is wrong says itself what to do about it.
_DAMAGE_MEND = (
    "whoever had sent mail among them was told; make a copy ({backup}), and have the disk and the memory of this "
    "machine looked at"
)

_BROKEN = ("could not be put right", "the store could not be read")  # what no hub gets over by itself


def condition(socket: Address, settings: Settings) -> Iterator[Finding]:
    """One finding for each problem; one in all where there is none."""
    try:
        with Calls(socket, answer_seconds=_ANSWER_SECONDS) as hub:
            status = hub.status()
    except ClientError as error:
        yield Finding("condition", WRONG, f"the hub does not say how it is: {error}", "look at the hub's log")
        return
    told = ("the disk is ", *(f"{name} " for name in status.get("connections") or ()))
    problems = [text for text in map(str, status.get("problems") or ()) if not text.startswith(told)]
    mend = _DAMAGE_MEND.format(backup=session.command(settings, "backup"))
    for text in problems:
        state = WRONG if any(words in text for words in _BROKEN) else DOUBTFUL
        yield Finding("condition", state, text, mend if "damaged row" in text else "")
    if not problems:
        yield Finding("condition", OK, "the hub knows of nothing that is wrong")
