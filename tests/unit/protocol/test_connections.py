"""Connections as they are asked for and shown: what a target may be, what goes together, and that no secret passes."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from angelia.model.connection import Away, Condition, Connection, Speaks
from angelia.protocol.connections import (
    CHECKS,
    ConnectionIn,
    ConnectionOut,
    WrongField,
    check_target,
    read,
    shown,
    without_password,
)
from angelia.protocol.json import encode

WS = "wss://mac.example"


def refused(**fields: object) -> WrongField:
    with pytest.raises(WrongField) as caught:
        read("mac", fields)
    return caught.value


def test_a_connection_with_everything() -> None:
    found = read(
        "mac",
        {"target": f"{WS}:18900/x", "speaks": "hermes", "away": "refuse", "share": ["Scout", "scout", "ann"],
         "accept": [], "user": "ann", "password_file": "/etc/pw", "ca_file": "/etc/ca.pem", "command": None},
        fixed=True,
    )  # fmt: skip
    assert found == Connection(
        name="mac", target=f"{WS}:18900/x", speaks=Speaks.HERMES, away=Away.REFUSE, share=("scout", "ann"), accept=(),
        user="ann", password_file="/etc/pw", ca_file="/etc/ca.pem", fixed=True,
    )  # fmt: skip
    assert read("mac", {}) == Connection(name="mac")


@pytest.mark.parametrize(
    "target",
    [
        "", "ws://127.0.0.1", "ws://[::1]:18901", "wss://a.b.example:9119/gw", "ssh://box", "ssh://me@box:2222",
        "ssh://me@box?forward=9119", "exec:docker exec -i box angelia gateway --stdio", "exec:wsl -e 'a b'",
        "docker://box_1.x",
    ],
)  # fmt: skip
def test_targets(target: str) -> None:
    assert check_target(target) == target


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("mac", "is no target"),
        ("ftp://mac", "is no target"),
        ("ftp://u:hush@mac", "is no target"),
        ("http://mac:18900", "write ws://mac:18900"),
        ("https://mac", "write wss://mac"),
        ("ws://", "names no host"),
        ("ws:mac", "names no host"),
        ("ws://ma c", "a space"),
        ("ws://mac\x1b", "control character"),
        ("ws://mac:99999", "can be read"),
        ("wss://ann:hush@mac", "a secret"),
        ("wss://mac?token=hush", "a secret"),
        ("wss://mac/gw?x=1", "behind a"),
        ("wss://mac?x=1&ticket=hush", "a secret"),
        ("ssh://ann:hush@mac", "a secret"),
        ("wss://ann@mac", "names a user"),
        ("wss://mac#x", "'#'"),
        ("ssh://-oProxyCommand=x", "names no host"),
        ("ssh://-l@mac", "no user"),
        ("ssh://mac/home", "has a path"),
        ("ssh://mac?forward=x", "forward=PORT"),
        ("ssh://mac?forward=70000", "forward=PORT"),
        ("ssh://mac?via=1", "forward=PORT"),
        ("exec:", "names no program"),
        ("exec: ", "names no program"),
        ("ws://127.0.0.1:0", "port 0"),
        ("ssh://mac:0", "port 0"),
        ("exec:''", "no program"),
        ("exec:'x", "cannot be split"),
        ("docker:box", "no container"),
        ("docker://--privileged", "no container"),
        ("x" * 5000, "4096"),
    ],
)
def test_what_is_no_target(target: str, words: str) -> None:
    found = refused(target=target)
    assert found.field == "target"
    assert words in found.problem
    assert "hush" not in str(found)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("token_file", "tokens/mac"), ("token_file", ""), ("token_file", "/a\nb"), ("ca_file", 3),
        ("token_variable", "A B"), ("password_variable", "$X"), ("user", " "), ("command", "'"), ("speaks", "mcp"),
        ("away", 1), ("share", "scout"), ("share", ["a b"]), ("accept", [1]), ("token", "hush"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named_with_what_is_allowed(field: str, value: object) -> None:
    found = refused(target=WS, **{field: value})
    assert found.field == field
    assert found.problem
    assert found.allowed == (CHECKS[field][1] if field in CHECKS else ", ".join(CHECKS))
    assert "hush" not in str(found)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"target": WS, "token_file": "/t", "token_variable": "T"}, "token_variable"),
        ({"target": WS, "token_file": "/t", "user": "ann", "password_file": "/p"}, "user"),
        ({"target": WS, "user": "ann"}, "user"),
        ({"target": WS, "password_file": "/p"}, "user"),
        ({"target": WS, "user": "a", "password_file": "/p", "password_variable": "P"}, "password_variable"),
        ({"target": "ssh://box", "token_file": "/t"}, "token_file"),
        ({"token_variable": "T"}, "token_variable"),
        ({"target": "exec:x", "user": "a", "password_file": "/p"}, "user"),
        ({"target": "ws://mac", "ca_file": "/ca"}, "ca_file"),
        ({"target": WS, "command": "angelia gateway --stdio"}, "command"),
        ({"target": "ssh://box?forward=9119", "command": "x"}, "command"),
    ],
)
def test_what_does_not_go_together(fields: dict[str, object], field: str) -> None:
    assert refused(**fields).field == field


def test_what_does_go_together() -> None:
    assert read("b", {"target": "ssh://b?forward=9119", "token_variable": "T"}).token_variable == "T"
    assert read("b", {"target": "ssh://b", "command": "/opt/angelia gateway --stdio"}).command is not None


def test_what_may_be_asked_is_what_is_checked_and_all_of_it_is_shown() -> None:
    asked = {field.name for field in msgspec.structs.fields(ConnectionIn)}
    assert asked - {"code"} == set(CHECKS)
    assert set(CHECKS) <= {field.name for field in msgspec.structs.fields(ConnectionOut)}


def condition(**more: Any) -> Condition:
    made = Connection(name="Mac", target="wss://mac", share=("scout",), token_file="/t", hub="7f", key=b"hush")
    return Condition(connection=made, speaks=Speaks.HUB, **{"up": False, "since": 0, **more})


def test_shown_in_full() -> None:
    found = shown(
        condition(
            kind="refused", problem="P.", advice="A.", warning="W.", version="1", agents=2, waiting=3, oldest_at=1
        ),
        in_full=True,
    )
    assert json.loads(encode(found)) == {
        "name": "Mac", "up": False, "since": "1970-01-01T00:00:00.000Z", "speaks": "hub", "agents": 2, "waiting": 3,
        "oldest_at": "1970-01-01T00:00:00.001Z", "kind": "refused", "target": "wss://mac", "problem": "P.",
        "advice": "A.", "warning": "W.", "version": "1", "away": "wait", "share": ["scout"], "token_file": "/t",
        "hub": "7f",
    }  # fmt: skip


def test_who_does_not_administer_sees_no_way_to_another_machine() -> None:
    found = shown(condition(kind="refused", problem="P.", advice="A.", warning="W.", version="1"), in_full=False)
    assert json.loads(encode(found)) == {
        "name": "Mac", "up": False, "since": "1970-01-01T00:00:00.000Z", "speaks": "hub", "agents": 0, "waiting": 0,
        "kind": "refused",
    }  # fmt: skip


def test_a_password_that_came_some_other_way_is_not_shown() -> None:
    assert without_password("wss://ann:hush@mac:1/x") == "wss://ann@mac:1/x"
    assert without_password("exec:tunnel https://:hush@x ws://a:b@c") == "exec:tunnel https://@x ws://a@c"
    assert without_password("ssh://ann@mac:22") == "ssh://ann@mac:22"
    leaky = replace(
        condition(), connection=Connection(name="mac", target="exec:tunnel wss://ann:hush@mac", key=b"hush")
    )
    told = encode(shown(leaky, in_full=True))
    assert b"ann@mac" in told
    assert b"hush" not in told
