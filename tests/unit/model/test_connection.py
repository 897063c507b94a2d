"""A connection's name, its key, and whom each side sees."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angelia.model.address import RESERVED, check_handle
from angelia.model.connection import Away, Connection, Speaks, check_connection_name
from angelia.model.errors import BadName


def test_its_key_is_its_name_in_lower_case() -> None:
    assert Connection(name="Rack-1").id == "rack-1"


def test_where_nothing_is_said_mail_waits_and_everybody_is_seen() -> None:
    rack = Connection(name="rack")
    assert (rack.away, rack.speaks, rack.fixed, rack.hub, rack.key) == (Away.WAIT, Speaks.AUTO, False, None, None)
    assert rack.shares("ann")
    assert rack.accepts("Ann")


def test_limits_name_agents_in_any_case_and_each_way_for_itself() -> None:
    rack = Connection(name="rack", share=("ann",), accept=("ops", "dev"))
    assert [rack.shares(name) for name in ("ann", "ANN", "bob", "ops")] == [True, True, False, False]
    assert [rack.accepts(name) for name in ("ops", "Dev", "ann")] == [True, True, False]


def test_a_limit_to_nobody_is_no_limit_to_all() -> None:
    rack = Connection(name="rack", share=(), accept=())
    assert not rack.shares("ann")
    assert not rack.accepts("ops")


def test_the_variables_of_its_secrets_are_those_that_it_names() -> None:
    assert Connection(name="rack", user="ada", token_file="/t").secret_variables == set()
    assert Connection(name="rack", token_variable="T").secret_variables == {"T"}
    assert Connection(name="rack", user="ada", password_variable="P").secret_variables == {"P"}


@pytest.mark.parametrize(
    "name", [*sorted(RESERVED), "LOCAL", "Human", "", "a b", "x/y", "-x", "x" * 65, None, 7, ["x"]]
)
def test_what_is_no_name_of_a_connection(name: object) -> None:
    with pytest.raises(BadName):
        check_connection_name(name)


@given(st.one_of(st.text(max_size=70), st.integers(), st.none()))
def test_a_name_is_a_handle_that_is_not_reserved_and_nothing_else(name: object) -> None:
    try:
        kept = check_connection_name(name)
    except BadName:
        return
    assert kept == name == check_handle(name)
    assert kept.lower() not in RESERVED
