"""Who may do what: the whole table, and the name that a caller acts as."""

import pytest

from angelia.bus.caller import ADMIN, MAY, OPEN, Caller, Rank, act_as, may
from angelia.model.address import RESERVED
from angelia.model.errors import AngeliaError, BadName, BadRequest, NotAllowed, NotYourName, TokenRequired

ANN = Caller(Rank.AGENT, "Ann")
LINK = Caller(Rank.LINK, "mac")
EVERYONE = {"open": OPEN, "agent": ANN, "link": LINK, "admin": ADMIN}

# Written out by hand, from wire.md section 4, so that the table cannot change unseen.
ALLOWED = {
    "look_at_agents": "open agent link admin",
    "send": "open agent admin",
    "read": "open agent admin",
    "settle": "open agent admin",
    "cancel": "open agent admin",
    "look_at_message": "open agent admin",
    "edit_own": "agent admin",
    "rotate_token": "agent admin",
    "put_agent": "admin",
    "put_adapter": "admin",
    "look_at_turns": "admin",
    "stop_turn": "admin",
    "remove_agent": "admin",
    "key_name": "admin",
    "person_lane": "admin",
    "dead_letters": "admin",
    "relay": "open link admin",
    "relay_deliver": "open agent link admin",
    "stop_hub": "admin",
    "back_up": "admin",
    "look_at_events": "admin",
    "look_at_connections": "open agent link admin",
    "connect": "admin",
}


def test_the_table_has_every_verb_and_no_other() -> None:
    assert set(MAY) == set(ALLOWED)


@pytest.mark.parametrize("who", EVERYONE)
@pytest.mark.parametrize("verb", ALLOWED)
def test_each_rank_may_do_what_the_table_says_and_nothing_else(verb: str, who: str) -> None:
    if who in ALLOWED[verb].split():
        may(EVERYONE[who], verb)
        return
    with pytest.raises(TokenRequired if who == "open" else NotAllowed):
        may(EVERYONE[who], verb)


def test_open_never_administers() -> None:
    for verb in ("put_agent", "remove_agent", "key_name", "person_lane", "dead_letters", "stop_hub", "edit_own"):
        assert Rank.OPEN not in MAY[verb]


def test_a_verb_that_is_not_in_the_table_is_a_fault_of_ours() -> None:
    with pytest.raises(KeyError):
        may(ADMIN, "fly")


@pytest.mark.parametrize(
    ("caller", "name", "keyed", "expected"),
    [
        (OPEN, "bob", False, ("bob", False)),
        (OPEN, None, False, BadRequest),
        (OPEN, "", False, BadName),
        (OPEN, "no name", False, BadName),
        (OPEN, "ann", True, TokenRequired),
        (ANN, None, True, ("Ann", True)),
        (ANN, "ANN", True, ("Ann", True)),
        (ANN, "bob", False, NotYourName),
        (ANN, "", False, NotYourName),
        (ANN, "human", False, NotYourName),
        (ADMIN, None, False, ("human", True)),
        (ADMIN, "HUMAN", False, ("human", True)),
        (ADMIN, "bob", False, ("bob", False)),
        (ADMIN, "ann", True, TokenRequired),
        (ADMIN, "no name", False, BadName),
        (LINK, "ann", True, TokenRequired),
    ],
)
def test_the_name_that_a_caller_acts_as(
    caller: Caller, name: str | None, keyed: bool, expected: tuple[str, bool] | type[AngeliaError]
) -> None:
    if isinstance(expected, tuple):
        assert act_as(caller, name, keyed=keyed) == expected
        return
    with pytest.raises(expected):
        act_as(caller, name, keyed=keyed)


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_nobody_acts_under_a_reserved_name(name: str) -> None:
    for caller in (OPEN, LINK) if name == "human" else (OPEN, LINK, ADMIN):
        with pytest.raises(BadName):
            act_as(caller, name.upper(), keyed=False)


def test_the_refusal_says_what_is_missing_and_quotes_no_more_than_a_name() -> None:
    with pytest.raises(BadRequest) as missing:
        act_as(OPEN, None, keyed=False, what="agent")
    assert "'agent' is missing" in missing.value.detail
    with pytest.raises(NotYourName) as wrong:
        act_as(ANN, "x" * 10_000, keyed=False)
    assert len(wrong.value.detail) < 200


def test_a_callers_mailbox_is_its_name_in_lower_case() -> None:
    assert (ANN.mailbox, OPEN.mailbox, ADMIN.mailbox) == ("ann", None, None)
