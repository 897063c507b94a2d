"""Any program as an agent: what it reads, what of its output is the answer, and how each failure is told."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from angelia.model.failure import Reason
from angelia.turns.adapters.command import KIND, CommandOptions
from angelia.turns.adapters.port import Answered, Failed, Found, Lost, Outcome, Tools
from tests.turns.turn import envelope, tools, turn
from tests.turns.watching import eventually, number_in, runs

HARD_TEXT = "--help -x \"quotes\" 'more' $HOME `id` \\ \0 \x01\x1b[31m\x7f \r\n\t 👩‍👩‍👧 é \u202e\n" + "x" * 200_000


async def answer(base: Path, script: str, text: str = "hello", **options: Any) -> Outcome:
    """What comes of a turn that runs a shell script."""
    return await by(tools(base), ["/bin/sh", "-c", script], text, **options)


async def by(lent: Tools, argv: list[str], text: str = "hello", **options: Any) -> Outcome:
    return await KIND.make(CommandOptions(argv=argv, **options), lent).run(turn(text))


async def test_the_answer_is_what_the_program_prints(tmp_path: Path) -> None:
    assert await answer(tmp_path, "tr a-z A-Z") == Answered("HELLO", "program")


async def test_any_text_arrives_as_it_was_sent_and_comes_back(tmp_path: Path) -> None:
    outcome = await by(tools(tmp_path), ["/bin/cat"], HARD_TEXT)
    assert isinstance(outcome, Answered)
    assert outcome.text == HARD_TEXT


@pytest.mark.parametrize(
    ("printed", "text"), [("a\\n", "a"), ("a\\n\\n", "a\n"), ("a", "a"), ("\\na ", "\na "), ("", ""), ("\\377", "�")]
)
async def test_one_newline_at_the_end_is_the_lines_own(tmp_path: Path, printed: str, text: str) -> None:
    assert await answer(tmp_path, f"printf '{printed}'") == Answered(text, "program")


async def test_standard_error_is_no_part_of_an_answer(tmp_path: Path) -> None:
    assert await answer(tmp_path, "echo careful >&2; echo yes") == Answered("yes", "program")


async def test_a_program_that_is_a_model_reads_the_whole_prompt(tmp_path: Path) -> None:
    assert await answer(tmp_path, "cat", reads="prompt") == Answered("alice writes: <<hello>>", "program")


@pytest.mark.parametrize(
    ("field", "printed", "text"),
    [
        ("text", '{"text": "hi\\n"}', "hi\n"),
        ("a.b", '{"a": {"b": "hi"}}', "hi"),
        ("payloads.1.text", '{"payloads": [{}, {"text": "hi"}]}', "hi"),
        ("n", '{"n": 42}', "42"),
        ("o", '{"o": {"a": [1, true]}}', '{"a":[1,true]}'),
        ("text", '  {"text": ""}\n\n', ""),
    ],
)
async def test_the_answer_may_stand_in_a_field(tmp_path: Path, field: str, printed: str, text: str) -> None:
    assert await answer(tmp_path, "cat", printed, field=field) == Answered(text, "program")


@pytest.mark.parametrize(
    "printed", ["", "oops", "[]", '"text"', '{"text": null}', '{"texts": "hi"}', '{"error": "HTTP 429"}', "[" * 50_000]
)
async def test_without_the_field_the_turn_failed_whatever_the_exit_code(tmp_path: Path, printed: str) -> None:
    outcome = await answer(tmp_path, "cat; echo more >&2", printed, field="text")
    text = "Its program ended well, without 'text' in its output."
    assert outcome == Failed(text, "program", output=printed + "more\n")


async def test_a_failure_brings_both_streams(tmp_path: Path) -> None:
    outcome = await answer(tmp_path, "echo 'HTTP 402: pay' >&2; echo partly; exit 3")
    assert outcome == Failed("Its program ended with exit code 3.", "program", output="partly\nHTTP 402: pay\n")


@pytest.mark.parametrize("signal", ["KILL", "TERM"])
async def test_of_a_program_that_somebody_ended_nobody_knows_what_it_did(tmp_path: Path, signal: str) -> None:
    outcome = await answer(tmp_path, f"echo so far; kill -{signal} $$; sleep 1000")
    assert outcome == Lost(f"Its program was ended by SIG{signal}, and not by this hub.", "program")


@pytest.mark.parametrize(("signal", "name"), [("SEGV", "SIGSEGV"), ("40", "signal 40")])
async def test_a_program_that_crashed_failed(tmp_path: Path, signal: str, name: str) -> None:
    outcome = await answer(tmp_path, f"echo so far; kill -{signal} $$; sleep 1000")
    assert outcome == Failed(f"Its program was ended by {name}.", "program", output="so far\n")


async def test_too_long_an_answer_is_a_failure(tmp_path: Path) -> None:
    outcome = await answer(tmp_path, "yes")
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.began) == (Reason.TOO_LARGE, True)


async def test_the_largest_answer_is_kept_whole(tmp_path: Path) -> None:
    outcome = await answer(tmp_path, f"head -c {5 * 1024 * 1024} /dev/zero")
    assert outcome == Answered("\0" * (5 * 1024 * 1024), "program")


async def test_it_knows_what_the_hub_says_and_what_it_was_given(tmp_path: Path) -> None:
    lent = tools(tmp_path, A="of the hub", B="of the hub")
    outcome = await by(lent, ["/usr/bin/env"], environment={"B": "of the agent", "C": "new"})
    assert isinstance(outcome, Answered)
    assert sorted(outcome.text.splitlines()) == [
        "A=of the hub", "ANGELIA_CONVERSATION=bot", "ANGELIA_FROM=alice", "ANGELIA_URL=http://127.0.0.1:18900",
        "B=of the agent", "C=new", "PATH=/usr/bin:/bin",
    ]  # fmt: skip


async def test_it_runs_in_its_folder_or_at_home(tmp_path: Path) -> None:
    assert await answer(tmp_path, "pwd") == Answered(str(tmp_path / "home"), "program")
    assert await answer(tmp_path, "pwd", folder=str(tmp_path)) == Answered(str(tmp_path), "program")


def unstartable(base: Path) -> dict[str, tuple[list[str], str, str]]:
    """(argv, folder, what the sender is told of it) by what is wrong."""
    wrong = base / "wrong"
    wrong.write_text("\x01\x02")
    wrong.chmod(0o755)
    plain = base / "plain"
    plain.write_text("#!/bin/sh\n")
    return {
        "no program": ([str(base / "none")], str(base), "is not there"),
        "no folder": (["/bin/cat"], str(base / "none"), "runs in a folder that is not there"),
        "a file above it": ([str(plain / "cat")], str(base), "is not there"),
        "not executable": ([str(plain)], str(base), "may not be run"),
        "no program at all": ([str(wrong)], str(base), "is no program of this machine"),
    }


@pytest.mark.parametrize("which", ["no program", "no folder", "a file above it", "not executable", "no program at all"])
async def test_what_cannot_be_started_says_what_to_mend_and_no_path(tmp_path: Path, which: str) -> None:
    argv, folder, says = unstartable(tmp_path)[which]
    outcome = await by(tools(tmp_path), argv, folder=folder)
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.began) == (Reason.MISSING_CONFIG, False)
    assert says in outcome.text
    assert "join it anew" in outcome.text
    assert str(tmp_path) not in outcome.text


async def test_what_cannot_be_started_now_may_be_later(tmp_path: Path) -> None:
    """More than the kernel takes: nothing that a person could mend in the configuration of this agent alone."""
    outcome = await by(tools(tmp_path), ["/bin/cat", "x" * 3_000_000])
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.began) == (Reason.RUNTIME_OFFLINE, False)


async def test_a_turn_that_is_stopped_leaves_nothing(tmp_path: Path) -> None:
    script = f"sleep 1000 & echo $! > {tmp_path}/pid; wait"
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(answer(tmp_path, script))
        pid = await number_in(tmp_path / "pid")
        task.cancel()
    assert task.cancelled()
    await eventually(lambda: not runs(pid))


async def test_it_has_no_history_to_look_at(tmp_path: Path) -> None:
    adapter = KIND.make(CommandOptions(argv=["/bin/cat"]), tools(tmp_path))
    assert await adapter.recall(turn()) is None
    await adapter.close()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"argv": []}, "argv begins with the whole path"),
        ({"argv": ["cat"]}, "argv begins with the whole path"),
        ({"argv": ["/bin/cat", "a\0b"]}, "no NUL"),
        ({"folder": "here"}, "folder is a whole path."),
        ({"folder": "/a\0"}, "no NUL"),
        ({"field": ""}, "field is a name"),
        ({"field": "a..b"}, "field is a name"),
        ({"environment": {"ANGELIA_FROM": "boss"}}, "cannot set 'ANGELIA_FROM'"),
        ({"environment": {"angelia_token": "x"}}, "cannot set 'angelia_token'"),
        ({"environment": {"A=B": "x"}}, "cannot set 'A=B'"),
        ({"environment": {"": "x"}}, "cannot set ''"),
        ({"environment": {"A": "a\0b"}}, "a NUL in it"),
        ({"argv": ["/bin/cat", "-"], "folder": "/", "field": "a.0.b", "environment": {"A": "b"}}, None),
    ],
)
def test_options_are_checked(tmp_path: Path, options: dict[str, Any], says: str | None) -> None:
    wrong = KIND.check(CommandOptions(**{"argv": ["/bin/cat"], **options}), tools(tmp_path))
    assert (wrong is None) if says is None else (wrong is not None and says in wrong)


async def test_a_look_tells_whether_a_turn_could_run(tmp_path: Path) -> None:
    lent = tools(tmp_path)
    assert await KIND.detect(CommandOptions(argv=["/bin/cat"]), lent) == Found("/bin/cat", ways=("program",))
    for which in ("no program", "no folder", "not executable"):
        argv, folder, _ = unstartable(tmp_path)[which]
        found = await KIND.detect(CommandOptions(argv=argv, folder=folder), lent)
        assert found.ways == ()
        assert found.problem is not None


async def test_a_message_without_text_is_read_as_the_runner_says(tmp_path: Path) -> None:
    adapter = KIND.make(CommandOptions(argv=[sys.executable, "-c", "print(input())"]), tools(tmp_path))
    outcome = await adapter.run(turn('{"n":1}', envelope(None, b'{"n":1}')))
    assert outcome == Answered('{"n":1}', "program")
