"""Stands in for Hermes' API server (as of 0.19), on a real socket. What the text says chooses what it does.

``asked``: the texts, with the session that each was for. ``rows``: what the sessions remember.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

KEY = "a-key-of-sixteen-characters"


@dataclass
class HermesServer:
    asked: list[tuple[str, str]] = field(default_factory=list)
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    hung_up: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    def note(self, session: str, role: str, content: str, at: float | None = None, finish: str | None = None) -> None:
        row = {"role": role, "content": content, "timestamp": at or time.time(), "finish_reason": finish}
        self.rows.setdefault(session, []).append(row)


@contextmanager
def serving() -> Iterator[HermesServer]:
    state = HermesServer()

    class Bound(_Handler):
        server_state = state

    server = ThreadingHTTPServer(("127.0.0.1", 0), Bound)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server_state: ClassVar[HermesServer]
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def handle(self) -> None:
        with suppress(ConnectionError):
            super().handle()

    def do_GET(self) -> None:
        state, parts = self.server_state, self.path.strip("/").split("/")
        if self.path == "/health":
            self._json(200, {"status": "ok", "version": "0.19.0"})
        elif self.headers.get("Authorization") != f"Bearer {KEY}":
            self._json(401, {"error": {"message": "Invalid API key"}})
        elif parts[:2] == ["api", "sessions"] and parts[2] in state.rows:
            now = state.moved.get(parts[2], parts[2])
            if parts[3:] == ["messages"]:
                self._json(200, {"session_id": now, "data": state.rows[parts[2]]})
            else:
                ended = {"end_reason": "compression"} if now != parts[2] else {}
                self._json(200, {"session": {"id": parts[2], **ended}})
        elif self.path == "/v1/models":
            self._json(200, {"data": []})
        else:
            self._json(404, {"error": {"message": "not found"}})

    def do_POST(self) -> None:
        state = self.server_state
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = body["messages"][-1]["content"]
        session = self.headers["X-Hermes-Session-Id"]
        if self.headers.get("Authorization") != f"Bearer {KEY}":
            return self._json(401, {"error": {"message": "Invalid API key"}})
        if text.startswith("STATUS "):
            return self._json(int(text.split()[1]), {"error": {"message": text}})
        state.asked.append((session, text))
        state.note(session, "user", text)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("X-Hermes-Session-Id", session)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        self._stream(session, text, sum(row["role"] == "user" for row in state.rows[session]))

    def _stream(self, session: str, text: str, number: int) -> None:
        state, reply = self.server_state, f"REPLY[{number}] {text}"
        self._event({"choices": [{"delta": {"role": "assistant"}, "finish_reason": None}]})
        if "BREAK" in text:
            return self._say("half of it")
        while "HANG" in text:
            try:
                time.sleep(0.02)
                self.wfile.write(b": keepalive\n\n")
            except ConnectionError:
                return state.hung_up.set()
        if "AN-ERROR" in text:
            return self._end("error", 0, {"hermes": {"failed": True, "error": "HTTP 402: Insufficient credits."}})
        if "BARE-ERROR" in text:
            self._say("HTTP 500: Internal server error")
            return self._end("error", 5)
        if "ONLY-WORDS" in text:
            reply = "API call failed after 3 retries: HTTP 429: Rate limit reached."
            self._say(reply)
            return self._end("stop", 0)
        if "TALKS-OF-IT" in text:
            reply = "HTTP 401: that is what a server says to a wrong key."
        if "CUT-SHORT" in text:
            self._say("the first half")
            return self._end("length", 5, {"error": {"message": "Response truncated"}})
        if "TOOL" in text:
            self._say("I look it up. ")
            self.wfile.write(b'event: hermes.tool.progress\ndata: {"tool": "web"}\n\n')
        state.note(session, "assistant", reply, finish="stop")
        if "UNSTREAMED" not in text:
            middle = len(reply) // 2
            self._say(reply[:middle])
            self._say(reply[middle:])
        self._end("stop", 5)

    def _say(self, text: str) -> None:
        self._event({"choices": [{"delta": {"content": text}, "finish_reason": None}]})

    def _end(self, finish: str, tokens: int, more: dict[str, Any] | None = None) -> None:
        usage = {"prompt_tokens": tokens, "completion_tokens": tokens}
        self._event({"choices": [{"delta": {}, "finish_reason": finish}], "usage": usage, **(more or {})})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, value: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())

    def _json(self, status: int, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Retry-After", "7")
        self.end_headers()
        self.wfile.write(data)
