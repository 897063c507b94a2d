"""A stand-in model: what real agents in the lab talk to in place of their provider, on loopback.

It speaks the four dialects that those agents speak (OpenAI chat and responses, Anthropic messages, Gemini), streamed
or not, and answers ``REPLY[n] <the end of the last user text>``, where n is the number of user turns that it was shown:
a conversation that goes on is seen by its number. Words in that text choose something else: ``FAIL_401``, ``FAIL_402``,
``FAIL_429``, ``FAIL_QUOTA``, ``FAIL_CTX``, ``FAIL_500``, ``DROP`` (the connection is cut), ``SLOW_<seconds>``,
``TOOLCALL <tool> {json}`` (it calls that tool once, then answers ``TOOLDONE`` and what the tool said), and
``ANSWER_WITH <words>`` (it answers just these).

What must stay true: it remembers each call, so that a test can say how often a turn ran; and what it is told is data.
``python -m tests.lab.model PORT`` runs it by hand.
"""

import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from tests.lab import dialects
from tests.lab.dialects import Dialect, Fault, Reply, ToolCall

PORT = 18080  # what `install.py` writes into the agents' configurations
ANSWER_CHARS = 160  # of the last user text: enough to know it again, and a long text does not come back whole
QUOTA = "You exceeded your current quota, please check your plan and billing details."
FULL = "This model's maximum context length is 200000 tokens. However, your messages resulted in 250000 tokens."

FAULTS = {
    "FAIL_401": Fault(401, "authentication_error", "invalid_api_key", "Incorrect API key provided: sk-lab."),
    "FAIL_402": Fault(402, "billing_error", "insufficient_credits", "Insufficient credits. Add more credits."),
    "FAIL_429": Fault(429, "rate_limit_error", "rate_limit_exceeded", "Rate limit reached. Try again in 1s.", "1"),
    "FAIL_QUOTA": Fault(429, "insufficient_quota", "insufficient_quota", QUOTA),
    "FAIL_CTX": Fault(400, "invalid_request_error", "context_length_exceeded", FULL),
    "FAIL_500": Fault(500, "api_error", "server_error", "Internal server error"),
}

# What agents put beside a person's words, in messages of their own or around them; it is no turn of the conversation.
_ASIDES = re.compile(
    r"<(system-reminder|session_context)>.*?</\1>"
    r"|<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>.*?<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"
    r"|^\[\w{3} \d{4}-\d\d-\d\d \d\d:\d\d \w+\] "  # OpenClaw: when it was said
    r"|\n\nRuntime: agent=.*",  # OpenClaw: where it runs, behind a conversation's first message
    re.DOTALL,
)
_NOT_SAID = (
    "<environment_context", "<recommended_plugins", "# AGENTS.md", "<user_instructions", "<permissions",
    "<<<BEGIN_OPENCLAW", "<system-reminder", "<session_context",
)  # fmt: skip
_SLOW = re.compile(r"SLOW_(\d+)")
_WORDS = re.compile(r"ANSWER_WITH (.*)", re.DOTALL)
_TOOL = re.compile(r"TOOLCALL (\S+) (\{.*\})", re.DOTALL)


@dataclass(frozen=True)
class Call:
    """One question to the model: the path, the user texts without what the agent put around them, and its key."""

    path: str
    said: tuple[str, ...]
    tools: tuple[str, ...]
    tool_answer: str | None
    key: str

    @property
    def last(self) -> str:
        return self.said[-1] if self.said else ""


@dataclass
class Model:
    """The server. ``calls``: what it was asked, in order; ``asked``: how often with a word in the last text."""

    port: int = PORT
    calls: list[Call] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    def asked(self, word: str) -> int:
        return sum(word in call.last for call in self.calls)

    def start(self) -> "Model":
        """Listen, on a thread of its own (which lives in the network namespace of whoever calls this)."""
        model = self

        class Bound(_Handler):
            owner = model

        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), Bound)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def stop(self) -> None:
        self.stopping.set()
        self.server.shutdown()
        self.server.server_close()


class _Handler(BaseHTTPRequestHandler):
    owner: ClassVar[Model]
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def handle(self) -> None:
        with suppress(ConnectionError):  # an agent that was ended reads no answer
            super().handle()

    def do_HEAD(self) -> None:
        self._json(200, {})

    def do_GET(self) -> None:
        if self.path.partition("?")[0].rstrip("/").endswith("/models"):
            self._json(200, dialects.MODELS)
        else:
            self._json(404, {"error": {"message": "There is no such path.", "type": "invalid_request_error"}})

    def do_POST(self) -> None:
        body = self._body()
        if "count" in self.path.lower() and "tokens" in self.path.lower():
            return self._json(200, {"input_tokens": 10, "totalTokens": 10})
        dialect = dialects.of(self.path)
        if dialect is None:
            return self._json(404, {"error": {"message": "There is no such path.", "type": "invalid_request_error"}})
        call = _read(self.path, body, self.headers.get("Authorization") or self.headers.get("x-api-key") or "")
        self.owner.calls.append(call)
        if slow := _SLOW.search(call.last):
            self.owner.stopping.wait(float(slow[1]))
        if "DROP" in call.last:
            self.close_connection = True
            return self.connection.close()
        for word, fault in FAULTS.items():
            if word in call.last:
                return self._json(fault.status, dialect.error(fault), fault.retry_after)
        return self._answer(dialect, call, bool(body.get("stream")) or "stream" in self.path.lower())

    def _answer(self, dialect: Dialect, call: Call, streamed: bool) -> None:
        reply = _reply(call)
        if not streamed:
            return self._json(200, dialect.whole(reply))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for event, data in dialect.events(reply):
            text = data if isinstance(data, str) else json.dumps(data)
            self.wfile.write((f"event: {event}\n" if event else "").encode() + f"data: {text}\n\n".encode())
        self.wfile.flush()

    def _json(self, status: int, value: Any, retry_after: str | None = None) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if retry_after:
            self.send_header("Retry-After", retry_after)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _body(self) -> dict[str, Any]:
        if "chunked" in (self.headers.get("Transfer-Encoding") or ""):
            data = b"".join(self._chunks())
        else:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            value = json.loads(data or b"{}")
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()


def _reply(call: Call) -> Reply:
    number = f"{time.monotonic_ns()}"
    if call.tool_answer is not None:
        return Reply(number, f"TOOLDONE {call.tool_answer[-400:]}")
    if tool := _TOOL.search(call.last):
        return Reply(number, "", ToolCall(tool[1], tool[2]))
    if words := _WORDS.search(call.last):
        return Reply(number, words[1])
    return Reply(number, f"REPLY[{len(call.said)}] {call.last[-ANSWER_CHARS:]}")


def _read(path: str, body: dict[str, Any], key: str) -> Call:
    """What a request says, in whichever dialect."""
    given = body.get("messages") or body.get("input") or body.get("contents") or []
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    messages = [message for message in given if isinstance(message, dict)]
    said = []
    for message in messages:
        if message.get("role") == "user":
            text = _ASIDES.sub("", dialects.text_of(message.get("content") or message.get("parts"))).strip()
            if text and not text.startswith(_NOT_SAID):
                said.append(text)
    tools = tuple(dialects.name_of(tool) for tool in body.get("tools") or [] if isinstance(tool, dict))
    return Call(path, tuple(said), tools, dialects.tool_answer(messages), key)


if __name__ == "__main__":
    with_port = Model(int(sys.argv[1]) if len(sys.argv) > 1 else PORT).start()
    print(f"http://127.0.0.1:{with_port.port}", flush=True)
    threading.Event().wait()
