"""A gateway of Hermes' that begins and then says nothing: it is no connection that is up."""

import shlex
import sys
import time
from pathlib import Path

import pytest

from tests.acceptance.hub import MARGIN, eventually, hub
from tests.acceptance.linked import ENVIRONMENT, connection

READY = '{"jsonrpc": "2.0", "method": "event", "params": {"type": "gateway.ready", "payload": {}}}'
SILENT = f"""
import time
print({READY!r}, flush=True)
time.sleep(600)
"""
OLD = f"""
import json, sys
print({READY!r}, flush=True)
for line in sys.stdin:
    error = {{"code": -32601, "message": "unknown method"}}
    print(json.dumps({{"jsonrpc": "2.0", "id": json.loads(line)["id"], "error": error}}), flush=True)
"""

pytestmark = pytest.mark.timeout(120)


def target(folder: Path, program: str) -> str:
    path = folder / "gateway.py"
    path.write_text(program)
    return f"exec:{shlex.join([sys.executable, str(path)])}"


def test_a_gateway_that_answers_nothing_is_never_up(tmp_path: Path) -> None:
    with hub(env=ENVIRONMENT) as here:
        began = time.monotonic()
        done = here.run("connect", "mute", target(tmp_path, SILENT))
        assert 9 < time.monotonic() - began < 10 * MARGIN
        words = "mute is kept, but it cannot be reached: The gateway there did not answer within 10 s."
        assert (done.returncode, done.stdout.strip()) == (1, words)
        assert connection(here, "mute")["up"] is False
        assert "mute has been down" in here.run("status").stdout
        assert here.run("disconnect", "mute").returncode == 0
        assert "mute is connected" not in here.output()


def test_one_that_knows_no_ping_has_answered(tmp_path: Path) -> None:
    with hub(env=ENVIRONMENT) as here:
        here.run("connect", "old", target(tmp_path, OLD))
        eventually(lambda: connection(here, "old")["up"], 10 * MARGIN, "it is up")
