"""send, reply and ask: what goes in is what goes out, and what is said of it."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.fake_hub import FakeHub, answer, drop, hold, problem
from tests.unit.cli.conftest import Run

ROUTE = "POST /v1/messages"
ID = "0197f0c2a4b17c3e8d21f6a09b5e4c77"
AWKWARD = "“q” 'q' \"q\" `q` $HOME \\n\n\r\n\ttab\x1b[31m \u2028 \u202e 🐝👩\u200d💻 \0 end \n\n"


def sent(*deliveries: tuple[str, str], **more: object) -> Any:
    rows = [{"to": to, "seq": 1, "state": state} for to, state in deliveries]
    return answer({"id": ID, "thread": ID, "deliveries": rows, "duplicate": False, **more}, 201)


@pytest.fixture(autouse=True)
def taken(hub: FakeHub) -> None:
    hub.on(ROUTE, sent(("hermes", "queued")))


# ---- texts


@pytest.mark.parametrize("text", ["hi", AWKWARD.replace("\0", ""), "", "- a\n- b", "añ🐝\n" * 10_000])
def test_a_text_arrives_as_it_was_given(run: Run, hub: FakeHub, text: str) -> None:
    assert run("send", "hermes", text)[0] == 0
    assert hub.requests[0].json["text"] == text


def test_so_does_a_file(run: Run, hub: FakeHub, data_dir: Path) -> None:
    text = AWKWARD * 2000
    (data_dir / "f").write_bytes(text.encode())
    assert run("send", "hermes", "--file", str(data_dir / "f"))[0] == 0
    assert hub.requests[0].json["text"] == text


@pytest.mark.parametrize("words", [["-"], ["--file", "-"]])
def test_so_does_stdin(hub: FakeHub, words: list[str]) -> None:
    text = AWKWARD * 2000
    done = subprocess.run(
        [sys.executable, "-m", "angelia", "send", "hermes", *words],
        input=text.encode(),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert hub.requests[0].json["text"] == text


def test_bytes_that_are_no_utf8_are_refused_with_their_place(run: Run, hub: FakeHub, data_dir: Path) -> None:
    (data_dir / "f").write_bytes(b"ab\xff")
    code, _, err = run("send", "hermes", "--file", str(data_dir / "f"))
    assert code == 2
    assert "byte 0xff at 2" in err
    assert run("send", "hermes", "ab\udcff")[0] == 2
    assert run("send", "herm\udcff", "ab")[0] == 2
    assert not hub.requests


def test_a_body_is_any_json(run: Run, hub: FakeHub) -> None:
    for body in ('{"a": [1, null]}', "null", '"text"', "17"):
        assert run("send", "hermes", "--body", body)[0] == 0
        said = hub.asked(ROUTE)[-1].json
        assert said["body"] == json.loads(body)
        assert "text" not in said


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["", "hi"], "argument TO: it is empty"),
        (["hermes"], "nothing to send"),
        (["hermes", "hi", "--file", "f"], "give one of them"),
        (["hermes", "--file", "/nowhere/at/all"], "cannot be read"),
        (["hermes", "--body", "{"], "no JSON"),
        (["hermes", "--body", "NaN"], "no JSON"),
        (["hermes", "--body", "[-Infinity]"], "no JSON"),
        (["hermes", "--body", "[1e400]"], "no JSON"),
        (["hermes", "hi", "--id", "7"], "no message id"),
        (["hermes", "hi", "--ttl", "soon"], "no time"),
        (["hermes", "hi", "--intent", "shout"], "invalid choice"),
    ],
)
def test_wrong_usage(run: Run, hub: FakeHub, words: list[str], told: str) -> None:
    code, out, err = run("send", *words)
    assert (code, out) == (2, "")
    assert told in err
    assert not hub.requests


# ---- what is sent along, and what is said


def test_everything_that_can_be_said(run: Run, hub: FakeHub) -> None:
    words = ["--intent", "request", "--thread", ID, "--reply-to", ID, "--ttl", "2h", "--id", ID]
    assert run("send", "hermes", "hi", *words)[0] == 0
    assert hub.requests[0].json == {
        "to": "hermes", "text": "hi", "intent": "request", "thread": ID, "in_reply_to": ID, "ttl_seconds": 7200,
        "from": "human", "id": ID,
    }  # fmt: skip


def test_one_plain_line(run: Run, hub: FakeHub) -> None:
    assert run("send", "hermes", "hi") == (0, f"{ID} hermes: queued until it is read\n", "")
    hub.on(ROUTE, sent(("a", "leased"), ("b", "held"), ("c", "queued"), ("d", "queued"), duplicate=True))
    _, out, _ = run("send", "*", "hi")
    assert out == (
        f"{ID} (sent before) a: being handed over, b: held until a person lets it go, "
        "c: queued until it is read, and 1 more\n"
    )


def test_what_mail_for_another_machine_waits_for_is_said(run: Run, hub: FakeHub) -> None:
    row = {"to": "oracle@rack", "seq": 1, "state": "queued", "expected": "waits until rack is connected again"}
    hub.on(ROUTE, answer({"id": ID, "thread": ID, "deliveries": [row], "duplicate": False}, 201))
    assert run("send", "oracle", "hi")[1] == f"{ID} oracle@rack: queued; waits until rack is connected again\n"


def test_who_is_woken_by_it_is_said_to_be(run: Run, hub: FakeHub) -> None:
    hub.on(ROUTE, sent(("a", "queued"), ("b", "leased"), ("c", "queued"), ("d", "queued")))
    for name, adapter in (("a", {"kind": "command"}), ("b", {"kind": "hermes"}), ("c", None)):
        hub.on(f"GET /v1/agents/{name}", answer({"handle": name, "adapter": adapter}))
    told = f"{ID} a is woken by it, b is woken by it, c: queued until it is read, and 1 more\n"
    assert run("send", "*", "hi") == (0, told, "")
    hub.on("GET /v1/agents/a", problem(503, "unwell"))  # what was sent was sent
    assert run("send", "*", "hi")[1].startswith(f"{ID} a: queued until it is read, b is woken by it")


def test_who_did_not_get_it_is_said(run: Run, hub: FakeHub) -> None:
    hub.on(ROUTE, sent(("a", "queued"), refused=[{"to": "b", "code": "mailbox_full", "detail": "It is full."}]))
    code, _, err = run("send", "*", "hi")
    assert code == 0
    assert "not to b: It is full." in err


def test_json(run: Run) -> None:
    code, out, _ = run("--json", "send", "hermes", "hi")
    assert code == 0
    assert json.loads(out)["deliveries"][0]["state"] == "queued"


def test_a_refusal(run: Run, hub: FakeHub) -> None:
    hub.on(ROUTE, problem(404, "unknown_agent", "Nobody here is called 'x\x1b[31m'. Did you mean hermes?"))
    code, out, err = run("send", "x", "hi")
    assert (code, out) == (1, "")
    assert "Did you mean hermes? (unknown_agent)" in err
    assert "\x1b" not in err


def test_a_lost_connection_is_mended_and_nobody_is_bothered(run: Run, hub: FakeHub) -> None:
    hub.on(ROUTE, drop, sent(("hermes", "queued")))
    assert run("send", "hermes", "hi")[0] == 0
    assert len({request.json["id"] for request in hub.asked(ROUTE)}) == 1


# ---- reply


def test_reply(run: Run, hub: FakeHub) -> None:
    hub.on(f"POST /v1/messages/{ID}/reply", sent(("scout", "leased")))
    code, out, _ = run("reply", ID, "done", "--as", "hermes")
    assert (code, out) == (0, f"{ID} scout: being handed over\n")
    assert hub.requests[0].json["text"] == "done"
    assert hub.requests[0].json["from"] == "hermes"


def test_reply_to_what_is_no_id(run: Run, hub: FakeHub) -> None:
    assert run("reply", "../../x", "done")[0] == 2
    assert not hub.requests


# ---- ask


def reply(**more: object) -> Any:
    return answer({"id": ID, "thread": ID, "reply": {"id": "1" * 32, "from": "hermes", **more}})


def test_ask_prints_the_answer_and_nothing_else(run: Run, hub: FakeHub) -> None:
    for text, shown in (("8080", "8080\n"), ("two\nlines\n", "two\nlines\n"), ("", "\n"), (AWKWARD, AWKWARD)):
        hub.on("POST /v1/ask", reply(text=text))
        code, out, err = run("ask", "hermes", "which port?")
        assert (code, err) == (0, "")
        assert out.replace("\r\n", "\n") == shown.replace("\r\n", "\n")


def test_ask_for_a_body(run: Run, hub: FakeHub) -> None:
    hub.on("POST /v1/ask", reply(body={"port": 8080}))
    assert run("ask", "hermes", "which port?") == (0, '{"port": 8080}\n', "")


def test_ask_in_json(run: Run, hub: FakeHub) -> None:
    hub.on("POST /v1/ask", reply(text="8080"))
    code, out, _ = run("ask", "hermes", "which port?", "--json")
    assert code == 0
    assert json.loads(out)["reply"]["text"] == "8080"


def test_ask_that_fails(run: Run, hub: FakeHub) -> None:
    hub.on("POST /v1/ask", answer({"id": ID, "failure": {"reason": "cancelled", "text": "It was withdrawn."}}))
    code, out, err = run("ask", "hermes", "which port?", "--id", ID)
    assert (code, out) == (1, "")
    assert "It was withdrawn. (cancelled)" in err
    assert f"angelia message {ID}" in err


def test_ask_without_an_answer_yet(run: Run, hub: FakeHub) -> None:
    hub.on("POST /v1/ask", answer({"id": ID, "deliveries": [{"to": "hermes", "seq": 1, "state": "leased"}]}, 202))
    code, out, err = run("ask", "hermes", "which port?", "--id", ID, "--wait", "0")
    assert (code, out) == (5, "")
    assert "hermes did not answer" in err
    assert f"angelia message {ID}" in err


def test_ask_that_is_interrupted(hub: FakeHub) -> None:
    hub.on("POST /v1/ask", hold)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background has it ignored, and so its children
    child = subprocess.Popen(
        [sys.executable, "-m", "angelia", "ask", "hermes", "x"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    hub.wait_for("POST /v1/ask")
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=10)
    assert (child.returncode, out, err) == (130, b"", b"")
