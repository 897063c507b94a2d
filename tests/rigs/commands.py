"""Many command lines of ``angelia``, one after another in one process: what each said, and how it ended.

``python -m tests.rigs.commands FILE``: the file holds a list of ``{"words": […], "stdin": "…"}`` in JSON; printed is a
list of ``{"code": …, "out": "…", "err": "…"}``. What must stay true: a command is called as the program calls it, with
the words that a shell would have made, and finds standard streams of its own.
"""

import io
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import run
from typing import Any

from angelia.cli.main import main as angelia
from tests.acceptance.hub import ROOT, Hub

SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How one ended."""

    words: list[str]
    code: int
    out: str
    err: str


def commands(at: Hub, lines: Sequence[Sequence[str]], stdin: Sequence[str] = ()) -> list[Ended]:
    """Run these beside a hub, which they find by its folder. ``stdin``: what each reads; else there is nothing."""
    asked = [{"words": list(words), "stdin": stdin[place] if stdin else ""} for place, words in enumerate(lines)]
    file = at.folder / "commands.json"
    file.write_text(json.dumps(asked))
    env = at.cli_environment(PYTHONPATH=f"{at.source or ROOT / 'src'}:{ROOT}")
    line = [sys.executable, "-m", "tests.rigs.commands", str(file)]
    done = run(line, env=env, cwd=at.folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    file.unlink()
    assert done.returncode == 0, done.stderr
    return [Ended(list(words), **each) for words, each in zip(lines, json.loads(done.stdout), strict=True)]


def _one(words: list[str], stdin: str) -> dict[str, Any]:
    streams = sys.stdin, sys.stdout, sys.stderr
    out, err = io.BytesIO(), io.BytesIO()
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8")
    sys.stdout = io.TextIOWrapper(out, "utf-8", write_through=True)
    sys.stderr = io.TextIOWrapper(err, "utf-8", write_through=True)
    try:
        code: object = angelia(words)
    except SystemExit as end:  # so argparse ends
        code = end.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        said = out.getvalue().decode(), err.getvalue().decode()
        sys.stdin, sys.stdout, sys.stderr = streams
    return {"code": code or 0, "out": said[0], "err": said[1]}


if __name__ == "__main__":
    print(json.dumps([_one(each["words"], each["stdin"]) for each in json.loads(Path(sys.argv[1]).read_text())]))
