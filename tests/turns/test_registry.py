"""The kinds of agents: each in its table, loaded when used, and what does not fit is refused with what would."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from angelia.model.errors import BadRequest
from angelia.turns.adapters.command import CommandOptions
from angelia.turns.adapters.port import Options
from angelia.turns.adapters.registry import KINDS, load, read
from tests.turns.turn import tools

CAT: dict[str, Any] = {"kind": "command", "argv": ["/bin/cat"]}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_the_table_is_there_under_its_name(name: str) -> None:
    kind = load(name)
    assert kind.name == name
    assert issubclass(kind.options, Options)
    assert kind.title


def test_a_kind_is_loaded_when_it_is_used() -> None:
    names = [f"angelia.turns.adapters.{name}" for name in KINDS]
    code = f"""import sys
from angelia.turns.adapters import registry
print(sorted(set({names}) & set(sys.modules)))
registry.load("command")
print(sorted(set({names}) & set(sys.modules)))"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
    assert said.splitlines() == ["[]", "['angelia.turns.adapters.command']"]


@pytest.mark.parametrize("encode", [lambda spec: spec, lambda spec: json.dumps(spec).encode()])
def test_a_specification_is_read(encode: Any, tmp_path: Path) -> None:
    given = {**CAT, "conversation": "thread", "timeout_seconds": 5, "environment": {"A": "b"}}
    kind, options = read(encode(given), tools(tmp_path))
    assert kind is load("command")
    assert options == CommandOptions(
        argv=["/bin/cat"], conversation="thread", timeout_seconds=5.0, environment={"A": "b"}
    )
    assert given["kind"] == "command"  # what was handed in stays as it was


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"kind": "telepathy"}, "There is no kind of agent 'telepathy'. There are: command, webhook, hermes"),
        ({}, "An adapter says its 'kind', one of: command, webhook"),
        ({"kind": 7}, "An adapter says its 'kind'"),
        ({"kind": "command"}, "no options of the kind 'command': Object missing required field `argv`. It takes: conv"),
        ({**CAT, "folders": "/"}, "unknown field `folders`. It takes: conversation, timeout_seconds, argv, folder"),
        ({**CAT, "argv": "/bin/cat"}, "Expected `array`, got `str` - at `$.argv`"),
        ({**CAT, "argv": ["/bin/cat", 7]}, "Expected `str`, got `int`"),
        ({**CAT, "timeout_seconds": "5"}, "Expected `float | null`, got `str`"),
        ({**CAT, "timeout_seconds": 0}, "timeout_seconds is 0.0; it is more than 0, and at most 86400."),
        ({**CAT, "timeout_seconds": float("inf")}, "timeout_seconds is inf"),
        ({**CAT, "conversation": "us"}, "conversation is 'us'; it is 'agent' or 'thread'."),
        ({**CAT, "argv": ["cat"]}, "argv begins with the whole path of a program"),
        (b"[]", "An adapter is a JSON object"),
        (b"{", "An adapter is a JSON object"),
        (b"\xff", "An adapter is a JSON object"),
        (b"[" * 100_000, "An adapter is a JSON object"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(spec: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(BadRequest) as refused:
        read(spec, tools(tmp_path))
    assert says in refused.value.detail


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "odd", "a_package_that_nobody_has.adapter")
    with pytest.raises(BadRequest, match="'odd' needs the Python package 'a_package_that_nobody_has'"):
        load("odd")
