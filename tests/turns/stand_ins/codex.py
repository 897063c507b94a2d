"""Stands in for ``codex exec --json``: prints what Codex 0.171.0 printed in each case.

The case is the first word ``CASE:name`` in the prompt; without one it answers ``REPLY[n]``, n being how often its
thread was asked. As the real one it keeps a record of each thread below ``$HOME/.codex``, counts tokens for the whole
thread, lets one process write to a thread, and begins a new one for a name that it does not know. What it was called
with goes to ``$STAND_IN_LOG``, a line each time.
"""

import json
import os
import re
import signal
import sys
import uuid
from pathlib import Path
from typing import Any, NoReturn

ENVIRONMENT = dict(os.environ)  # noqa: TID251 - a program of its own
EXEC_HELP = "Usage: codex exec [OPTIONS] [PROMPT]\nCommands:\n  resume\nOptions:\n  --skip-git-repo-check\n  --json\n"
RESUME_HELP = "Usage: codex exec resume [OPTIONS] [SESSION_ID] [PROMPT]\n  If `-` is used, read from stdin\n  --json\n"
WARNING = "Model metadata for `fake-model` not found. Defaulting to fallback metadata; this can degrade performance."
# What `turn.failed` says, and the class of it in the thread's record.
FAULTS: dict[str, tuple[str, Any]] = {
    "401": (
        "unexpected status 401 Unauthorized: Incorrect API key provided: sk-fake., url: http://127.0.0.1:18080/v1",
        {"http_connection_failed": {"http_status_code": 401}},
    ),
    "402": (
        "unexpected status 402 Payment Required: Insufficient credits., url: http://127.0.0.1:18080/v1/responses",
        {"http_connection_failed": {"http_status_code": 402}},
    ),
    "429": (
        "exceeded retry limit, last status: 429 Too Many Requests",
        {"response_too_many_failed_attempts": {"http_status_code": 429}},
    ),
    "quota": ("Quota exceeded. Check your plan and billing details.", "usage_limit_exceeded"),
    "plan": ("You've hit your usage limit. Try again at 5:04 PM.", "usage_limit_exceeded"),
    "context": (
        "Codex ran out of room in the model's context window. Start a new thread or clear earlier history.",
        "context_window_exceeded",
    ),
    "500": ("We’re currently experiencing high demand, which may cause temporary errors.", "internal_server_error"),
    "drop": ("stream disconnected before completion: error sending request", "other"),
    "key": ("Missing environment variable: `FAKE_KEY`.", "other"),
    "full": ("The model that you chose cannot take you on.", "server_overloaded"),
    "fault": ("something of its own broke", "other"),
}


def main() -> None:
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        print("codex-cli 0.171.0")
        return
    if arguments[-1] == "--help":
        print(RESUME_HELP if "resume" in arguments else EXEC_HELP.replace("--json", ENVIRONMENT.get("JSON", "--json")))
        return
    sys.stderr.write("WARNING: proceeding, even though we could not create PATH aliases\n")
    resumed = arguments[arguments.index("resume") + 1] if "resume" in arguments else None
    thread = _known(resumed) if resumed else None
    thread = thread or str(uuid.uuid4())
    home = Path(ENVIRONMENT["HOME"], ".codex/sessions/2026/11/29")
    home.mkdir(parents=True, exist_ok=True)
    if (home / f"{thread}.lock").exists():
        _refuse(f"thread {thread} already has an active writer (code -32600)")
    text = sys.stdin.read()
    with open(ENVIRONMENT["STAND_IN_LOG"], "a") as log:
        call = {"argv": arguments, "stdin": text, "environment": ENVIRONMENT, "pid": os.getpid()}
        log.write(json.dumps(call) + "\n")
    found = re.search(r"CASE:(\w+)", text)
    _Turn(thread, home / f"rollout-2026-11-29T21-34-35-{thread}.jsonl").run(text, found[1] if found else "")


def _known(name: str) -> str | None:
    """The thread of this name; a name that is no id is a wish for a new one."""
    try:
        uuid.UUID(name)
    except ValueError:
        return None
    if not any(Path(ENVIRONMENT["HOME"], ".codex/sessions").glob(f"*/*/*/rollout-*-{name}.jsonl")):
        _refuse(f"no rollout found for thread id {name} (code -32600)")
    return name


class _Turn:
    def __init__(self, thread: str, record: Path) -> None:
        self.thread, self.record = thread, record
        self.number = (record.read_text().count('"task_started"') if record.exists() else 0) + 1

    def run(self, text: str, case: str) -> None:
        if case == "early":
            _end(2, "error: unexpected argument '--json' found\n")
        self.keep("event_msg", type="task_started", turn_id=str(self.number))
        self.keep("turn_context", turn_id=str(self.number), model="fake-model")
        self.said("user", "input_text", text)
        _say(type="thread.started", thread_id=self.thread)
        _say(type="item.completed", item={"id": "item_0", "type": "error", "message": WARNING})
        _say(type="turn.started")
        if case == "killed":
            signal.pause()
        if case == "silent":
            return
        if case in FAULTS:
            self.fail(*FAULTS[case])
        answer = "" if case == "wordless" else f"REPLY[{self.number}] {text[-80:]}"
        if answer:
            _say(type="item.completed", item={"type": "agent_message", "text": "I shall look."})
            _say(type="item.completed", item={"type": "agent_message", "text": answer})
        self.said("assistant", "output_text", answer)
        total = {"input_tokens": 5 * self.number, "output_tokens": 4 * self.number}
        self.keep("event_msg", type="token_count", info={"total_token_usage": total})
        self.keep("event_msg", type="task_complete", turn_id=str(self.number), last_agent_message=answer or None)
        if case == "unfinished":
            return
        _say(type="turn.completed", usage={**total, "cached_input_tokens": 0})

    def fail(self, message: str, kind: Any) -> NoReturn:
        error = {"message": message, "codex_error_info": kind}
        self.keep("event_msg", type="task_complete", turn_id=str(self.number), last_agent_message=None, error=error)
        _say(type="error", message=f"Reconnecting... 1/1 ({message})")
        _say(type="error", message=message)
        _say(type="turn.failed", error={"message": message})
        _end(1, "")

    def said(self, role: str, kind: str, text: str) -> None:
        self.keep("response_item", type="message", role=role, content=[{"type": kind, "text": text}])

    def keep(self, kind: str, **payload: object) -> None:
        with self.record.open("a") as file:
            file.write(json.dumps({"type": kind, "payload": payload}) + "\n")


def _say(**event: object) -> None:
    print(json.dumps(event), flush=True)


def _refuse(why: str) -> NoReturn:
    _end(1, f"Error: thread/resume: thread/resume failed: {why}\n\nStack backtrace:\n   0: <unknown>\n")


def _end(code: int, words: str) -> NoReturn:
    sys.stderr.write(words)
    sys.stderr.flush()
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
