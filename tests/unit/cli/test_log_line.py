"""A line of the log: plain words, and nothing in it that should not be there."""

import json
import logging

import pytest

from angelia.cli.log_line import LETTERS, as_json, event_of, plain, read, safe
from angelia.storage.folder import secret

LEASE = "41-2-0123456789abcdef01234567"
AGENT = "a8Kq_3fTz-0LmN4pQrStUvWxYz1234567890AbCdEf1"
OWNER = "0123456789abcdef" * 4


def line(text: str, *args: object) -> str:
    return plain(read(logging.LogRecord("angelia.hub", logging.WARNING, "file", 1, text, args, None)))


@pytest.mark.parametrize("token", [LEASE, AGENT, OWNER])
def test_no_token_gets_into_a_line(token: str) -> None:
    assert token not in line("a request failed: %s %s", "POST", f"/v1/leases/{token}/ack")
    assert token not in line("%s", ValueError(f"{{'authorization': 'Bearer {token}'}}"))
    assert line("it was %s.", token).endswith(" warning: it was (token).")
    for length in range(LETTERS - 70, LETTERS + 1):  # nor the beginning of one that stands where a text is cut
        assert token[:12] not in safe("x " * (length // 2) + token + " x" * 200)


def test_a_token_of_any_shape_behind_a_word_that_says_so() -> None:
    assert "hunter2" not in line("%s", "GET /api/ws?token=hunter2&x=1 Authorization: bearer hunter2")


def test_the_tokens_that_are_made_are_known(tmp_path_factory: pytest.TempPathFactory) -> None:
    made = secret(str(tmp_path_factory.mktemp("s") / "admin.token"))
    assert safe(f"x {made} y") == "x (token) y"


def test_what_is_no_token_stays() -> None:
    for text in ("0197f0c2a4b17c3e8d21f6a09b5e4c77", "http://127.0.0.1:18900", "/home/someone/.local/share/angelia",
                 "an-agent-with-a-name-of-forty-three-signs-x", "2026-11-29"):  # fmt: skip
        assert safe(text) == text


def test_a_peers_text_is_shown_as_what_it_is_and_cut_where_it_is_long() -> None:
    evil = "a\n2026-01-01 00:00:00 info: all is well\x1b[2J\u202e"
    assert line("%s", evil).count("\n") == 0
    assert not {"\x1b", "\u202e"} & set(line("%s", evil))
    assert line("%s", "x" * (LETTERS + 7)).endswith("x … and 7 more letters")


def test_an_event_is_called_by_its_words_whatever_the_values() -> None:
    assert event_of("the hub serves on %s, data folder %s") == "the_hub_serves_on"
    assert event_of("the disk is full: new messages are refused") == "the_disk_is_full"
    assert event_of("message %s is damaged: set aside, with %d deliveries") == "message_is_damaged"
    assert event_of("the log was not folded into the store (%s)") == "the_log_was_not_folded_into_the_store"
    assert event_of("%d connections did not end within %g s and were cut off").startswith("connections_did_not_end")


def test_a_fault_is_one_object_with_its_traceback() -> None:
    try:
        raise ValueError(f"why\n{LEASE}")
    except ValueError as error:
        record = logging.LogRecord("angelia.hub", logging.ERROR, "f", 1, "failed", (), (type(error), error, None))
    found = json.loads(as_json(read(record)))
    assert found["trace"] == ["ValueError: why", "(token)"]
    assert set(found) == {"at", "level", "part", "event", "message", "trace"}
    assert plain(read(record)).splitlines()[1:] == ["    ValueError: why", "    (token)"]


def test_a_library_that_ends_its_line_itself_leaves_no_trace_of_that() -> None:
    assert line("Exception in %s\n", "it").endswith(" warning: Exception in it")
    assert line("%s", "it was\n").endswith(" warning: it was")


def test_a_line_that_cannot_be_made_is_named() -> None:
    assert "a log line could not be made: 'that %d %d'" in line("that %d %d", "x")
