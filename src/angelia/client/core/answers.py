"""What an answer means, and how a request is put: JSON out, JSON or an error in.

What must stay true: "the hub said no", "that is no hub" and "nobody knows" are told apart, by one table, for every call
of either client.
"""

from __future__ import annotations

import json
from urllib.parse import quote, urlencode

from angelia.client.errors import ClientError, HubError, LeaseLost, LostHub, NoHub, NotAHub, TimedOut

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CONNECT_SECONDS = 10.0
# A page of the largest messages fits many times; beyond this it is no hub that talks.
MAX_ANSWER_BYTES = 256 * 1024 * 1024

# What a hub says of its own state, or a proxy of a hub that is away: later it may be otherwise.
TRY_AGAIN = frozenset((408, 425, 429, 500, 502, 503, 504, 507))
# Nobody answers for the hub just now.
_PROXY_SAYS_AWAY = frozenset((502, 503, 504))


def answered(status: int, content: bytes, where: str) -> dict[str, Any]:
    """The JSON object of a 2xx. Raises ``HubError`` for a refusal, ``NotAHub`` or ``LostHub`` for anything else."""
    found = json_object(content)
    if not 200 <= status < 300:
        raise refusal(status, found, where)
    if not content:  # http.client takes a head that was cut off for a whole one
        raise LostHub(where, "the answer was cut off")
    if found is None:
        raise NotAHub(where, "what answers there does not speak JSON")
    return found


def refusal(status: int, problem: dict[str, Any] | None, where: str, location: str = "") -> ClientError:
    """The error for an answer that is no 2xx. In: its status, its JSON object if it had one, who answered, and where a
    redirect points: none is followed, since a token and mail go only where they were told to.
    """
    if problem is None or not isinstance(problem.get("code"), str):
        if status in _PROXY_SAYS_AWAY:
            return LostHub(where, f"a proxy on the way says {status}")
        points = f", points to {location[:200]!r}" if location else ""
        return NotAHub(where, f"what answers there says {status}{points}, and not as a hub would")
    extra = {key: value for key, value in problem.items() if key not in ("type", "title", "status", "code", "detail")}
    title, detail = str(problem.get("title") or ""), str(problem.get("detail") or "")
    kind = LeaseLost if problem["code"] == "lease_lost" else HubError
    return kind(status, problem["code"], title, detail, extra)


def may_pass(error: ClientError) -> bool:
    """Whether trying again later may help: no hub, no answer, and what a hub says of its own state."""
    return error.status in TRY_AGAIN if isinstance(error, HubError) else isinstance(error, NoHub | TimedOut)


def json_object(content: bytes) -> dict[str, Any] | None:
    """An answer's bytes as a JSON object, or None where they are none."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def json_bytes(body: object) -> bytes:
    """A request's body. Raises ``ValueError`` for a number that JSON has not, ``TypeError`` for what is no JSON."""
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def told(given: dict[str, Any]) -> dict[str, Any]:
    """What was given, without what was not."""
    return {key: value for key, value in given.items() if value is not None}


def query(given: dict[str, Any]) -> str:
    """The part of a path from the ``?`` on; "" where nothing was given."""
    asked = urlencode(told(given))
    return f"?{asked}" if asked else ""


def part(value: str) -> str:
    """A value as one segment of a path, whatever is in it."""
    return quote(value, safe="")
