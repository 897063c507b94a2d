"""Stands in for five agents' command lines: it keeps what it was given, byte for byte, and answers as each of them.

``python -I -S mirror.py KIND FOLDER ARGUMENT …``. What must stay true: ``FOLDER/calls`` has a line for each turn, with
its arguments and its text; the n-th turn is answered with the n-th text of ``FOLDER/answers``. It knows turns that go
well and nothing else (``tests/turns/stand_ins`` know how they fail), and loads little, so that it starts fast.
"""

import json
import sys

SESSION = "0197f0c2-a4b1-7c3e-8d21-f6a09b5e4c77"
HELP = "--query-file FILE --create-if-missing"  # that Hermes takes a text from a file


def main(kind: str, folder: str, arguments: list[str]) -> int:
    """One call; its exit code."""
    if arguments[-1] in ("--help", "--version"):
        print(HELP)
        return 0
    text = given(kind, arguments)
    with open(f"{folder}/calls", "a+", encoding="ascii") as calls:
        calls.write(json.dumps({"argv": arguments, "text": text}) + "\n")
        calls.seek(0)
        number = len(calls.readlines())
    with open(f"{folder}/answers", encoding="ascii") as answers:
        answer = json.load(answers)[number - 1]
    for line in said(kind, answer):
        sys.stdout.buffer.write(line.encode() + b"\n")
    if kind == "hermes":
        print(f"session_id: {SESSION}", file=sys.stderr)
    return 0


def given(kind: str, arguments: list[str]) -> str:
    """The text of a turn, where this agent takes it."""
    if kind in ("hermes", "openclaw"):
        flag = "--query-file" if kind == "hermes" else "--message-file"
        with open(arguments[arguments.index(flag) + 1], "rb") as file:
            return file.read().decode()
    content = sys.stdin.buffer.read().decode()
    return str(json.loads(content)["message"]["content"][0]["text"]) if kind == "claude_code" else content


def said(kind: str, text: str) -> list[str]:
    """What it prints of a turn that went well."""
    if kind == "hermes":
        return [text]
    if kind == "openclaw":
        return [json.dumps({"runId": "r", "status": "ok", "result": {"payloads": [{"text": text}], "meta": {}}})]
    return [json.dumps(event) for event in events(kind, text)]


def events(kind: str, text: str) -> list[dict[str, object]]:
    """Its lines of JSON."""
    if kind == "claude_code":
        return [
            {"type": "system", "subtype": "init", "session_id": SESSION, "model": "m"},
            {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": text},
        ]
    if kind == "codex":
        item: dict[str, object] = {"type": "agent_message", "text": text}
        begun: list[dict[str, object]] = [{"type": "thread.started", "thread_id": SESSION}, {"type": "turn.started"}]
        return [*begun, {"type": "item.completed", "item": item}, {"type": "turn.completed"}]
    part = {"messageID": "msg_1", "text": text}
    end = {"messageID": "msg_1", "reason": "stop"}
    return [
        {"type": "text", "sessionID": "ses_1", "part": part},
        {"type": "step_finish", "sessionID": "ses_1", "part": end},
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
