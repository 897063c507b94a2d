"""The closed set of reasons: what a program's output is read as, what may be tried again, what a reader is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angelia.model.failure import (
    Reason,
    Retry,
    classify,
    classify_output,
    on_hermes_wire,
    prose,
    read_reason,
    reason_of,
    retry_after,
)

HERMES = {
    "runtime_offline", "queued_expired", "delivery_timeout", "agent_blocked", "cancelled", "provider_auth_or_access",
    "provider_quota_limit", "provider_rate_limit", "provider_server_error", "context_overflow", "missing_config",
    "model_unavailable", "unknown",
}  # fmt: skip
OURS = {
    "target_busy", "target_session_live", "attempts_used_up", "outcome_unknown", "too_large", "mailbox_full", "loop",
    "chain_budget", "damaged", "connection_gone", "question_unknown",
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
    assert text.count(". ") == 0
    assert "It failed:" not in text


# ---- what a foreign program printed

ACCESS, MONEY, RATE = Reason.PROVIDER_AUTH_OR_ACCESS, Reason.PROVIDER_QUOTA_LIMIT, Reason.PROVIDER_RATE_LIMIT
SERVER, OVERFLOW = Reason.PROVIDER_SERVER_ERROR, Reason.CONTEXT_OVERFLOW
CONFIG, MODEL, UNKNOWN = Reason.MISSING_CONFIG, Reason.MODEL_UNAVAILABLE, Reason.UNKNOWN

TABLE = [
    ("error code 403: you may not", ACCESS),
    ("INVALID API KEY", ACCESS),
    ("type=authentication_error", ACCESS),
    ("Status: 401 Unauthorized", ACCESS),
    ("HTTP 402: pay first", MONEY),
    ("your balance is too small", MONEY),
    ("you went over this month's Quota", MONEY),
    ("status code 429", RATE),
    ("ratelimit", RATE),
    ("rate_limit_exceeded", RATE),
    ("Rate-Limit reached for this model", RATE),
    ("http:503 try later", SERVER),
    ("error code: 529", SERVER),
    ("internal server error", SERVER),
    ("server_error", SERVER),
    ("ServerError", SERVER),
    ("the engine is Overloaded", SERVER),
    ("Context length exceeded (8000 tokens)", OVERFLOW),
    ("the maximum context of this model is 8000", OVERFLOW),
    ("context_overflow", OVERFLOW),
    ("No LLM provider configured, run setup", CONFIG),
    ("missing config: provider", CONFIG),
    ("no access token for that login", CONFIG),
    ("Model 'x-9' was not found", MODEL),
    ("the model `x` at this provider does not exist", MODEL),
    ("model_not_found", MODEL),
    # A bare number is no status, and a longer number is another number.
    ("took 429 ms", UNKNOWN),
    ("error at line 502", UNKNOWN),
    ("exit code 401", UNKNOWN),
    ("status 4290", UNKNOWN),
    ("http 4011", UNKNOWN),
    ("error code 4020", UNKNOWN),
    ("http 5000", UNKNOWN),
    ("rate -- limit", UNKNOWN),
    ("the model was fine, the file was lost", UNKNOWN),
    ("who knows", UNKNOWN),
    ("", UNKNOWN),
    (None, UNKNOWN),
]


@pytest.mark.parametrize(("text", "reason"), TABLE)
def test_a_text_is_read_as_the_reason_that_it_speaks_of(text: str | None, reason: Reason) -> None:
    """9.4 the table of classifications."""
    assert classify(text) is reason


def test_a_refused_key_is_no_empty_purse_though_its_text_speaks_of_funds() -> None:
    """9.4 auth beats quota: on a whole body, and on the bare word of its type."""
    body = "Error code: 401 - {'error': {'type': 'authentication_error', 'message': 'key is blocked or out of funds'}}"
    assert classify(body) is ACCESS
    assert classify("authentication_error: this account is out of funds") is ACCESS
    assert classify("this account is out of funds") is MONEY


def test_what_the_setup_lacks_is_told_as_that() -> None:
    """9.4 no provider and no token are missing_config."""
    assert classify("agent init failed: No LLM provider configured. Run the setup.") is CONFIG
    assert classify("agent init failed: No access token found for the login.") is CONFIG


def test_the_cause_is_found_beside_the_bookkeeping_of_every_run() -> None:
    """10.23 and 9.4 the realistic layout: prose on standard output, bookkeeping on standard error, far more than 500
    characters of it. Both streams whole, output first."""
    stdout = "API call failed after 3 retries: HTTP 429: Rate limit reached\n"
    stderr = "session_id: 0123456789\n" * 200
    assert classify(stderr) is UNKNOWN
    assert classify_output(stdout + stderr, ["hermes"]) is RATE


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("delivery to @quota-bot failed: exit 1", ["quota-bot"]),
        ("delivery to @ops on balance-1 failed", ["ops", "balance-1"]),
        ("cannot open hermes_quota-bot.log", ["quota-bot"]),
        ("@QUOTA-BOT is gone", ["quota-bot"]),
        ("@server error: exit 1", ["server"]),
        ("Rate Limit Watcher has crashed", ["Rate Limit Watcher"]),
        ("status ops429 429", ["ops429"]),
        ("status x 429", ["x"]),
        ("rate x limit", ["x"]),
        ("ratequotalimit", ["quota"]),
        ("Ops Quota Bot is gone", ["ops", "Ops Quota Bot"]),
        ("@overloaded and @overloaded-2 are gone", ["overloaded", "overloaded-2"]),
        ("(a+) quota (a+)", ["(a+) quota (a+)"]),
    ],
)
def test_a_name_is_never_taken_for_a_cause(text: str, names: list[str]) -> None:
    """11.1 a target called quota-bot or a connection called balance-1 has not run out of money."""
    assert classify_output(text, names) is UNKNOWN


def test_taking_names_out_leaves_the_true_cause() -> None:
    """11.1 the cause beside such a name is still found, and a short name does not tear words apart."""
    assert classify_output("@quota-bot: HTTP 429: slow down", ["quota-bot"]) is RATE
    assert classify_output("@e: rate limit, context length", ["e", "", " ", "l"]) is RATE


@pytest.mark.parametrize("piece", ["model ", "status ", "status code: ", "rate", "http ", "\n", "model_not_foun"])
@pytest.mark.timeout(20)  # linear work takes a tenth of a second, quadratic work hours
def test_a_long_output_is_read_in_one_pass(piece: str) -> None:
    assert classify(piece * (1_000_000 // len(piece))) is UNKNOWN
    assert classify(piece * 1_000 + "model x\nnot found") is UNKNOWN
    assert classify(piece * 1_000 + "\nthe model x is not found") is MODEL


@given(st.text() | st.none(), st.lists(st.text(max_size=8), max_size=5))
def test_any_output_and_any_names_have_a_reason(text: str | None, names: list[str]) -> None:
    assert classify_output(text, names) in Reason
    assert classify_output(text, []) is classify(text)


@given(st.sampled_from([text for text, _ in TABLE if text]))
def test_a_text_that_is_nothing_but_a_name_speaks_of_nothing(text: str) -> None:
    assert classify_output(f"@{text} is gone", [text]) is UNKNOWN


# ---- errors


class Refused(Exception):
    """An error with a reason, which may be anybody's."""

    def __init__(self, text: str, reason: object = None) -> None:
        super().__init__(text)
        self.reason = reason


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Refused("target_busy: wait", Reason.TARGET_BUSY), Reason.TARGET_BUSY),
        (Refused("…", "queued_expired"), Reason.QUEUED_EXPIRED),
        (Refused("HTTP 429: slow down", "CERTIFICATE_VERIFY_FAILED"), RATE),
        (Refused("it broke", OSError("quota")), UNKNOWN),
        (TimeoutError(), Reason.DELIVERY_TIMEOUT),
        (RuntimeError("HTTP 401: no"), ACCESS),
        (RuntimeError("it broke"), UNKNOWN),
        (RuntimeError("@quota-bot broke"), UNKNOWN),
    ],
)
def test_every_refusal_has_a_reason_of_the_set(error: BaseException, reason: Reason) -> None:
    """9.2 PR #114955, 10.8: busy, timeout, classifiable, unclassifiable, a reason outside and inside the vocabulary."""
    assert reason_of(error, ["quota-bot"]) is reason


