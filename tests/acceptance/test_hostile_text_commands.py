"""Hostile texts as words, standard input, files and JSON of the commands, and out of them, to pipes and to a terminal:
each comes out as it went in, a terminal obeys none, and nothing happens.
"""

import json
import os
import pty
import shlex
import subprocess
import sys
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.hub import Hub, environment, eventually
from tests.rigs.commands import Ended, commands
from tests.rigs.hostile import SCRIPTS
from tests.rigs.hostile_place import SECONDS, Place, adapter, answering, claimed, find, own_box, quiet, same

WORD = "heliotrope"  # stands in no text
FAILS = ["/bin/sh", "-c", "cat >&2; exit 1"]
KEEPS = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + '\\n')"
# What a terminal obeys, or shows as something else than it is.
ACTS = {chr(code) for code in (*range(9), *range(11, 32), *range(127, 160), *range(0xE0000, 0xE0080))} | set(
    "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200b\u2028\u2029\ufeff\u200e\u200f\u061c"
)


@pytest.fixture(scope="module")
def town() -> Iterator[Place]:
    limits = {"ANGELIA_LIMITS_READER_ATTEMPTS": "1", "ANGELIA_LIMITS_TURN_ATTEMPTS": "1"}
    at = Hub(env={"ANGELIA_HERMES_HOME": "off", **limits})
    with quiet(at) as place:
        yield place


@pytest.fixture
def place(town: Place) -> Iterator[Place]:
    yield town
    town.nothing_happened()


@pytest.fixture
def box(town: Place) -> str:
    """A name that this test alone uses."""
    return own_box(town.at)


def well(ended: list[Ended]) -> list[Ended]:
    """All of them went well."""
    assert not [each for each in ended if each.code != 0]
    return ended


def others(place: Place) -> dict[str, str]:
    """All but the dash, which as a word says that the text is on standard input."""
    return {name: text for name, text in place.texts.items() if text != "-"}


# -------------------------------------------------------------------------------------------------------------- doors


def test_as_a_word_of_send(place: Place, box: str) -> None:
    """Behind ``--`` any text is one."""
    texts = others(place)
    well(commands(place.at, [["send", "--as", "sender", box, "--", text] for text in texts.values()]))
    found = claimed(place.at, box, len(texts))
    same(dict(zip(texts, found, strict=True)), texts)


def test_as_a_word_that_might_be_an_option(place: Place, box: str) -> None:
    """Without ``--`` it is a text where it does not begin with a dash, or holds white space; else it is what it looks
    like, which is refused, or shows help. The commands' words are split and read by nobody else."""
    might = [word for word in (*SCRIPTS, "--json", "-o x", "- a list\n- of two", "$(id)", "~", "*") if word != "-"]
    ended = commands(place.at, [["send", "--as", "sender", box, word] for word in might])
    sent = [text for text in might if not text.startswith("-") or any(sign.isspace() for sign in text.split("=")[0])]
    assert claimed(place.at, box, len(sent)) == sent
    assert [each.words[-1] for each in ended if each.code == 0] == [text for text in might if text in [*sent, "--help"]]
    assert not place.at.claim(box)


@pytest.mark.parametrize(
    "word", ["-n", "--help", "--", "-rf /", "@file", "--data-dir=/tmp/x", "--json", "$(touch {mark})"]
)
def test_as_a_word_that_the_kernel_hands_on(place: Place, box: str, word: str) -> None:
    """As a shell starts it, as a process of its own."""
    word = word.replace("{mark}", str(place.mark))
    done = place.at.run("send", "--as", "sender", box, "--", word)
    assert done.returncode == 0, done.stderr
    assert claimed(place.at, box, 1) == [word]


