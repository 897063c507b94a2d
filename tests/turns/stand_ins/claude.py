"""Stands in for ``claude -p``: prints what Claude Code 2.1.332 printed in each case, less the fields that nobody reads.

The case is the first word ``CASE:name`` in the prompt; without one it answers ``REPLY[n]``, n being how often its
session was asked. As the real one it keeps a transcript below ``$HOME/.claude``, refuses a session that exists, and
prints no JSON where its arguments are wrong. What it was called with goes to ``$STAND_IN_LOG``, a line each time.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any, NoReturn

ENVIRONMENT = dict(os.environ)  # noqa: TID251 - a program of its own
MODEL = "claude-opus-5-5"
COST = 0.00012
HELP = """Usage: claude [options]
  --input-format <format>   Input format (choices: "text", "stream-json")
  --output-format <format>  Output format (choices: "text", "json", "stream-json")
  --model <model>           Model for the current session
  -r, --resume [value]      Resume a conversation by session ID
  --session-id <uuid>       Use a specific session ID for the conversation
  --verbose                 Override the verbose setting
"""
# What the result says, with the class of the error on the last message.
ERRORS: dict[str, tuple[str | None, dict[str, Any]]] = {
    "401": (
        "authentication_failed",
        {"api_error_status": 401, "terminal_reason": "api_error", "result": "Invalid API key · Fix external API key"},
    ),
    "402": (
        "unknown",
        {
            "api_error_status": 402,
            "terminal_reason": "api_error",
            "result": "API Error: 402 Insufficient credits. Add more credits.",
        },
    ),
    "429": (
        "rate_limit",
        {
            "api_error_status": 429,
            "terminal_reason": "api_error",
            "result": "API Error: Request rejected (429) · Rate limit reached for requests.",
        },
    ),
    "quota": (
        "rate_limit",
        {
            "api_error_status": 429,
            "terminal_reason": "api_error",
            "result": "API Error: Request rejected (429) · You exceeded your current quota, please check your plan.",
        },
    ),
    "plan": (
        "rate_limit",
        {
            "api_error_status": 429,
            "terminal_reason": "api_error",
            "result": "You've hit your session limit · resets 3am",
        },
    ),
    "context": (
        "invalid_request",
        {
            "api_error_status": 400,
            "terminal_reason": "prompt_too_long",
            "result": "Prompt is too long · the request is ~250000 tokens (limit 200000)",
        },
    ),
    "500": (
        "server_error",
        {
            "api_error_status": 500,
            "terminal_reason": "api_error",
            "result": "API Error: 500 Internal server error. Check your inference gateway (127.0.0.1:18080).",
        },
    ),
    "drop": (
        "server_error",
        {
            "api_error_status": None,
            "terminal_reason": "api_error",
            "result": "API Error: Connection dropped (ECONNRESET). Check the gateway set in ANTHROPIC_BASE_URL.",
        },
    ),
    "model": (
        "model_not_found",
        {"api_error_status": 404, "terminal_reason": "api_error", "result": "There's an issue with the selected model"},
    ),
    "login": (
        "authentication_failed",
        {"api_error_status": None, "terminal_reason": "api_error", "result": "Not logged in · Please run /login"},
    ),
    "turns": (None, {"subtype": "error_max_turns", "terminal_reason": "max_turns"}),
    "fault": (None, {"subtype": "error_during_execution", "errors": ["something of its own broke"]}),
}
# Results that say success, and are none.
FALSE: dict[str, dict[str, Any]] = {
    "command": {"num_turns": 0, "result": "/help isn't available in this environment."},
    "wordless": {"result": ""},
    "no_result": {},
    "error_success": {"is_error": True, "result": "a text that is no answer"},
}


def main() -> None:
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        print("2.1.332 (Claude Code)")
        return
    if arguments == ["--help"]:
        print(HELP.replace("--session-id", "--nothing") if ENVIRONMENT.get("STAND_IN_OLD") else HELP)
        return
    session = arguments[arguments.index("--resume" if "--resume" in arguments else "--session-id") + 1]
    transcript = Path(ENVIRONMENT["HOME"], ".claude/projects/-home-proj", f"{session}.jsonl")
    if "--session-id" in arguments and transcript.exists():
        _end(1, f"Error: Session ID {session} is already in use.\n")
    if "--resume" in arguments and not transcript.exists():
        error = f"No conversation found with session ID: {session}"
        _say(type="result", subtype="error_during_execution", is_error=True, num_turns=0, errors=[error])
        _end(1, error + "\n")
    if ENVIRONMENT.get("STAND_IN_DEAF"):
        os.close(0)
        _say(type="result", subtype="success", is_error=False, num_turns=1, result="I did not listen.")
        time.sleep(1)  # it lives on, so that whoever writes to it finds nobody
        return
    line = sys.stdin.readline()
    with open(ENVIRONMENT["STAND_IN_LOG"], "a") as log:
        log.write(json.dumps({"argv": arguments, "stdin": line, "environment": ENVIRONMENT, "pid": os.getpid()}) + "\n")
    if "--resume" in arguments and ENVIRONMENT.get("STAND_IN_FORKS"):  # as releases of 2025 did
        transcript = transcript.with_stem(session := str(uuid.uuid4()))
    message = json.loads(line)["message"]
    found = re.search(r"CASE:(\w+)", message["content"][0]["text"])
    transcript.parent.mkdir(parents=True, exist_ok=True)
    _Turn(session, transcript).run(message, found[1] if found else "")


class _Turn:
    def __init__(self, session: str, transcript: Path) -> None:
        self.session, self.transcript = session, transcript
        rows = transcript.read_text() if transcript.exists() else ""
        self.number = rows.count('"type": "user"') + 1
        self.total = rows.count('"cost-state"') * COST

    def run(self, message: dict[str, Any], case: str) -> None:
        if case == "early":
            _end(1, "error: unknown option '--input-format'\n")
        self.keep(type="user", message=message)
        _say(type="system", subtype="init", session_id=self.session, model=MODEL)
        if case in ERRORS:
            self.fail(*ERRORS[case])
        if case == "killed":
            signal.pause()
        if case == "noisy":
            print("a banner that is no JSON")
            print(json.dumps({"type": "user", "message": {"content": "x" * 20_000_000}}))
            print('{"type": "result", broken')
        if case == "silent":
            return
        if case == "holding":  # its own child keeps the pipes, and it ends without a result
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
            return
        text = f"REPLY[{self.number}] {message['content'][0]['text'][-80:]}"
        self.answer(text)
        result: dict[str, Any] = FALSE.get(case, {"result": text})
        if case == "denied":
            result["permission_denials"] = [{"tool_name": "Write"}, {"tool_name": "Bash"}, {"tool_name": "Write"}]
        self.keep(type="cost-state", totalCostUSD=self.total + COST)
        usage = {"input_tokens": 5, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 3, "output_tokens": 4}
        _say(
            type="result",
            **{"subtype": "success", "is_error": False, "num_turns": 1, "permission_denials": [], **result},
            usage=usage,
            total_cost_usd=self.total + COST,
        )
        if case == "lingering":
            time.sleep(60)

    def answer(self, text: str) -> None:
        thinking = {"id": "msg_1", "model": MODEL, "content": [{"type": "thinking"}], "stop_reason": None}
        spoken = {"id": "msg_1", "model": MODEL, "content": [{"type": "text", "text": text}], "stop_reason": None}
        _say(type="assistant", message=thinking, parent_tool_use_id=None)
        _say(type="assistant", message=spoken, parent_tool_use_id=None)
        self.keep(type="assistant", message={**thinking, "stop_reason": "end_turn"})
        self.keep(type="assistant", message={**spoken, "stop_reason": "end_turn"})

    def fail(self, kind: str | None, result: dict[str, Any]) -> NoReturn:
        if kind is not None:
            blocks = [{"type": "text", "text": result["result"]}]
            message = {"id": "e1", "model": "<synthetic>", "content": blocks, "stop_reason": "stop_sequence"}
            _say(type="assistant", message=message, error=kind, parent_tool_use_id=None)
            status = result["api_error_status"]
            self.keep(type="assistant", message=message, error=kind, isApiErrorMessage=True, apiErrorStatus=status)
        _say(**{"type": "result", "subtype": "success", "is_error": True, "num_turns": 1, **result})
        _end(1, "")

    def keep(self, **row: object) -> None:
        with self.transcript.open("a") as file:
            file.write(json.dumps(row) + "\n")


def _say(**event: object) -> None:
    print(json.dumps(event), flush=True)


def _end(code: int, words: str) -> NoReturn:
    sys.stderr.write(words)
    sys.stderr.flush()
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