# ---- what may be tried again

TRANSIENT = {Reason.RUNTIME_OFFLINE, Reason.DELIVERY_TIMEOUT, RATE, SERVER}


@pytest.mark.parametrize("reason", Reason)
def test_only_what_passes_by_itself_is_tried_again(reason: Reason) -> None:
    """9.4 the policy is total over the set: the transient resume, an overflow is compressed first, nothing else."""
    expected = Retry.RESUME if reason in TRANSIENT else Retry.NONE
    assert retry_after(reason) is (Retry.COMPRESS_THEN_RESUME if reason is OVERFLOW else expected)


@pytest.mark.parametrize("word", ["", "nonsense", "Rate limit", "RESUME"])
def test_an_unknown_word_is_never_tried_again(word: str) -> None:
    """9.4 an empty or unknown reason."""
    assert retry_after(word) is Retry.NONE


def test_from_a_text_alone_only_three_classes_are_run_again() -> None:
    """9.4: rate limit, server error and overflow; a refused key and a missing setup never are."""
    again = {classify(text) for text, _ in TABLE if retry_after(classify(text)) is not Retry.NONE}
    assert again == {RATE, SERVER, OVERFLOW}


# ---- words from outside


@pytest.mark.parametrize("reason", Reason)
def test_a_word_of_the_set_is_read_as_it_is_written(reason: Reason) -> None:
    assert read_reason(f" {reason.value} ") is reason


@pytest.mark.parametrize(
    "word", ["", "Unknown", "CERTIFICATE_VERIFY_FAILED", None, 5, True, ["unknown"], {"a": 1}, b"x"]
)
def test_any_other_word_is_unknown(word: object) -> None:
    """9.2 PR #114955: a reason outside the vocabulary (other libraries' errors have one, too) is not passed on."""
    assert read_reason(word) is UNKNOWN