def test_on_standard_input_in_a_file_and_in_json(place: Place, box: str) -> None:
    """Those of Hermes' own tool are trimmed, as it trims them; what shares a way with others takes some of them."""
    send, tool = ["send", "--as", "sender", box], ["message-agent", "--as", "sender"]
    some = place.all[::4]
    lines = [[*send, "-"]] * len(place.all) + [tool] * len(place.all)
    lines += [[*send, "--file", "-"]] * len(some) + [[*tool, "--target", box]] * len(some)
    lines += [[*send, "--body", json.dumps({text: [text]})] for text in some]
    asked = [json.dumps({"target": box, "message": text}) for text in place.all]
    trimmed = [text.strip() for text in place.all]
    well(commands(place.at, lines, [*place.all, *asked, *some, *some, *("" for _ in some)]))
    found = claimed(place.at, box, len(lines))
    ends = len(lines) - len(some)
    assert found[:ends] == [*place.all, *trimmed, *some, *trimmed[::4]]
    assert [json.loads(body) for body in found[ends:]] == [{text: [text]} for text in some]
    file = place.at.folder / "text"
    file.write_bytes("\r\n\0".join(place.all).encode())
    well(commands(place.at, [[*send, "--file", str(file)]]))
    assert claimed(place.at, box, 1) == [file.read_bytes().decode()]
    file.unlink()


def test_as_a_question_and_as_its_printed_answer(place: Place, box: str) -> None:
    texts = others(place)
    with answering(place.at, box) as heard:
        asked = well(commands(place.at, [["ask", "--as", "asker", box, "--", text] for text in texts.values()]))
    assert heard == list(texts.values())
    printed = {name: text if text.endswith("\n") else f"{text}\n" for name, text in texts.items()}
    same(dict(zip(texts, [each.out for each in asked], strict=True)), printed)


def test_as_a_word_of_reply(place: Place, box: str) -> None:
    texts = others(place)
    ids = [id for id, text in zip(place.send_all(box, intent="request"), place.all, strict=True) if text != "-"]
    lines = [["reply", "--as", box, id, "--", text] for id, text in zip(ids, texts.values(), strict=True)]
    well(commands(place.at, lines))
    same(dict(zip(texts, [place.at.receipt(id)["reply"]["text"] for id in ids], strict=True)), texts)


# -------------------------------------------------------------------------------------------------------------- hands


def listening(place: Place, name: str, *words: str) -> "subprocess.Popen[bytes]":
    env = environment(place.at.base / "hermes", **{"ANGELIA_DATA_DIR": str(place.at.folder)})
    line = [sys.executable, "-m", "angelia", "listen", "--as", name, *words]
    return subprocess.Popen(line, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=place.at.folder)


@pytest.mark.parametrize("way", ["standard output", "a FIFO"])
def test_by_a_listener(place: Place, box: str, way: str) -> None:
    pipe = place.at.folder / f"{box}.pipe"
    os.mkfifo(pipe, 0o600)
    process = listening(place, box, *(["--fifo", str(pipe)] if way == "a FIFO" else ["--json"]))
    try:
        place.send_all(box)
        source = pipe.open("rb") if way == "a FIFO" else process.stdout
        assert source is not None
        lines = [source.readline() for _ in place.texts]
        if way == "a FIFO":
            source.close()
    finally:
        process.terminate()
        process.communicate(timeout=SECONDS)
        pipe.unlink()
    assert all(line.isascii() for line in lines)
    place.equal([find(json.loads(line), "text") for line in lines])


def test_by_a_listener_that_runs_a_command(place: Place, box: str) -> None:
    """On its standard input; the words of its line are those that its owner wrote."""
    kept = place.at.folder / "kept"
    line = [sys.executable, "-I", "-S", "-c", KEEPS, str(kept)]
    process = listening(place, box, "--exec", shlex.join(line))
    try:
        place.send_all(box)
        eventually(lambda: kept.exists() and kept.read_text().count("\n") >= len(place.texts), SECONDS)
    finally:
        process.terminate()
        process.communicate(timeout=SECONDS)
    place.equal([find(json.loads(line), "text") for line in kept.read_text("utf-8").split("\n")[:-1]])
    kept.unlink()


