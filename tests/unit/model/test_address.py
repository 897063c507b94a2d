"""Names and addresses: the one grammar, and that two spellings of a name are one mailbox."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angelia.model.address import EVERYONE, RESERVED, SEED_AGENTS, Address, check_handle, mailbox_of, parse
from angelia.model.errors import BadName
from angelia.model.tokens import is_like_a_token

FIRST = st.sampled_from(string.ascii_letters + string.digits)
REST = st.text(string.ascii_letters + string.digits + "_-", max_size=63)
HANDLES = st.builds(str.__add__, FIRST, REST).filter(lambda name: not is_like_a_token(name))
TOKEN = "aVery1Kn0wnToken-of_43_signs-LikeOthers8888"

WRONG = [
    "", " ", "-x", "_x", ".", "..", "../../etc", "a/b", "a\\b", "a b", "a\n", "\na", "a\0", "NUL.", "a.", "a:b", "é",
    "\uff41", "\u0661", "a" * 65, "a" * 300, "%41", "a;b", "'", "\u202e", "😀", "\ud800",
]  # fmt: skip


@given(HANDLES)
def test_letters_digits_underscore_and_hyphen_make_a_handle(name: str) -> None:
    assert check_handle(name) == name
    assert parse(name) == Address(name)


@pytest.mark.parametrize("name", WRONG)
def test_nothing_else_does(name: str) -> None:
    with pytest.raises(BadName):
        check_handle(name)
    for text in (name, f"#{name}", f"{name}@mac", f"mac@{name}"):
        with pytest.raises(BadName):
            parse(text)


@given(st.text())
def test_whatever_parses_is_made_of_handles_alone(text: str) -> None:
    try:
        address = parse(text)
    except BadName:
        return
    check_handle(address.name)
    check_handle(address.connection)


@pytest.mark.parametrize("value", [None, 1, b"ann", ["ann"], {}])
def test_what_is_no_text_is_no_name(value: object) -> None:
    for check in (check_handle, parse):
        with pytest.raises(BadName):
            check(value)


@pytest.mark.parametrize("value", ["", None])
def test_an_empty_recipient_is_an_error_and_never_everyone(value: str | None) -> None:
    with pytest.raises(BadName, match="empty"):
        parse(value)


def test_everyone_is_not_one_address() -> None:
    with pytest.raises(BadName):
        parse(EVERYONE)


@given(HANDLES, HANDLES)
def test_spellings_that_differ_in_case_are_one_mailbox(name: str, connection: str) -> None:
    here, there = Address(name), Address(name, connection)
    assert here.mailbox == Address(name.swapcase()).mailbox == name.lower()
    assert there.mailbox == Address(name.swapcase(), connection.swapcase()).mailbox or connection == "local"


@given(HANDLES, HANDLES)
def test_an_address_is_read_back_as_it_is_shown(name: str, connection: str) -> None:
    for address in (Address(name), Address(name, connection), Address(name, room=True)):
        again = parse(str(address))
        assert again == address or address.connection.lower() == "local"


@pytest.mark.parametrize("text", ["ann@local", "ann@LOCAL", "ann"])
def test_local_is_always_this_hub(text: str) -> None:
    address = parse(text)
    assert address == Address("ann")
    assert address.is_local


@pytest.mark.parametrize(
    ("text", "mailbox", "local"),
    [("Ann", "ann", True), ("Ann@Mac", "ann@mac", False), ("#Team", "#team", False), ("#local", "#local", False)],
)
def test_every_kind_of_address_has_its_mailbox(text: str, mailbox: str, local: bool) -> None:
    address = parse(text)
    assert (address.mailbox, address.is_local, str(address)) == (mailbox, local, text)


def test_a_mailbox_is_keyed_by_handle_and_connection() -> None:
    assert (mailbox_of("Ann"), mailbox_of("Ann", "Mac")) == ("ann", "ann@mac")


def test_no_agent_is_reserved_and_reserved_names_are_in_lower_case() -> None:
    assert not RESERVED & set(SEED_AGENTS)
    assert {name.lower() for name in RESERVED} == RESERVED
    assert {"human", "angelia", "interop", "local", "desktop", "default", "all", "everyone"} == RESERVED


def test_a_refusal_quotes_no_more_than_a_name() -> None:
    with pytest.raises(BadName) as refused:
        check_handle("x" * 100_000)
    assert len(refused.value.detail) < 300


@pytest.mark.parametrize("token", [TOKEN, "0123456789abcdef" * 4])
def test_a_token_is_no_name_and_the_refusal_does_not_repeat_it(token: str) -> None:
    for text in (token, f"#{token}", f"{token}@mac", f"mac@{token}"):
        with pytest.raises(BadName, match="looks like a token") as refused:
            parse(text)
        assert token[:16] not in refused.value.detail
    for text in (f"Bearer {token}", f"_{token}", f" {token} ", " " * 60 + token):  # no name anyway
        with pytest.raises(BadName) as refused:
            check_handle(text)
        assert token[:16] not in refused.value.detail
