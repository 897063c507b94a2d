"""``message_agent`` without a hub: its checks, who is meant, and that every form offered leads to somebody."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from angelia.protocol.bot_relay_rows import Row
from angelia.protocol.message_agent import NotSent, Team, Teammate, body_of, find, queued, refused

OPS = Row("vps-1", "ops", "ops", "Rack 3", "Ops Bot", "nightly builds")
FAR_HERMES = Row("vps-1", "default", "hermes", "Rack 3", "Maia")
TWIN = Row("mac", "ops", "ops")
LOCAL = (Teammate("hermes"), Teammate("Scout", "News Desk"), Teammate("painter"), Teammate("human"))


def team(*remote: Row, me: str = "scout", local: tuple[Teammate, ...] = LOCAL, woken: bool = False) -> Team:
    return Team(me, woken, local, remote)


def no(target: object, of: Team) -> dict[str, object]:
    """What is told of a target that is refused."""
    with pytest.raises(NotSent) as refusal:
        find(target, of)
    assert "Nothing was sent" in str(refusal.value) or "nothing was queued" in str(refusal.value)
    return refusal.value.answer


# ---------------------------------------------------------------------------------------------------------- the message


def test_a_message_is_trimmed_and_else_as_it_was() -> None:
    assert body_of(" \n line one\n\ttwo  🐝 \0\x1b[31m\t\n") == "line one\n\ttwo  🐝 \0\x1b[31m"


@pytest.mark.parametrize("message", ["", " \n\t ", None, 7, ["x"], {}])
def test_a_message_of_nothing_is_refused(message: object) -> None:
    with pytest.raises(NotSent, match="empty"):
        body_of(message)


def test_16_000_characters_are_the_most_after_trimming_and_both_numbers_are_told() -> None:
    assert body_of("  " + "é" * 16_000 + "  ") == "é" * 16_000
    with pytest.raises(NotSent, match=r"16001 .*16000") as refusal:
        body_of("x" * 16_001)
    assert refusal.value.answer["reason"] == "too_large"


def test_half_a_character_is_refused() -> None:
    with pytest.raises(NotSent, match="surrogate"):
        body_of("cut\ud83d")


# --------------------------------------------------------------------------------------------------------- who is meant


@pytest.mark.parametrize(
    "target", ["painter", "@painter", " @@PAINTER ", "@ painter", "painter@local", "Painter@LOCAL"]
)
def test_somebody_here_is_found_in_every_spelling(target: str) -> None:
    assert find(target, team()) == ("painter", "@painter")


@pytest.mark.parametrize("target", ["hermes", "default", "@Default", "default@local"])
def test_hermes_and_default_are_one(target: str) -> None:
    assert find(target, team()).address == "hermes"


@pytest.mark.parametrize("target", ["News Desk", "news-desk", "newsdesk", "@NEWS DESK"])
def test_a_title_names_whoever_has_it_alone(target: str) -> None:
    assert find(target, team(me="painter")).address == "Scout"
    both = (*LOCAL, Teammate("other", "News  desk!"))
    assert no("news-desk", team(me="painter", local=both))["reason"] == "unknown"


def test_a_handle_goes_before_somebodys_title() -> None:
    local = (Teammate("liar", "painter"), *LOCAL)
    assert find("painter", team(local=local)).address == "painter"


def test_somebody_here_goes_before_somebody_elsewhere() -> None:
    assert find("ops", team(OPS, local=(*LOCAL, Teammate("ops")))).address == "ops"
    assert find("ops@vps-1", team(OPS, local=(*LOCAL, Teammate("ops")))) == ("ops@vps-1", "@ops on Rack 3")


@pytest.mark.parametrize("target", ["ops", "ops@vps-1", "OPS@VPS-1", "ops-bot", "opsbot", "ops-bot@vps-1"])
def test_somebody_elsewhere_is_found_by_name_connection_and_title(target: str) -> None:
    assert find(target, team(OPS, FAR_HERMES)) == ("ops@vps-1", "@ops on Rack 3")


def test_the_far_twin_is_reached_by_its_connection_and_by_nobody_but_its_twin_without() -> None:
    assert find("hermes@vps-1", team(FAR_HERMES)).address == "hermes@vps-1"
    assert find("default@vps-1", team(FAR_HERMES)).address == "hermes@vps-1"
    assert find("hermes", team(FAR_HERMES)).address == "hermes"
    assert find("hermes", team(FAR_HERMES, me="hermes")).address == "hermes@vps-1"


def test_of_two_with_one_handle_each_is_named_by_its_profile() -> None:
    one, other = Row("vps-1", "a", "ops"), Row("vps-1", "b", "ops")
    assert find("a@vps-1", team(one, other)).address == "a@vps-1"
    assert find("b", team(one, other)).address == "b@vps-1"


# ----------------------------------------------------------------------------------------------------------- who is not


@pytest.mark.parametrize("target", ["scout", "@Scout", "SCOUT@local"])
def test_nobody_writes_to_itself(target: str) -> None:
    answer = no(target, team())
    assert "yourself" in str(answer["error"])
    assert answer["reason"] == "unknown"


@pytest.mark.parametrize("target", ["", "  ", "@", "@@ ", None, 7])
def test_a_target_of_nobody_names_the_teammates(target: object) -> None:
    answer = no(target, team(OPS))
    assert answer["teammates"] == ["hermes", "human", "painter", "ops"]
    assert answer["peers"] == []


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("nobody", "no teammate 'nobody'"),
        ("ops@mars", "no teammate"),
        ("ops@", "no teammate"),
        ("@vps-1@ops", "no teammate"),
        ("two words", "invalid target"),
        ("*", "invalid target"),
        ("#room", "invalid target"),
        ("x" * 65, "invalid target"),
        ("everyone", "no teammate"),
        ("spark/ops", "No peer"),
        ("../../x", "No peer"),
        ("quota-bot", "no teammate"),
    ],
)
def test_a_target_that_leads_nowhere_says_why_and_who_there_is(target: str, told: str) -> None:
    answer = no(target, team(OPS))
    assert told in str(answer["error"])
    assert answer["reason"] == "unknown", "a name is no reason"
    assert answer["teammates"] == ["hermes", "human", "painter", "ops"]


def test_a_target_of_two_is_refused_with_forms_that_lead_to_each() -> None:
    answer = no("ops", team(OPS, TWIN))
    forms = answer["teammates"]
    assert isinstance(forms, list)
    assert all(f"@{form}" in str(answer["error"]) for form in forms)
    assert {find(form, team(OPS, TWIN)).address for form in forms} == {"ops@vps-1", "ops@mac"}


def test_who_is_known_to_be_offline_is_refused_and_who_is_not_is_written_to() -> None:
    answer = no("ops", team(OPS._replace(online=False)))
    assert answer["reason"] == "runtime_offline"
    assert "offline" in str(answer["error"])
    assert "@ops on Rack 3" in str(answer["error"])
    for online in (True, None):
        assert find("ops", team(OPS._replace(online=online))).address == "ops@vps-1"


NAMES = st.sampled_from(["ops", "a", "hermes", "scout", "desk", "human", "Ops-2"])
TITLES = st.sampled_from(["", "Ops", "a", "News Desk", "ops-", "hermes", "Ops 2"])
ROWS = st.lists(st.tuples(st.sampled_from(["vps", "mac"]), NAMES, NAMES, TITLES), unique_by=lambda r: r[:2], max_size=6)
HERE = st.lists(st.tuples(NAMES, TITLES), unique_by=lambda r: r[0].lower(), max_size=5)


@given(ROWS, HERE)
def test_whatever_there_is_every_form_leads_to_one_of_them_and_all_are_named(
    rows: list[tuple[str, str, str, str]], here: list[tuple[str, str]]
) -> None:
    remote = [Row(connection, profile, handle, "", title) for connection, profile, handle, title in rows]
    named = [(row.connection_id, name) for row in remote for name in {row.handle.lower(), row.profile.lower()}]
    assume(len(set(named)) == len(named))  # else Hermes itself cannot tell them apart
    local = [Teammate(*mate) for mate in here]
    found = Team("writer", False, local, remote)
    addresses = [find(form, found).address for form in found.forms()]
    assert len(set(addresses)) == len(addresses) == len(local) + len(remote)


# --------------------------------------------------------------------------------------------------------- what is told


def test_what_was_taken_is_queued_and_says_how_the_answer_comes() -> None:
    to = find("ops", team(OPS))
    assert queued("a" * 32, to, 1_790_000_000.9, woken=True) == {
        "status": "queued",
        "delivery_id": "a" * 32,
        "to": "@ops on Rack 3",
        "reply_delivery": "notification",
        "detail": "It is on the hub's disk and is handed over once @ops on Rack 3 is free. Its answer comes to you by "
        "itself, as a message of its own. Do not send it again.",
        "queued_at": 1_790_000_000,
    }
    poll = queued("a" * 32, to, 1.0, woken=False)
    assert poll["reply_delivery"] == "poll"
    assert f"angelia message {'a' * 32}" in str(poll["detail"])


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("mailbox_full", "mailbox_full"),
        ("too_large", "too_large"),
        ("hop_limit", "loop"),
        ("token_required", "unknown"),
    ],
)
def test_what_a_hub_refuses_keeps_its_words_and_gets_a_reason(code: str, reason: str) -> None:
    assert refused(code, "Because of quota-bot.") == {"error": "Because of quota-bot.", "reason": reason}


def test_what_may_have_been_taken_says_its_id() -> None:
    assert refused("outcome_unknown", "Who knows.", "b" * 32)["delivery_id"] == "b" * 32
