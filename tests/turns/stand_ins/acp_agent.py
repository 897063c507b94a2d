"""A stand-in for an agent of the Agent Client Protocol: what a prompt's last line says decides what it does.

``STAND_IN_LOG``: every message that it gets is noted there, with its pid. ``STAND_IN_NAME``: what it calls itself.
``STAND_IN_LOADS``: how it goes on in a session of an earlier process (load, resume, or not at all). Sessions are kept
beside the log, as long as each has a prompt.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

ENVIRONMENT = dict(os.environ)  # noqa: TID251 - a program of its own
LOG = ENVIRONMENT["STAND_IN_LOG"]
LOADS = ENVIRONMENT.get("STAND_IN_LOADS", "load")
STOPS = {"REFUSE": "refusal", "TOKENS": "max_tokens", "REQUESTS": "max_turn_requests", "NEW_STOP": "as_never_before"}
ERRORS: dict[str, Any] = {
    "E401": {"code": 401, "message": '{"error":{"message":"Incorrect API key provided: sk-1."}}'},
    "E402": {"code": 402, "message": "Insufficient credits."},
    "E429": {"code": 429, "message": "Rate limit reached."},
    "EQUOTA": {"code": 429, "message": "You exceeded your current quota."},
    "E400": {"code": 400, "message": "This model's maximum context length is 2."},
    "E500": {"code": -32603, "message": "Internal error", "data": {"statusCode": 500}},
    "ELOGIN": {"code": -32000, "message": "Authentication required"},
    "ECUT": {"code": -32603, "message": "fetch failed sending request"},
    "EODD": {"code": -32603, "message": "it just did not work"},
}
waiting: Any = None  # the id of a prompt that is not answered yet
deaf = False


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def tell(session: str, kind: str, **fields: Any) -> None:
    send(method="session/update", params={"sessionId": session, "update": {"sessionUpdate": kind, **fields}})


def say(session: str, text: str, kind: str = "agent_message_chunk") -> None:
    tell(session, kind, content={"type": "text", "text": text})


def past_of(session: str, add: str | None = None) -> list[str]:
    path = Path(f"{LOG}.{session}")
    past: list[str] = json.loads(path.read_text()) if path.exists() else []
    if add is not None:
        past.append(add)
        path.write_text(json.dumps(past))
    return past


def prompt(id: int, session: str, text: str) -> None:
    global waiting, deaf
    word = text.split("\n")[-1]
    said = f"REPLY[{len(past_of(session, text))}] {word}"
    if word in ERRORS:
        return send(id=id, error=ERRORS[word])
    if word == "DIE":
        os._exit(3)
    if word == "STRANGERS":
        say("another-session", "not for you")
        print("a banner of somebody's", flush=True)
    if word == "THINK_ALOUD":
        say(session, "I look. ")
        say(session, "Now.")
        tell(session, "tool_call", toolCallId="1", title="look")
        tell(session, "never_heard_of", content=[1])
    if word == "ASK":
        waiting = id
        return send(id=77, method="session/request_permission", params=permission(session, True))
    if word == "ASK_ONLY_YES":
        waiting = id
        return send(id=77, method="session/request_permission", params=permission(session, False))
    if word == "READ":
        waiting = id
        return send(id=77, method="fs/read_text_file", params={"sessionId": session, "path": "/etc/passwd"})
    if word == "FLOOD":
        waiting = id
        for _ in range(12):
            say(session, "x" * 500_000)
        return None
    if word == "LONG_LINE":
        return say(session, "x" * 20_000_000)
    if word == "RETRY":
        sys.stderr.write("Attempt 2 failed with status 500. Retrying with backoff... ApiError\n    at somewhere\n")
        sys.stderr.flush()
    if word == "DEAF":
        deaf = True
    if word in ("HANG", "RETRY", "DEAF", "THINK"):
        if word == "THINK":
            say(session, "well", "agent_thought_chunk")
        waiting = id
        return None
    if word == "HERMES_401":
        say(session, "HTTP 401: Incorrect API key provided: sk-1.")
        return send(id=id, result={"stopReason": "end_turn"})
    if word != "SILENT_END":
        for piece in (said[:3], said[3:]):
            say(session, piece)
    usage = {"inputTokens": 5, "outputTokens": 7}
    send(id=id, result={"stopReason": STOPS.get(word, "end_turn"), "usage": usage})
    if word == "ANSWER_AND_DIE":
        os._exit(0)
    return None


def permission(session: str, both: bool) -> dict[str, Any]:
    options = [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]
    if both:
        options.append({"optionId": "no", "name": "No", "kind": "reject_once"})
    return {"sessionId": session, "toolCall": {"toolCallId": "1"}, "options": options}


def load(id: int, session: str, *, tells: bool) -> None:
    past = past_of(session)
    if not past:
        return send(id=id, error={"code": -32603, "message": "Internal error"})
    send(id=id, result={})
    for text in past if tells else ():  # as Gemini CLI does it: after it said that it is done
        time.sleep(0.02)
        say(session, text, "user_message_chunk")
        say(session, "AN OLD ANSWER")
    return None


def main() -> None:
    global waiting
    with open(LOG, "a") as log:
        note = {"started": True, "pid": os.getpid(), "argv": sys.argv[1:], "environment": ENVIRONMENT}
        log.write(json.dumps(note) + "\n")
    if "--broken" in sys.argv:
        sys.exit("unknown option --broken")
    for line in sys.stdin:
        message = json.loads(line)
        method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
        with open(LOG, "a") as log:
            log.write(json.dumps({"pid": os.getpid(), **message}) + "\n")
        session = str(params.get("sessionId"))
        if method == "initialize":
            can = {"loadSession": LOADS == "load", "sessionCapabilities": {"resume": {}} if LOADS == "resume" else {}}
            about = {"name": ENVIRONMENT.get("STAND_IN_NAME", "stand-in"), "version": "1.2.3"}
            send(id=id, result={"protocolVersion": 1, "agentCapabilities": can, "agentInfo": about})
        elif method == "session/new":
            send(id=id, result={"sessionId": f"session-{os.getpid()}-{id}"})
        elif method in ("session/load", "session/resume"):
            load(id, session, tells=method == "session/load")
        elif method == "session/prompt":
            prompt(id, session, params["prompt"][0]["text"])
        elif method == "session/cancel" and waiting is not None and not deaf:
            send(id=waiting, result={"stopReason": "cancelled"})
            waiting = None
        elif method is None and id == 77 and waiting is not None:
            answer = message.get("result") or {"error": message["error"]["code"]}
            say(last_session(), json.dumps(answer))
            send(id=waiting, result={"stopReason": "end_turn"})
            waiting = None


def last_session() -> str:
    lines = [json.loads(line) for line in Path(LOG).read_text().splitlines()]
    return next(str(line["params"]["sessionId"]) for line in reversed(lines) if line.get("method") == "session/prompt")


main()
