"""Who is meant by a target, by which form an agent is shown, and who is known to be offline."""

from collections.abc import Sequence
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angelia.protocol.bot_relay_rows import Row, normalise
from angelia.protocol.bot_relay_targets import (
    RESERVED_SLUGS,
    Ambiguous,
    ambiguous_text,
    forms,
    offline_text,
    online,
    resolve,
    slugs,
)

OPS = Row("vps-1", "ops", "ops", title="Ops Bot")
CLOUD = Row("cloud-1", "default", "hermes", title="CoS Bot")
LAB = Row("lab", "default", "hermes")
NIGHT = Row("lab", "nightly", "Night")
FEW = ["ops", "hermes", "default", "maia", "cos-bot", "cosbot", "Ops"]
ROSTERS = st.lists(
    st.fixed_dictionaries(
        {
            "connection_id": st.sampled_from(["a", "b", "cloud-1"]),
            "profile": st.sampled_from(FEW),
            "handle": st.sampled_from(FEW),
            "title": st.sampled_from(["", "Maia", "CoS Bot", "cosbot", "Ops", "all", "@@@", "hermes", "Ünï"]),
        }
    ),
    max_size=6,
).map(lambda rows: normalise(rows).rows)


def found(target: str, rows: Sequence[Row]) -> Row | None:
    hit = resolve(target, rows)
    assert not isinstance(hit, Ambiguous)
    return hit


def clash(target: str, rows: Sequence[Row]) -> Ambiguous:
    hit = resolve(target, rows)
    assert isinstance(hit, Ambiguous)
    return hit


# ---- who is meant


@pytest.mark.parametrize(
    ("target", "row"),
    [
        ("ops", OPS),
        ("@ops", OPS),
        ("  @@OPS ", OPS),
        ("night", NIGHT),
        ("nightly", NIGHT),
        ("ops@vps-1", OPS),
        ("@ops@VPS-1", OPS),
        ("hermes@cloud-1", CLOUD),
        ("default@cloud-1", CLOUD),
        ("nightly@lab", NIGHT),
        ("cos-bot", CLOUD),
        ("@CosBot", CLOUD),
        ("cosbot@cloud-1", CLOUD),
    ],
)
def test_every_form_of_a_target_is_understood(target: str, row: Row) -> None:
    """9.1 resolve_remote_target_forms, 10.16 `profile@connection` as well as the handle."""
    assert found(target, [OPS, CLOUD, LAB, NIGHT]) == row


@pytest.mark.parametrize(
    "target",
    [
        "",
        "@",
        "@@",
        "  ",
        "nobody",
        "ops@lab",
        "ops@",
        "@ops@",
        "@@vps-1",
        "ops@Rack 3",
        "ops@vps-1@x",
        "cosbot@lab",
        "ops\n@x",
    ],
)
def test_an_unknown_name_or_connection_is_nobody(target: str) -> None:
    """9.1 the same: a wrong connection, an unknown name; 3.2 a connection's label is not accepted."""
    assert resolve(target, [OPS, CLOUD, LAB, NIGHT]) is None


def test_a_handle_of_two_connections_is_nobody_until_it_is_qualified() -> None:
    """9.1 resolve_ambiguous_handle_across_connections: the forms are qualified for the clash, bare for the unique."""
    rows = [OPS, CLOUD._replace(title=""), LAB]
    assert set(clash("hermes", rows).rows) == set(rows[1:])
    assert found("hermes@lab", rows) == LAB
    assert forms(rows) == {OPS: "ops", rows[1]: "hermes@cloud-1", LAB: "hermes@lab"}


def test_an_ambiguous_target_is_answered_with_every_form() -> None:
    """9.1 relay_route_ambiguous_target_errors_with_forms; 11.11 also where the target was qualified."""
    rows = [CLOUD._replace(title=""), LAB]
    hit = clash("@hermes", rows)
    assert hit.forms == ("hermes@cloud-1", "hermes@lab")
    text = ambiguous_text("@hermes", hit)
    assert "@hermes@cloud-1" in text
    assert "@hermes@lab" in text
    assert [found(form, rows) for form in hit.forms] == rows

    twins = [Row("lab", "a", "same"), Row("lab", "b", "same")]
    assert clash("same@lab", twins).forms == ("a@lab", "b@lab")
    assert [found(form, twins) for form in ("a@lab", "b@lab")] == twins


def test_a_remote_default_is_called_by_its_title() -> None:
    """9.1 remote_default_is_addressable_by_its_title_slug, 10.15: whatever the order; never bare @hermes."""
    rows = [CLOUD, LAB._replace(title="Maia"), OPS]
    expected = {CLOUD: "cos-bot", rows[1]: "maia", OPS: "ops"}
    for order in permutations(rows):
        assert forms(order) == expected
    assert forms([CLOUD._replace(title="")]) == {CLOUD._replace(title=""): "hermes@cloud-1"}
    assert found("maia", rows) == rows[1]


