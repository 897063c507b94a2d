"""What `contract.py` hands to schemathesis: names, ids and leases that exist, in place of some that it made up.

What must stay true: a third of the names and ids stay as they were made up, and so does nearly all else; nothing waits;
no request writes outside its hub's folder. `world.json` lies where schemathesis runs. An agent with its token does most
things in its own name, and never ends that token.
"""

import json
import zlib
from pathlib import Path
from typing import Any

import schemathesis

WORLD: dict[str, list[str]] = json.loads(Path("world.json").read_text())
WAIT_SECONDS = 0.02
NAMES = {"handle", "from", "to", "agent"}
OWN_NAMES = {"handle", "from", "agent"}  # an agent calls about others than itself three times in ten
SENDS = ("/v1/messages", "/v1/ask", "/v1/messages/{id}/reply")
MOSTLY_REFUSED = ("thread", "in_reply_to", "ttl_seconds", "id", "lane")
IDS = {"id", "in_reply_to", "thread"}


@schemathesis.hook
def before_call(context: object, case: Any, kwargs: object) -> None:
    """Change a request that is about to go out."""
    for part in (case.path_parameters, case.query, case.body):
        if isinstance(part, dict):
            for name, value in list(part.items()):
                part[name] = _instead(case.path, str(name), value)
    if case.path in SENDS and isinstance(case.body, dict) and _die(case.path, case.body) % 2:
        _make_right(case.path, case.body)


def _make_right(path: str, body: dict[str, Any]) -> None:
    """Of what is sent, half is taken: what is made up hardly ever is."""
    for name in MOSTLY_REFUSED:
        body.pop(name, None)
    body["from"] = WORLD.get("mine", WORLD["names"])[0]
    if "{" not in path:
        body["to"] = WORLD["names"][_die(body) % len(WORLD["names"])]
    if not isinstance(body.get("text"), str) and "body" not in body:
        body["text"] = "x"


def _die(*of: object) -> int:
    """A number by chance, and the same for the same."""
    return zlib.crc32(repr(of).encode("utf-8", "surrogatepass"))


def _instead(path: str, name: str, value: object) -> object:
    if name in ("wait", "wait_seconds", "delay_seconds"):
        return min(value, WAIT_SECONDS) if isinstance(value, int | float) else value
    if name == "file":
        return None
    die = _die(path, name, value)
    known = WORLD.get(_kind(path, name, die), [])
    return known[die // 3 % len(known)] if known and die % 3 else value


def _kind(path: str, name: str, die: int) -> str:
    """Which words of the world may stand in a place."""
    if name in OWN_NAMES and "mine" in WORLD:
        ends_its_token = path.endswith(("/token", "/token/{id}"))
        return "others" if ends_its_token else "mine" if die % 10 < 7 else "names"
    return "names" if name in NAMES else "ids" if name in IDS else "leases" if name == "token" else ""
