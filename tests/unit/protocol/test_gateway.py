"""Codes and shapes of the gateway: what Hermes' gateways mean by them."""

from typing import Any

import pytest

from angelia.model.agent import Agent
from angelia.model.errors import (
    AngeliaError,
    AskCycle,
    BadRequest,
    DiskFull,
    LeaseLost,
    MailboxFull,
    OutcomeUnknown,
    RuntimeOffline,
    Stopping,
)
from angelia.model.failure import Reason
from angelia.protocol.gateway import Refusal, invalid, message_id, no_delivery, profiles, refusal_of, whole, word

# Hermes' thirteen and the two refusals of a delivery: what stands on its wire.
HERMES = {*list(Reason)[:13], Reason.TARGET_BUSY, Reason.TARGET_SESSION_LIVE}


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_code_and_a_word_that_hermes_knows(reason: Reason) -> None:
    found = no_delivery(reason, "said", 1500)
    assert found.code in (5092, 5093, 5094, 5096)
    assert found.data["reason"] in {str(known) for known in HERMES}
    assert found.data["deadline_seconds"] == 1500
    assert "said" in found.message


@pytest.mark.parametrize(
    ("reason", "code", "text"),
    [
        (Reason.PROVIDER_RATE_LIMIT, 5092, "delivery turn failed: said"),
        (Reason.UNKNOWN, 5092, "delivery turn failed: said"),
        (Reason.CANCELLED, 5092, "delivery turn failed: said"),
        (Reason.DELIVERY_TIMEOUT, 5093, "delivery turn timed out: said"),
        (Reason.OUTCOME_UNKNOWN, 5093, "delivery turn timed out: said"),
        (Reason.QUEUED_EXPIRED, 5094, "said"),
        (Reason.TARGET_BUSY, 5096, "said"),
    ],
)
def test_the_codes_are_hermes_own(reason: Reason, code: int, text: str) -> None:
    found = no_delivery(reason, "said", 1)
    assert (found.code, found.message) == (code, text)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MailboxFull("x", limit=3), "agent_blocked"),
        (AskCycle("x"), "agent_blocked"),
        (OutcomeUnknown("x"), "delivery_timeout"),
        (Stopping("x"), "runtime_offline"),
        (RuntimeOffline("x"), "runtime_offline"),
        (DiskFull("x"), "unknown"),
    ],
)
def test_what_the_hub_refuses_says_a_reason_too(error: AngeliaError, reason: str) -> None:
    for code in (5094, None):  # None: of a method of our own
        found = refusal_of(error, code)
        assert (found.code, found.data["reason"]) == (code or error.status, reason)
        assert found.data["code"] == error.code


def test_our_own_methods_fail_with_the_status_and_what_helps() -> None:
    found = refusal_of(LeaseLost("over", holder="claim"), None)
    assert (found.code, found.message, found.data) == (
        409,
        "over",
        {"code": "lease_lost", "holder": "claim", "reason": "unknown"},
    )
    assert invalid(4090, "x").data == {"reason": "invalid_params"}


def test_parameters_are_coerced_as_hermes_does_or_refused_by_name() -> None:
    params = {"a": " x ", "b": 7, "c": None, "d": ["x"], "e": True}
    assert [word(params, name) for name in "abcdef"] == ["x", "7", "", "", "", ""]
    assert (whole(params, "a"), whole(params, "c"), whole(params, "f")) == (" x ", None, None)
    with pytest.raises(Refusal) as refused:
        whole(params, "b")
    assert refused.value.code == -32602
    assert refused.value.message == "b is a string; here it is a number."
    assert refused.value.data == {"reason": "invalid_params"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "id is missing: it is a string"),
        ({"name": "up"}, "id is an object; it has to be a string"),
        ([None], "id is an array;"),
        (True, "id is true;"),
        (False, "id is false;"),
        (1.5, "id is a number;"),
    ],
)
def test_what_is_no_id_is_named_in_jsons_words(given: Any, said: str) -> None:
    with pytest.raises(BadRequest) as refused:
        message_id({"id": given})
    assert refused.value.detail.startswith(said)
    assert message_id({"id": "a" * 32}) == "a" * 32
    with pytest.raises(BadRequest):
        message_id({"id": "A" * 32})


def test_the_default_profile_comes_first_and_is_the_agent_hermes() -> None:
    agents = [
        Agent(handle=name, title=title, created_at=0, seen_at=0)
        for name, title in (("Zoe", ""), ("ann", "Ann Bot"), ("Hermes", "Maia"))
    ]
    found = profiles(agents)
    assert found["bot_mode_protocol"] is True
    rows = found["profiles"]
    assert isinstance(rows, list)
    shown = [(row["name"], row["handle"], row["is_default"], row["display_name"]) for row in rows]
    assert shown == [
        ("default", "Hermes", True, "Maia"),
        ("ann", "ann", False, "Ann Bot"),
        ("Zoe", "Zoe", False, ""),
    ]
    assert rows[0]["ui_meta"] == {"hermes-bots": {"title": "Maia"}}
    assert rows[2]["ui_meta"] == {}
