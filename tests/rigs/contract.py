"""Is `/openapi.json` true? schemathesis makes requests of it, at a real hub, for each kind of caller: an open one, an
agent with its token, and an admin.

    python -m tests.rigs.contract --seed N --minutes M

A breach is an answer of 5xx, or one whose status, kind or shape the document does not name. `/v1/down` is left out, and
so are the streams, which do not end: `tests/acceptance/test_contract.py` looks at those.
"""

import argparse
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acceptance.hub import ROOT, Hub, environment

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
    "response_schema_conformance,unsupported_method,allow_header_conformance"
)
LEFT_OUT = "(/stream|/subscribe|/events|/down)$"
CALLERS = ("open", "agent", "admin")
COUNTED = re.compile(r"(\d+) generated")


@dataclass(frozen=True, slots=True)
class Result:
    """What a run did: requests made, and what schemathesis said; ``well`` where it found nothing."""

    requests: int
    well: bool
    said: str


def run(hub: Hub, *, caller: str, seconds: float, seed: int) -> Result:
    """Let schemathesis loose on a hub for so long, as one of ``CALLERS``."""
    world = furnish(hub)
    token = token_of(hub, caller, world)
    place = hub.base / caller
    place.mkdir()
    (place / "world.json").write_text(json.dumps(world))
    words = [
        "run", f"{hub.url}/openapi.json", "--seed", str(seed), "--max-time", str(int(seconds)), "--no-color",
        "--phases", "coverage,fuzzing,stateful", "--checks", CHECKS, "--exclude-path-regex", LEFT_OUT,
        "--request-timeout", "90", "--max-failures", "10", "--warnings", "off", "--generation-database", "none",
        "--generation-with-security-parameters", "false",
        *(["--header", f"Authorization: Bearer {token}"] if token else []),
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()", *words],
        env=environment(place, SCHEMATHESIS_HOOKS="tests.rigs.contract_hooks", PYTHONPATH=str(ROOT)),
        cwd=place,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=3 * seconds + 60,
        check=False,
    )
    said = (done.stdout + done.stderr).replace(token or "TOKEN", "TOKEN")
    counted = COUNTED.search(said)
    assert counted is not None, f"it did not run: {said}"
    return Result(int(counted[1]), done.returncode == 0, said)


def token_of(hub: Hub, caller: str, world: dict[str, list[str]]) -> str | None:
    """What a caller shows. An agent is the first of the world's names, which is ``mine`` there from then on."""
    if caller == "admin":
        return (hub.folder / "admin.token").read_text().strip()
    if caller == "open":
        return None
    world["mine"] = world["names"][:1]
    return str(hub.call("POST", f"/v1/agents/{world['mine'][0]}/token", {}, admin=True).json["token"])


def furnish(hub: Hub) -> dict[str, list[str]]:
    """Names, messages in most states, and leases, so that requests can be about something."""
    names, ids = ["ann", "bob", "cat"], [f"{number:032x}" for number in range(1, 9)]
    for name in names:
        hub.call("PUT", f"/v1/agents/{name}", {"title": name}, admin=True)
    for number, message_id in enumerate(ids):
        intent = "request" if number % 2 else "inform"
        hub.send(names[number % 3], f"text {number}", names[(number + 1) % 3], id=message_id, intent=intent)
    taken: list[dict[str, Any]] = [row for name in names for row in hub.claim(name, 2, lease_seconds=600)]
    leases = [row["lease"]["token"] for row in taken]
    for lease in leases[:1]:
        hub.lease(lease, "ack")
    return {"names": names, "ids": ids, "leases": leases}


def main() -> int:
    """Run it for as long as asked; 1 on a breach."""
    words = argparse.ArgumentParser(prog="python -m tests.rigs.contract", description=__doc__)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--minutes", type=float, default=1.0)
    words.add_argument("--source", type=Path, help="a src folder of a hub that was broken on purpose")
    asked = words.parse_args()
    found: list[Result] = []
    for caller in CALLERS:
        with Hub(source=asked.source) as hub:
            result = run(hub, caller=caller, seconds=asked.minutes * 60 / len(CALLERS), seed=asked.seed)
            print(f"{caller}: {result.requests} requests, well" if result.well else result.said)
            assert "Traceback" not in hub.output(), hub.output()
        found.append(result)
    breaches = sum(not each.well for each in found)
    print(f"operations: {sum(each.requests for each in found)}, breaches: {breaches}")
    return int(breaches > 0)


if __name__ == "__main__":
    sys.exit(main())
