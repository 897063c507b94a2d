"""The closed set of reasons, and what each becomes on Hermes' wire and for a reader."""

import pytest

from angelia.model.failure import PROSE, Reason, on_hermes_wire, prose

HERMES = {
    "runtime_offline", "queued_expired", "delivery_timeout", "agent_blocked", "cancelled", "provider_auth_or_access",
    "provider_quota_limit", "provider_rate_limit", "provider_server_error", "context_overflow", "missing_config",
    "model_unavailable", "unknown",
}  # fmt: skip
OURS = {
    "target_busy", "target_session_live", "attempts_used_up", "outcome_unknown", "too_large", "mailbox_full", "loop",
    "chain_budget",
}  # fmt: skip
# Hermes answers a busy target by these two words itself (hermes-relay.md), so they pass as they are.
PASSED_ON = {"target_busy", "target_session_live"}


def test_the_set_is_closed() -> None:
    assert {reason.value for reason in Reason} == HERMES | OURS


@pytest.mark.parametrize("reason", Reason)
def test_a_hermes_peer_hears_a_word_that_it_knows(reason: Reason) -> None:
    assert on_hermes_wire(reason) in HERMES | PASSED_ON


@pytest.mark.parametrize("word", sorted(HERMES))
def test_the_words_of_hermes_stay_as_they_are(word: str) -> None:
    assert on_hermes_wire(Reason(word)) == word


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_is_one_plain_sentence(reason: Reason) -> None:
    text = prose(reason)
    assert text[0].isupper()
    assert text.endswith(".")
    assert "_" not in text


def test_what_the_hub_itself_decides_is_told_in_words_of_its_own() -> None:
    assert {Reason.QUEUED_EXPIRED, Reason.DELIVERY_TIMEOUT, Reason.CANCELLED, Reason.ATTEMPTS_USED_UP} <= PROSE.keys()
