"""A command's arguments: any order, any text."""

import argparse

import pytest

from angelia.cli import parse
from tests.fakes.fake_hub import FakeHub
from tests.unit.cli.conftest import Run


def made() -> argparse.ArgumentParser:
    parser = parse.parser("try", "Try.", "angelia try it")
    parser.add_argument("to")
    parser.add_argument("text", nargs="?", type=str)
    parser.add_argument("--intent")
    return parser


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["bob", "hello"], "hello"),
        (["bob", "--intent", "request", "hello"], "hello"),
        (["--intent", "request", "bob", "hello"], "hello"),
        (["bob", "hello", "--intent", "request"], "hello"),
        (["bob"], None),
        (["bob", ""], ""),
        (["bob", "-"], "-"),
        (["bob", "-5 degrees"], "-5 degrees"),
        (["bob", "- a list\n- of two"], "- a list\n- of two"),
        (["bob", "---\ntitle:x\n---"], "---\ntitle:x\n---"),
        (["bob", "-hello there"], "-hello there"),
        (["bob", "--intent of this=that"], "--intent of this=that"),
        (["bob", "--", "--help"], "--help"),
        (["bob", "--", "--"], "--"),
        (["--", "bob", "--"], "--"),
        (["bob", "--intent", "request", "--", "-x"], "-x"),
    ],
)
def test_texts(words: list[str], text: str | None) -> None:
    given = parse.parse(made(), words)
    assert (given.to, given.text) == ("bob", text)


def test_an_options_value_may_look_like_an_option_too() -> None:
    assert parse.parse(made(), ["bob", "hi", "--intent", "-x y"]).intent == "-x y"
    assert parse.parse(made(), ["bob", "hi", "--intent=-x y"]).intent == "-x y"


def test_texts_of_which_there_may_be_many() -> None:
    parser = parse.parser("try", "Try.", "angelia try it")
    parser.add_argument("words", nargs="*")
    assert parse.parse(parser, ["-a b", "c", "--", "--", "-d"]).words == ["-a b", "c", "--", "-d"]


@pytest.mark.parametrize("words", [[], ["bob", "a", "b"], ["bob", "--int", "x"], ["bob", "-x"]])
def test_wrong_usage_ends_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse.parse(made(), words)
    assert end.value.code == 2
    assert "usage: angelia try" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [["message", "\x1b[31m"], ["send", "bob", "hi", "--wait", "\x1b[31m"], ["dead", "\x1b[31m"], ["up", "\x1b[31m"]],
)
def test_what_was_typed_wrong_is_shown_and_not_obeyed_by_the_terminal(run: Run, words: list[str]) -> None:
    code, out, err = run(*words)
    assert code == 2
    assert "\x1b" not in out + err
    assert "\\x1b[31m" in err


@pytest.mark.parametrize(
    ("word", "seconds"), [("90", 90), ("0", 0), ("1.5", 1.5), ("30s", 30), ("15m", 900), ("2h", 7200), ("7d", 604800)]
)
def test_times(word: str, seconds: float) -> None:
    assert parse.seconds(word) == seconds


@pytest.mark.parametrize("word", ["", "h", "-1", "soon", "1e9", "1.2.3", "inf", "nan", "२", "1w"])
def test_what_is_no_time(word: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="no time"):
        parse.seconds(word)


def test_ids() -> None:
    assert parse.message_id("0af" + "1" * 29) == "0af" + "1" * 29
    for wrong in ("", "0AF" + "1" * 29, "1" * 31, "1" * 33, "../" + "1" * 29, "g" * 32):
        with pytest.raises(argparse.ArgumentTypeError):
            parse.message_id(wrong)


@pytest.mark.parametrize(
    "line",
    [
        ["disconnect", ""], ["restore", ""], ["backup", ""], ["connections", ""], ["connect", ""],
        ["connect", "garage", ""], ["pair", "", ""], ["turns", "stop", ""], ["search", ""], ["wake", ""],
        ["inbox", "--state", ""], ["inbox", "--from="], ["dead", "--to", ""], ["tail", "--agent", ""],
        ["ask", "", "hi"], ["listen", "--fifo", ""], ["send", "ann", "--file", ""],
        ["connect", "x", "ssh://x", "--command", ""],
    ],
)  # fmt: skip
def test_a_name_or_a_path_that_is_empty_is_wrong_usage_before_any_hub_is_asked(
    run: Run, hub: FakeHub, line: list[str]
) -> None:
    code, out, err = run(*line)
    assert (code, out) == (2, "")
    assert err.endswith(": it is empty\n")
    assert not hub.requests
