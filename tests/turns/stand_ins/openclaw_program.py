"""Stands in for the ``openclaw`` program, as of 2026.9. What the text says chooses what it does.

It writes what it was given to ``runs.jsonl`` in HOME.
"""

import json
import os
import stat
import sys
from pathlib import Path

GONE = {"type": "gateway", "message": "gateway closed (1006): it may have been applied; its outcome is unknown."}
NOBODY = {"type": "gateway", "message": "gateway connect failed: connect ECONNREFUSED 127.0.0.1:18789"}
REFUSED = {"type": "gateway", "message": "Authentication failed (provider returned HTTP 401)."}


def main(arguments: list[str], home: Path) -> int:
    if "--version" in arguments:
        print("OpenClaw 2026.9.6 (abc)")
        return 0
    path = Path(arguments[arguments.index("--message-file") + 1])
    text = path.read_text(encoding="utf-8")
    with (home / "runs.jsonl").open("a") as file:
        mode = stat.S_IMODE(path.stat().st_mode)
        file.write(json.dumps({"arguments": arguments, "text": text, "mode": mode}) + "\n")
    for word, error in (("GONE", GONE), ("NOBODY", NOBODY), ("REFUSED", REFUSED)):
        if word in text:
            print(json.dumps({"ok": False, "error": error}))
            return 1
    if "BY-ITSELF" in text:
        print("EMBEDDED FALLBACK: the gateway did not answer", file=sys.stderr)
    payloads = [{"text": f"REPLY {text}", "mediaUrl": None, "isError": "IS-ERROR" in text}]
    print(json.dumps({"runId": "r", "status": "ok", "result": {"payloads": payloads, "meta": {}}}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(os.environ["HOME"])))  # noqa: TID251 -- a program of its own
