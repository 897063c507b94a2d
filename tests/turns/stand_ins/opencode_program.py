"""Stands in for the ``opencode`` program, 1.18: ``run``, ``export``, ``--version`` and ``run --help``.

The last line of the text on standard input says what it does. ``STAND_IN_LOG``: what it was called with is noted there.
Sessions are kept beside the log, as ``export`` prints them.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

ENVIRONMENT = dict(os.environ)  # noqa: TID251 - a program of its own
LOG = ENVIRONMENT["STAND_IN_LOG"]
sys.path.insert(0, str(Path(__file__).parents[3]))  # it is run alone, wherever

from tests.turns.stand_ins.opencode_errors import ERRORS  # noqa: E402


def event(kind: str, session: str, **fields: Any) -> None:
    print(json.dumps({"type": kind, "sessionID": session, **fields}), flush=True)


def say(session: str, number: int, text: str, *, reason: str | None = "stop") -> dict[str, Any]:
    message = f"msg_a{number}"
    event("step_start", session, part={"type": "step-start", "messageID": message})
    event("text", session, part={"type": "text", "messageID": message, "text": text})
    if reason is not None:
        tokens = {"input": 5, "output": 7}
        part = {"type": "step-finish", "messageID": message, "reason": reason, "tokens": tokens, "cost": 0.25}
        event("step_finish", session, part=part)
    info = {"role": "assistant", "id": message, "parentID": f"msg_q{number}", "finish": reason, "modelID": "m"}
    return {"info": info, "parts": [{"type": "text", "text": text}]}


def run(argv: list[str], text: str) -> int:
    word = text.split("\n")[-1]
    session = argv[argv.index("--session") + 1] if "--session" in argv else f"ses_{os.getpid()}"
    path = Path(f"{LOG}.{session}")
    if "--session" in argv and not path.exists():
        print("\033[91mError: \033[0mSession not found", file=sys.stderr)
        return 1
    messages: list[Any] = json.loads(path.read_text()) if path.exists() else []
    number = len([message for message in messages if message["info"]["role"] == "user"]) + 1
    messages.append({"info": {"role": "user", "id": f"msg_q{number}"}, "parts": [{"type": "text", "text": text}]})
    path.write_text(json.dumps(messages))
    if word in ERRORS:
        event("error", session, error=ERRORS[word])
        event("error", session, error={"name": "APIError", "data": {"message": "later", "statusCode": 401}})
        return 1
    if word == "EXIT_1":
        print("error: rate limit reached", file=sys.stderr)
        return 1
    if word == "EXIT_0":
        return 0
    if word in ("HALF", "DIE", "HANG", "RETRY"):
        say(session, number, "half an answer", reason=None)
        while word == "RETRY":
            line = f'time={time.time()} level=ERROR message="stream error" error.error="AI_APICallError: server error"'
            print(line, file=sys.stderr, flush=True)
            time.sleep(0.2)
        if word == "DIE":
            os.kill(os.getpid(), 9)
        if word != "HALF":
            time.sleep(600)
        return 0
    if word == "FLOOD":
        for _ in range(12):
            say(session, number, "x" * 500_000, reason=None)
        time.sleep(600)
    if word == "LONG_LINE":
        say(session, number, "x" * 20_000_000, reason=None)
        time.sleep(600)
    if word == "TOOLS":
        say(session, number, "I look.", reason="tool-calls")
        print("a line that is no event")
        number += 100
    answer = say(session, number, f"REPLY[{number}] {word}")
    if word == "TOOLS":
        answer["info"]["parentID"] = f"msg_q{number - 100}"
    path.write_text(json.dumps([*messages, answer]))
    if word == "LINGER":
        time.sleep(600)
    return 0


def main() -> int:
    argv = sys.argv[1:]
    if argv == ["--version"]:
        print("1.18.33")
        return 0
    if argv == ["run", "--help"]:
        print(ENVIRONMENT.get("STAND_IN_HELP", "--format --session --print-logs --auto"))
        return 0
    text = "" if argv[0] == "export" else sys.stdin.read()
    with Path(LOG).open("a") as log:
        note = {"argv": argv, "stdin": text, "environment": ENVIRONMENT, "pid": os.getpid()}
        log.write(json.dumps(note) + "\n")
    if argv[0] == "export":
        path = Path(f"{LOG}.{argv[1]}")
        print(json.dumps({"info": {}, "messages": json.loads(path.read_text())}) if path.exists() else "")
        return 0
    return run(argv, text)


sys.exit(main())
