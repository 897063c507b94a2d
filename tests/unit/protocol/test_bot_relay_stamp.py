"""The stamp of a relayed message leads back to its sender, and nothing else of the text is touched."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angelia.protocol.bot_relay import TEXT_CHARS
from angelia.protocol.bot_relay_rows import Row
from angelia.protocol.bot_relay_stamp import is_safe_to_stamp, localise, qualify
from angelia.protocol.prompt import HEADER, read_attribution

BARE = f"{HEADER}Maia (@hermes): is the build green?"
MAIA = Row("local", "default", "hermes", title="Maia")
OTHER = Row("lab", "default", "hermes")
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", fullmatch=True)


def test_the_relay_qualifies_a_bare_stamp_on_the_way() -> None:
    """7.4 the Desktop's style, 9.7 the qualified stamp; 10.15."""
    assert qualify(BARE, "hermes", "local") == f"{HEADER}Maia (@hermes@local): is the build green?"


def test_a_gateway_stamps_the_shortest_form_that_its_reader_can_answer() -> None:
    """7.4 the gateway's style, and the worked trace of 13: (@maia) or (@hermes@local), by its own names."""
    assert localise(BARE, "default", "hermes", "local", [MAIA, OTHER]) == f"{HEADER}Maia (@maia): is the build green?"
    taken = localise(BARE, "default", "hermes", "local", [MAIA, OTHER], ["Maia"])
    assert taken == f"{HEADER}Maia (@hermes@local): is the build green?"
    assert localise(BARE, "default", "hermes", "local", []) == f"{HEADER}Maia (@hermes@local): is the build green?"


def test_the_row_is_found_by_its_profile_though_it_bears_another_handle() -> None:
    """8: a client may publish a title's slug as the handle, while the envelope still says hermes."""
    row = Row("local", "default", "maia")
    assert localise(BARE, "default", "hermes", "local", [row]) == f"{HEADER}Maia (@maia): is the build green?"
    assert localise(BARE, "", "hermes", "local", [MAIA]) == f"{HEADER}Maia (@maia): is the build green?"


@pytest.mark.parametrize(
    "text",
    [
        f"{HEADER}Maia (@hermes@local): see what ops wrote (@hermes): green",
        f"{HEADER}Maia (@hermes@cloud): hi",
        f"{HEADER}Maia (@ops): hi (@hermes): hi",
        f"Hi (@hermes): {HEADER}",
        f"{HEADER}Maia (@hermes) hi",
        "hi",
        "",
    ],
)
def test_what_is_qualified_or_another_ones_or_no_stamp_is_left_alone(text: str) -> None:
    """11.7: a later ` (@x): ` in the body was rewritten; the stamped handle was not compared with the sender's."""
    assert qualify(text, "hermes", "local") == text
    assert localise(text, "default", "hermes", "local", [MAIA]) == text


@pytest.mark.parametrize(
    ("handle", "connection"), [("", "local"), ("hermes", ""), ("her mes", "local"), ("hermes", "a b")]
)
def test_a_sender_that_is_not_named_changes_nothing(handle: str, connection: str) -> None:
    """7.4: both have to be names."""
    assert qualify(BARE, handle, connection) == BARE
    assert localise(BARE, "default", handle, connection, [MAIA._replace(connection_id=connection)]) == BARE


def test_a_handle_in_another_case_is_the_same_handle() -> None:
    assert "(@HERMES@local): " in qualify(BARE, "HERMES", "local")


def test_the_longest_body_still_fits_after_it_was_qualified() -> None:
    """11.6: the name is cut and never the body."""
    text = f"{HEADER}{'n' * 190} (@{'h' * 64}): " + "x" * 16_000
    sent = qualify(text, "h" * 64, "c" * 64)
    assert len(sent) <= TEXT_CHARS
    assert sent.endswith(f"n (@{'h' * 64}@{'c' * 64}): " + "x" * 16_000)


@given(st.text(), st.text(), NAMES, NAMES)
def test_a_stamp_is_rewritten_once_and_the_body_never(name: str, body: str, handle: str, connection: str) -> None:
    text = f"{HEADER}{name} (@{handle}): {body}"
    before, sent = read_attribution(text), qualify(text, handle, connection)
    after = read_attribution(sent)
    assert qualify(sent, handle, connection) == sent
    if before is None or sent == text:
        return
    assert after is not None
    assert (after.handle, after.connection, after.body) == (handle, connection, before.body)


def test_what_a_gateway_would_take_for_the_stamp_of_the_header_is_known() -> None:
    """11: it looks for the first bare stamp in the whole text, not in the header."""
    header = f"{HEADER}Maia (@hermes@local): "
    assert is_safe_to_stamp(f"{header}x (@ops@lab): y (@ops) z(@ops): ")
    assert not is_safe_to_stamp(f"{header}he wrote\n so (@ops): yes")
