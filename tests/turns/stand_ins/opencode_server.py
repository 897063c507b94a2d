"""Stands in for OpenCode's HTTP server, 1.18, as far as a turn needs it: real sockets, in a thread of the test.

The last line of a text says what becomes of it; see ``_Talk._turn``. A turn goes on when its connection is gone, as the
real server's does.
"""

import base64
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.turns.stand_ins.opencode_errors import ERRORS

PASSWORD = "a-password"
WAIT_SECONDS = 30.0  # for the test to let a turn go on; no test waits as long


@dataclass
class OpenCodeServer:
    """``asked``: method, path and body of each request. ``sessions``: their messages. ``go_on``: lets turns end that
    wait; ``waiting`` is set while one does."""

    port: int = 0
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    sessions: dict[str, list[Any]] = field(default_factory=dict)
    states: dict[str, Any] = field(default_factory=dict)
    permissions: list[Any] = field(default_factory=list)
    replies: list[str] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    go_on: threading.Event = field(default_factory=threading.Event)
    waiting: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def count(self, method: str, pattern: str) -> int:
        return sum(one == method and bool(re.fullmatch(pattern, path)) for one, path, _ in self.asked)


@contextmanager
def opencode_server() -> Iterator[OpenCodeServer]:
    """One that serves until the block ends."""
    server = OpenCodeServer()

    class Talk(_Talk):
        shared = server

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Talk)
    server.port = listener.server_address[1]
    thread = threading.Thread(target=listener.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.go_on.set()
        listener.shutdown()
        listener.server_close()


class _Talk(BaseHTTPRequestHandler):
    shared: OpenCodeServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Not to the tests' output."""

    def do_GET(self) -> None:
        self._serve("GET", None)

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._serve("POST", json.loads(content) if content else None)

    def _serve(self, method: str, body: Any) -> None:
        server, path = self.shared, self.path.partition("?")[0]
        server.asked.append((method, self.path, body))
        expected = "Basic " + base64.b64encode(f"opencode:{PASSWORD}".encode()).decode()
        if self.headers.get("Authorization") != expected:
            return self._say(401, None)
        if path == "/global/health":
            return self._say(200, {"healthy": True, "version": "1.18.33"})
        if path == "/permission":
            return self._say(200, server.permissions)
        if path.startswith("/permission/"):
            server.permissions.clear()
            server.replies.append(body["reply"])
            server.go_on.set()
            return self._say(200, True)
        if path == "/session/status":
            return self._say(200, server.states)
        if path == "/session":
            session = f"ses_{len(server.sessions) + 1}"
            server.sessions[session] = []
            return self._say(200, {"id": session})
        _, _, session, *rest = path.split("/")
        if session not in server.sessions:
            return self._say(404, {"name": "NotFoundError"})
        return self._in_session(method, session, rest, body)

    def _in_session(self, method: str, session: str, rest: list[str], body: Any) -> None:
        server = self.shared
        messages = server.sessions[session]
        if rest == ["abort"]:
            server.aborted.append(session)
            server.go_on.set()
            return self._say(200, True)
        if rest == ["children"]:
            return self._say(200, [{"id": "ses_child"}])
        if rest == ["message"] and method == "POST":
            return self._turn(session, body)
        if rest == ["message"]:
            return self._say(200, messages)
        if rest:
            found = [message for message in messages if message["info"]["id"] == rest[1]]
            return self._say(200, found[0]) if found else self._say(404, {"name": "NotFoundError"})
        return self._say(200, {"id": session})

    def _turn(self, session: str, body: Any) -> None:
        server = self.shared
        messages = server.sessions[session]
        text = body["parts"][0]["text"]
        word = text.split("\n")[-1]
        if word == "CUT_UNSTORED":
            return self._hang_up()
        if word == "E400":
            return self._say(400, {"name": "BadRequest"})
        if word == "E500":
            return self._say(500, {"name": "UnknownError"})
        question = self._ask(messages, text)
        if word == "CUT_FOR_EVER":
            return self._hang_up()
        if word == "CUT_BUSY":
            server.states[session] = {"type": "busy"}
            self._hang_up()
            self._wait()
        if word == "ASK":
            server.permissions.append({"id": "per_1", "sessionID": "ses_child"})
            server.permissions.append({"id": "per_2", "sessionID": "ses_of_somebody_else"})
        if word == "RETRY":
            server.states[session] = {"type": "retry", "attempt": 2, "message": "Internal server error"}
        if word in ("ASK", "HANG", "RETRY"):
            self._wait()
        if word in ("SUMMED_UP", "SUMMED_IN_VAIN"):
            summary = self._ask(messages, None)
            vain = word == "SUMMED_IN_VAIN"
            answer = self._answer(messages, summary, "", ERRORS["ECTX"] if vain else None, summary=True)
            if not vain:
                answer = self._answer(messages, self._ask(messages, text), "REPLY")
            return self._say(200, answer)
        if word == "OTHER":
            return self._say(200, self._answer(messages, self._ask(messages, "of somebody else"), "not yours"))
        number = len([message for message in messages if message["info"]["role"] == "user"])
        said = "" if word == "EMPTY" else f"REPLY[{number}] {word}"
        answer = self._answer(messages, question, said, ERRORS.get(word))
        server.states.clear()
        return self._hang_up() if word.startswith("CUT") else self._say(200, answer)

    def _ask(self, messages: list[Any], text: str | None) -> str:
        id = f"msg_{len(messages)}"
        parts = [{"type": "text", "text": text}] if text is not None else [{"type": "compaction"}]
        messages.append({"info": {"role": "user", "id": id}, "parts": parts})
        return id

    def _answer(self, messages: list[Any], to: str, text: str, error: Any = None, **more: Any) -> Any:
        info = {"role": "assistant", "id": f"msg_{len(messages)}", "parentID": to, "modelID": "m", "cost": 0.25}
        info |= {"tokens": {"input": 5, "output": 7}, **({"error": error} if error else {"finish": "stop"}), **more}
        answer = {"info": info, "parts": [{"type": "text", "text": text}]}
        messages.append(answer)
        return answer

    def _wait(self) -> None:
        self.shared.waiting.set()
        assert self.shared.go_on.wait(WAIT_SECONDS)

    def _hang_up(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(2)

    def _say(self, status: int, value: Any) -> None:
        content = json.dumps(value).encode()
        self.close_connection = True
        try:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except OSError:
            return  # nobody listens any more