# What shows a person what others wrote. ``BOX``, ``ID``: of this test.
SHOW = {
    "inbox": ("inbox", "--as", "BOX", "--limit", "100"),
    "message": ("message", "ID"),
    "threads": ("threads", "--limit", "100"),
    "thread": ("thread", "ID"),
    "search": ("search", WORD, "--limit", "100"),
    "dead": ("dead",),
    "agents": ("agents",),
    "status": ("status",),
    "briefing": ("briefing", "--as", "BOX"),
    "turns": ("turns", "--all"),
    "wake": ("wake", "BOX-says"),
}


def test_what_a_terminal_gets_does_nothing_to_it(place: Place, box: str, tmp_path: Path) -> None:
    """Each command that shows a peer's text to a person works, and no escape, no control, nothing hidden gets through;
    and as JSON it is ASCII alone (of the texts one in four is looked at so)."""
    at, whole = place.at, "\n".join(place.all)
    says = tmp_path / "says"
    says.write_text(whole)
    ids = place.send_all(box, body=WORD)
    for taken in at.claim(box, 9):
        assert at.lease(taken["lease"]["token"], "nack").json["state"] == "dead"
    for number, text in enumerate(place.all):
        given = {"title": text[:100], "description": text}
        assert at.call("PUT", f"/v1/agents/{box}-{number}", given, admin=True).status in (200, 201)
    adapter(at, f"{box}-says", {"kind": "command", "argv": ["/bin/cat", str(says)]})
    adapter(at, f"{box}-fails", {"kind": "command", "argv": FAILS})
    failing = at.send(f"{box}-fails", whole, "asker", intent="request")["id"]
    eventually(lambda: at.receipt(failing).get("failure"), SECONDS)
    lines = [["message", id] for id in ids] + [["message", failing]]
    lines += [[word.replace("BOX", box).replace("ID", ids[20]) for word in words] for words in SHOW.values()]
    for each in well(commands(at, lines)):
        harmless(each.out + each.err, each.words)
    some = dict(list(zip(ids, place.all, strict=True))[::4])
    lines = [["message", id] for id in some] + lines[len(ids) :]
    in_json = well(commands(at, [[*words, "--json"] for words in lines]))
    for each in in_json:
        assert each.out.isascii(), each.words
        assert not set(each.out) & ACTS, each.words
    same({each.words[1]: find(json.loads(each.out), "text") for each in in_json[: len(some)]}, some)
    for name in ("says", "fails", *range(len(place.texts))):
        at.call("DELETE", f"/v1/agents/{box}-{name}", admin=True)


def harmless(said: str, where: object) -> None:
    acts = {letter for letter in said if not letter.isprintable() and letter not in "\n\t"}
    assert not acts & ACTS, (where, acts & ACTS)


@pytest.mark.parametrize("command", ["tail", "ask"])
def test_what_goes_on_at_a_terminal_does_nothing_to_it(place: Place, box: str, command: str) -> None:
    """``tail`` of all that happens, and the answer to ``ask``, at a real one."""
    place.send_all(box)
    ends = {"tail": ["--last", "100", "--agent", box], "ask": ["--as", "asker", f"{box}-ask", "-"]}
    whole = "\n".join([*place.all, "that is all"])
    here, there = pty.openpty()
    tty.setraw(there)
    line = [sys.executable, "-m", "angelia", command, *ends[command]]
    with (
        answering(place.at, f"{box}-ask"),
        subprocess.Popen(
            line, env=place.at.cli_environment(TERM="xterm"), cwd=place.at.folder,
            stdin=subprocess.PIPE, stdout=there, stderr=there,
        ) as process,
    ):  # fmt: skip
        os.close(there)
        assert process.stdin is not None
        process.stdin.write(whole.encode() if command == "ask" else b"")
        process.stdin.close()
        said = b""
        last = b"that is all" if command == "ask" else b"jndi"  # of the last text
        while last not in said:
            said += os.read(here, 65536)
        process.terminate()
    os.close(here)
    harmless(said.decode("utf-8", "ignore"), command)
    assert "alert(1)" in said.decode("utf-8", "ignore")
