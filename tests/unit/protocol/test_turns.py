"""Turns as they go over the wire."""

import json

from angelia.protocol.json import encode
from angelia.protocol.turns import CheckOut, TurnOut, TurnsOut


def test_what_is_not_there_is_left_out_of_a_turn_and_the_sender_is_called_from() -> None:
    turn = TurnOut(
        id="a", agent="scout", from_="ann", thread="a", kind="command", attempt=1, since="now", state="running"
    )
    assert json.loads(encode(TurnsOut(turns=[turn], running=1))) == {
        "turns": [
            {"id": "a", "agent": "scout", "from": "ann", "thread": "a", "kind": "command", "attempt": 1,
             "since": "now", "state": "running"}
        ],
        "running": 1,
    }  # fmt: skip


def test_a_check_says_what_it_did_not_find() -> None:
    seen = CheckOut(kind="command", program=None, version=None, ways=[], problem="no such program", notes=[])
    assert json.loads(encode(seen))["program"] is None
