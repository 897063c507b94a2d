"""A question that waits under a token ends when that is revoked, as all does that lasts (`test_tokens.py`).

What was asked stays asked: the call ends, and the answer waits in the mailbox for whoever has a good token of its name.
"""

import http.client
import time
from concurrent.futures import ThreadPoolExecutor

from tests.acceptance.hub import MARGIN, Answer, hub

REVOKED_SECONDS = 1.0


def test_a_question_that_waits_ends_within_a_second_of_its_tokens_revocation() -> None:
    with hub() as at, ThreadPoolExecutor(2) as pool:

        def asks(token: str) -> tuple[Answer | None, float]:
            """What it was answered with, None where it was cut off; and when that was."""
            body = {"to": "hermes", "text": "well?", "wait_seconds": 60}
            try:
                answer = at.call("POST", "/v1/ask", body, token=token, seconds=90)
            except (OSError, http.client.HTTPException):
                return None, time.monotonic()
            return answer, time.monotonic()

        at.claim("hermes")
        made, new = (at.post("/v1/agents/asker/token", {}, admin=True).json for _ in range(2))
        beside = at.post("/v1/agents/beside/token", {}, admin=True).json
        asked, other = pool.submit(asks, made["token"]), pool.submit(asks, beside["token"])
        first, second = (at.claim("hermes", wait_seconds=30)[0] for _ in range(2))  # so that both are asked by now
        if first["message"]["from"] == "beside":
            first, second = second, first
        time.sleep(0.2)  # and both wait: what has committed begins to, within a turn of the hub's loop
        assert not asked.done()

        assert at.call("DELETE", f"/v1/agents/asker/token/{made['id']}", admin=True).status == 200
        begun = time.monotonic()
        answer, ended = asked.result(90)
        assert ended - begun < REVOKED_SECONDS * MARGIN
        assert answer is None
        assert not other.done()  # another token's goes on

        for held, text in ((first, "too late"), (second, "in time")):
            reply = {"from": "hermes", "text": text}
            assert at.post(f"/v1/messages/{held['message']['id']}/reply", reply).status == 201
        answer, _ = other.result(10 * MARGIN)
        assert answer is not None
        assert (answer.status, answer.json["reply"]["text"]) == (200, "in time")
        taken = at.post("/v1/agents/asker/claim", {"wait_seconds": 10}, token=new["token"]).json["deliveries"]
        assert [each["message"]["text"] for each in taken] == ["too late"]


def test_whoever_asked_as_an_open_name_hears_no_answer_once_it_is_keyed() -> None:
    with hub() as at, ThreadPoolExecutor(1) as pool:
        at.claim("hermes")
        body = {"from": "open", "to": "hermes", "text": "well?", "wait_seconds": 60}
        asking = pool.submit(lambda: at.post("/v1/ask", body, seconds=90))
        [held] = at.claim("hermes", wait_seconds=30)
        time.sleep(0.2)  # and waits
        token = at.post("/v1/agents/open/token", {}, admin=True).json["token"]
        begun = time.monotonic()
        assert asking.result(90).code == "token_required"
        assert time.monotonic() - begun < REVOKED_SECONDS * MARGIN
        reply = {"from": "hermes", "text": "too late"}
        assert at.post(f"/v1/messages/{held['message']['id']}/reply", reply).status == 201
        [taken] = at.post("/v1/agents/open/claim", {"wait_seconds": 10}, token=token).json["deliveries"]
        assert taken["message"]["text"] == "too late"
