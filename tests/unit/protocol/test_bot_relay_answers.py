"""What a gateway of Hermes answers to a relay, whatever it answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angelia.model.failure import Reason
from angelia.protocol.bot_relay_answers import agents, envelopes, reply_text, why
from angelia.protocol.bot_relay_mail import BadEnvelope, RelayEnvelope

ID = "0123456789abcdef0123456789abcdef"
ENVELOPE = {"id": ID, "target_connection": "desk", "target_profile": "ann", "message": "hi", "created_at": 1790000000}
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


# ----------------------------------------------------------------------------------------------------------- its agents


def test_a_profile_is_a_row_under_its_own_handle() -> None:
    """Explicit handle, else ``hermes`` for the default profile, else the profile's name."""
    found = agents(
        {
            "profiles": [
                {"name": "default", "description": "house  bot", "ui_meta": {"hermes-bots": {"title": "Maia"}}},
                {"name": "ops", "display_name": "Ops Bot"},
                {"name": "zed", "handle": "@zed-the-bot"},
            ]
        },
        "Rack 3",
    )
    assert found is not None
    assert [(row.connection_id, row.profile, row.handle, row.title) for row in found] == [
        ("local", "default", "hermes", "Maia"),
        ("local", "ops", "ops", "Ops Bot"),
        ("local", "zed", "zed-the-bot", ""),
    ]
    assert (found[0].description, found[0].connection_label, found[0].online) == ("house bot", "Rack 3", True)


@pytest.mark.parametrize("flag", [True, 1, "yes", "on"])
def test_a_private_agent_is_left_out_wherever_it_says_so(flag: object) -> None:
    profiles = [
        {"name": "a", "private": flag},
        {"name": "b", "private": "no", "ui_meta": {"hermes-bots": {"private": flag}}},
    ]
    assert agents({"profiles": [*profiles, {"name": "c", "private": "no"}]}, "x") == (
        agents({"profiles": [{"name": "c"}]}, "x")
    )


def test_a_gateway_without_agents_is_not_one_that_said_nothing() -> None:
    assert agents({"profiles": []}, "x") == ()
    nothing: tuple[object, ...] = (None, {}, [], {"profiles": {}}, "no")
    assert [agents(answer, "x") for answer in nothing] == [None] * 5


# ----------------------------------------------------------------------------------------------------------- its outbox


def test_each_envelope_is_judged_by_itself_and_whoever_has_an_id_can_be_answered() -> None:
    found = envelopes({"envelopes": [7, {**ENVELOPE, "created_at": ["no", "time"]}, ENVELOPE, "no"]})
    assert [type(each) for each in found] == [BadEnvelope, BadEnvelope, RelayEnvelope, BadEnvelope]
    assert [each.id for each in found] == [None, ID, ID, None]


def test_an_answer_without_a_list_holds_nothing() -> None:
    assert [envelopes(answer) for answer in (None, {}, {"envelopes": None}, {"envelopes": {"a": 1}})] == [[]] * 4


def test_a_reply_is_kept_to_the_letter() -> None:
    assert reply_text({"reply": "  so \n"}) == "  so \n"
    silent: tuple[object, ...] = ({}, {"reply": None}, [], {"reply": ["x"]})
    assert [reply_text(answer) for answer in silent] == [""] * 4


@given(ANYTHING)
def test_whatever_it_answers_is_never_an_error(answer: object) -> None:
    agents({"profiles": answer}, "x")
    agents(answer, "x")
    envelopes({"envelopes": answer})
    reply_text(answer)


# -------------------------------------------------------------------------------------------------------------- reasons


@pytest.mark.parametrize(
    ("code", "data", "reason"),
    [
        (5092, {"reason": "provider_rate_limit"}, Reason.PROVIDER_RATE_LIMIT),
        (5096, {"reason": "target_session_live"}, Reason.TARGET_SESSION_LIVE),
        (5096, {}, Reason.TARGET_BUSY),
        (5093, {}, Reason.DELIVERY_TIMEOUT),
        (5093, {"reason": "unknown"}, Reason.DELIVERY_TIMEOUT),
        (4091, {}, Reason.TOO_LARGE),
        (4092, {"reason": "unknown_profile"}, Reason.RUNTIME_OFFLINE),
        (-32601, {}, Reason.MISSING_CONFIG),
        (5092, {"reason": "unknown"}, Reason.UNKNOWN),
        (5092, {"reason": "a word of tomorrow"}, Reason.UNKNOWN),
        (5092, {"reason": 7}, Reason.UNKNOWN),
        (5092, {}, None),
        (5094, {"reason": None}, None),
    ],
)
def test_a_refusal_says_why_by_its_word_or_its_code(code: int, data: dict[str, object], reason: Reason | None) -> None:
    """#113532: busy and time-outs reach the sender as unknown."""
    assert why(code, data) is reason
