"""Stands in for the ``hermes`` of a release that takes a text from a file. What the text says chooses what it does.

It writes what it was given (arguments, variables, the file's text and mode) to ``runs.jsonl`` in HERMES_HOME. A release
without ``--query-file`` is one with a file ``old`` there.
"""

import json
import os
import signal
import stat
import sys
from pathlib import Path

NEW = "-q QUERY --query-file FILE --create-if-missing --in DIR"
OLD = "-q QUERY -Q --resume SESSION_ID"


def main(arguments: list[str], variables: dict[str, str]) -> int:
    home = Path(variables["HERMES_HOME"])
    if "--version" in arguments:
        print("Hermes Agent v0.21.0")
        return 0
    if "--help" in arguments:
        print(OLD if (home / "old").exists() else NEW)
        return 0
    path = Path(arguments[arguments.index("--query-file") + 1])
    text = path.read_text(encoding="utf-8")
    title = arguments[arguments.index("-c") + 1]
    runs = home / "runs.jsonl"
    earlier = [json.loads(line) for line in runs.read_text().splitlines()] if runs.exists() else []
    run = {
        "arguments": arguments,
        "text": text,
        "title": title,
        "path": str(path),
        "mode": stat.S_IMODE(path.stat().st_mode),
        "variables": variables,
    }
    with runs.open("a") as file:
        file.write(json.dumps(run) + "\n")
    return answer(text, 1 + sum(before["title"] == title for before in earlier))


def answer(text: str, number: int) -> int:
    session = "session_id: 20261129_120000_abc"
    if "LIVE-BEFORE-THE-MARKER" in text:
        print("Session 20261129 already has a live owner (desktop, pid 7)", file=sys.stderr)
        return 1
    if "NOT-OWNED" in text:
        print("hermes-refusal-reason: SESSION_NOT_OWNED", file=sys.stderr)
        return 1
    if "OTHER-REFUSAL" in text:
        print("hermes-refusal-reason: SESSION_BROKEN\nit already has a live owner, or not", file=sys.stderr)
        return 1
    if "WITHOUT-A-SESSION" in text:
        return 0
    if "HANG" in text:
        signal.pause()
    if "KILLED" in text:
        os.kill(os.getpid(), signal.SIGKILL)
    print(session, file=sys.stderr)
    if "FAIL-401" in text:
        print("HTTP 401: Incorrect API key provided.")
        return 1
    if "CUT" in text:
        print("API call failed after 3 retries: Connection error.")
        return 1
    if "ZERO-AND-FAILED" in text:
        print("API call failed after 3 retries: HTTP 429: Rate limit reached.")
        return 0
    print(f"REPLY[{number}] {text}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], dict(os.environ)))  # noqa: TID251 -- a program of its own: this is what it was given
