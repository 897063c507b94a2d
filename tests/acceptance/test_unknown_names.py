"""Names that nobody has: whoever asks for many of them holds nobody up, the owner on the Unix socket included."""

import json
import threading
import time

import pytest

from tests.acceptance.hub import MARGIN, Hub, hub
from tests.rigs.gateway import desktop

LETTERS = 61
NAMES, ROWS, RECIPIENTS = 500, 250, 1_000


def long_name(kind: str, number: int) -> str:
    return f"{kind}{number:04d}".ljust(LETTERS, "xyz"[number % 3])


def slowest_look(at: Hub, during: threading.Thread) -> float:
    """The longest that a look took while something else went on, and how long that was."""
    slowest = 0.0
    during.start()
    while during.is_alive():
        begun = time.monotonic()
        assert at.get("/health", admin=True).status == 200
        slowest = max(slowest, time.monotonic() - begun)
    during.join()
    return slowest


@pytest.mark.parametrize("known_by", ["their mail", "a roster"])
async def test_a_batch_to_a_thousand_unknown_names_holds_nobody_up(known_by: str) -> None:
    with hub() as at:
        if known_by == "their mail":
            drafts = [{"from": long_name("k", n), "to": "openclaw", "text": "x"} for n in range(NAMES)]
            assert at.post("/v1/messages", {"messages": drafts}).status == 200
        else:
            rows = [{"profile": long_name("r", n), "connection_id": "vps"} for n in range(ROWS)]
            async with desktop(at.port) as peer:
                assert (await peer.result("bot_relay.roster.sync", agents=rows))["count"] == ROWS
        batch = {"messages": [{"from": "eve", "to": long_name("u", n), "text": "x"} for n in range(RECIPIENTS)]}
        found: list[dict[str, object]] = []
        sending = threading.Thread(target=lambda: found.extend(at.post("/v1/messages", batch).json["outcomes"]))
        assert slowest_look(at, sending) < 0.25 * MARGIN
        assert {json.dumps(each["problem"]["code"]) for each in found} == {'"unknown_agent"'}  # type: ignore[index]
        assert len(found) == RECIPIENTS