def test_a_handle_goes_before_somebody_elses_title() -> None:
    """9.1 the same: exact handle beats title; 10.28 a title is another name of an agent, and no more."""
    maia = Row("vps-1", "maia", "maia")
    titled = LAB._replace(title="Maia")
    assert found("maia", [titled, maia]) == maia
    assert forms([titled, maia]) == {titled: "hermes@lab", maia: "maia"}


def test_titles_that_collide_fall_back_to_the_qualified_form() -> None:
    """9.1 the same: a collided title. `Cos Bot` and `CosBot` collide in `cosbot`, not in `cos-bot`."""
    rows = [CLOUD._replace(title="Maia"), LAB._replace(title="MAIA!")]
    assert set(forms(rows).values()) == {"hermes@cloud-1", "hermes@lab"}
    assert len(clash("maia", rows).rows) == 2
    near = [CLOUD, LAB._replace(title="CosBot")]
    assert forms(near) == {CLOUD: "cos-bot", near[1]: "hermes@lab"}


def test_what_a_local_agent_answers_to_is_never_offered() -> None:
    """3.2 G3; 11.9 a form must not be caught by a friendly name here."""
    assert forms([OPS], ["OPS"]) == {OPS: "ops-bot"}
    assert forms([OPS], ["ops", "ops-bot"]) == {OPS: "opsbot"}
    assert forms([OPS], ["ops", "ops-bot", "opsbot"]) == {OPS: "ops@vps-1"}


@pytest.mark.parametrize(
    ("title", "names"),
    [
        ("CoS Bot", {"cos-bot", "cosbot"}),
        ("Maia", {"maia"}),
        ("  --Ops / Bot--  ", {"ops-bot", "opsbot"}),
        ("snake_case", {"snake_case"}),
        ("", set()),
        ("!!!", set()),
        ("_x", set()),
        ("x" * 65, set()),
        *((word.upper(), set()) for word in sorted(RESERVED_SLUGS)),
        ("Every One", {"every-one"}),  # its collapsed form is reserved
    ],
)
def test_what_a_title_can_be_called_by(title: str, names: set[str]) -> None:
    """3.2 G3: slugs, and the reserved ones that are none."""
    assert slugs(title) == names


@given(ROSTERS, st.lists(st.sampled_from(["ops", "maia", "cos-bot"]), max_size=2))
def test_a_form_leads_back_to_its_row_whatever_the_order(rows: tuple[Row, ...], local: list[str]) -> None:
    """10.15: replies reached the wrong machine's bot."""
    shown = forms(rows, local)
    assert forms(tuple(reversed(rows)), local) == shown
    for row, form in shown.items():
        hit = resolve(form, rows)
        if isinstance(hit, Ambiguous):  # only where two rows of one connection bear each other's names
            assert "@" in form
            assert len({other.connection_id for other in hit.rows}) == 1
        else:
            assert hit == row
        if "@" not in form:
            assert form.lower() not in {"hermes", "default", *local}


@given(st.text(), ROSTERS)
def test_no_target_is_an_error(target: str, rows: tuple[Row, ...]) -> None:
    hit = resolve(target, rows)
    assert hit is None or isinstance(hit, Ambiguous) or hit in rows


# ---- who is offline


@pytest.mark.parametrize(
    ("rows", "age", "answer"),
    [
        ([OPS], None, None),  # no file
        ([OPS], 600.1, None),  # stale
        ([], 1.0, None),  # empty or unreadable
        ([OPS], 1.0, None),  # fresh, and nothing is said
        ([OPS._replace(online=True)], 600.0, True),
        ([OPS._replace(online=False)], 600.0, False),
        ([OPS._replace(online=False)], 601.0, None),
        ([LAB], 1.0, False),  # fresh, and it is not there
        ([OPS._replace(profile="OPS", online=True)], 1.0, False),  # exact
        ([OPS._replace(online=True)], -5.0, True),  # a file of the future is fresh
    ],
)
def test_only_what_is_known_to_be_offline_is_offline(rows: list[Row], age: float | None, answer: bool | None) -> None:
    """9.1 enqueue_fails_fast_when_row_explicitly_offline, …_target_absent_from_fresh_roster and
    enqueue_fails_open_when_liveness_unknown; 11.2 a client that sends `online` makes the refusal real."""
    assert online("vps-1", "ops", rows, age) is answer


def test_a_refusal_names_who_is_offline_and_where() -> None:
    """3.3: handle, label or id, and the word."""
    assert "@ops on vps-1 is offline" in offline_text(OPS)
    assert "@ops on Rack 3 is offline" in offline_text(OPS._replace(connection_label="Rack 3"))
