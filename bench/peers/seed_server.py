"""The server of the seed, as its text tells it (`hermes-leo-interop`), faults included: a peer to measure against.

Run it with `python bench/peers/seed_server.py PORT`. It needs nothing but Python, and shall not be mended: what is
wrong here is what the text describes. In its own words or by what they imply:

- ThreadingMixIn over HTTPServer, a thread for each connection; HTTP/1.0 as HTTPServer has it, a connection a request.
- All state in memory, and no lock around it: it ends with the process, and a second process has a state of its own.
- Two queues per agent. A broadcast goes into both, so what was pushed live is polled again, and flushed again into the
  next stream; what a poll takes is not taken from a stream; and who never polls leaves everything in memory.
- One stream per agent: a second one takes the place of the first, which stays open and silent; when either ends, its
  `finally` takes the agent's subscription away, be it the other's.
- `delivered` is always true. No id, no resuming: what a stream took from its queue and could not write is gone from it.
- A stream whose client went away is noticed at the next write, up to 30 seconds later.

What differs from the text, which shows only pieces of the program:

- Any agent may take part. `?to=NAME` names the recipient; without it a broadcast goes as the text has it, from hermes
  to openclaw and from anyone else to hermes. Agents are known from their first use. Only hermes and openclaw are told
  of each other's streams: the text knows nobody else.
- The answers' fields beyond those shown (`to`; the shape of /status and /health), the 400 for bad JSON or a missing
  name, the 404, and the notice to openclaw are guesses in its style. A body that is no object is passed on bare.
- Requests are not logged: HTTPServer's line for each would only slow it down.
"""

import json
import queue
import sys
from collections import defaultdict
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn
from typing import Any
from urllib.parse import parse_qs, urlsplit

KEEPALIVE_SECONDS = 30

queues: defaultdict[str, list[Any]] = defaultdict(list, {"hermes": [], "openclaw": []})
subscribers: dict[str, queue.Queue[Any] | None] = {"hermes": None, "openclaw": None}

NOTICES = {
    "hermes": "OpenClaw si è connesso all'SSE — ora puoi inviargli messaggi in tempo reale",
    "openclaw": "Hermes si è connesso all'SSE — ora puoi inviargli messaggi in tempo reale",
}


def other_agent(agent: str) -> str:
    """Who a broadcast of this agent is for, when it does not say."""
    return "openclaw" if agent == "hermes" else "hermes"


def push_to_subscriber(agent: str, message: Any) -> None:
    """Put a message into the queue of the agent's stream, if it has one."""
    subscriber = subscribers.get(agent)
    if subscriber is not None:
        subscriber.put_nowait(message)


def notify_connected(agent: str) -> None:
    """Tell the other of the two agents that this one has a stream, by both queues."""
    other = other_agent(agent)
    if agent not in NOTICES:
        return
    message = {
        "_meta": {"from": "interop", "type": "subscriber_connected"},
        "type": "subscriber_connected",
        "text": NOTICES[other],
    }
    queues[other].append(message)
    push_to_subscriber(other, message)


class Handler(BaseHTTPRequestHandler):
    """One request, in a thread of its own; a stream keeps its thread as long as it lasts."""

    def do_POST(self) -> None:
        """POST /broadcast?from=NAME[&to=NAME]: into the recipient's queue, and into its stream's."""
        path, parameters = self.request_target()
        if path != "/broadcast":
            return self.answer(404, {"error": "not found"})
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        sender = parameters.get("from", "")
        try:
            message = json.loads(body)
        except ValueError:
            return self.answer(400, {"error": "invalid JSON"})
        if not sender:
            return self.answer(400, {"error": "from is missing"})
        if isinstance(message, dict):
            message["_meta"] = {"from": sender, "type": message.get("type")}
        recipient = parameters.get("to") or other_agent(sender)
        queues[recipient].append(message)
        push_to_subscriber(recipient, message)
        with suppress(BrokenPipeError):
            self.answer(200, {"delivered": True, "to": recipient})

    def do_GET(self) -> None:
        """GET /poll, /subscribe, /status and /health."""
        path, parameters = self.request_target()
        agent = parameters.get("agent", "")
        if path == "/health":
            self.answer(200, {"status": "ok"})
        elif path == "/status":
            self.answer(200, self.status())
        elif path in ("/poll", "/subscribe") and not agent:
            self.answer(400, {"error": "agent is missing"})
        elif path == "/poll":
            messages, queues[agent] = queues[agent], []
            self.answer(200, {"agent": agent, "messages": messages})
        elif path == "/subscribe":
            self.stream(agent)
        else:
            self.answer(404, {"error": "not found"})

    def stream(self, agent: str) -> None:
        """Flush what waits into a new queue, make it the agent's stream, and write from it until the client is gone."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Connection", "keep-alive")
        self.end_headers()
        q: queue.Queue[Any] = queue.Queue()
        while queues[agent]:
            q.put_nowait(queues[agent].pop(0))
        subscribers[agent] = q
        notify_connected(agent)
        try:
            while True:
                try:
                    message = q.get(timeout=KEEPALIVE_SECONDS)
                    self.wfile.write(f"data: {json.dumps(message)}\n\n".encode())
                except queue.Empty:
                    self.wfile.write(b": keepalive\n\n")
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            subscribers[agent] = None

    def status(self) -> dict[str, Any]:
        """The agents, the lengths of their queues, and who has a stream."""
        agents = sorted({*queues, *subscribers})
        return {
            "agents": agents,
            "queues": {agent: len(queues[agent]) for agent in agents},
            "subscribers": {agent: subscribers.get(agent) is not None for agent in agents},
        }

    def request_target(self) -> tuple[str, dict[str, str]]:
        """The path, and the last value of each parameter."""
        target = urlsplit(self.path)
        return target.path, {name: values[-1] for name, values in parse_qs(target.query).items()}

    def answer(self, status: int, body: dict[str, Any]) -> None:
        """Answer with a JSON object."""
        encoded = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class ThreadedHTTPServer(ThreadingMixIn, HTTPServer):
    """The text's cure for a server that a single stream would block."""

    daemon_threads = True
    allow_reuse_address = True


def main() -> None:
    """Serve until interrupted, on the port that the first argument names."""
    if len(sys.argv) != 2 or not sys.argv[1].isdigit():
        sys.exit("usage: python bench/peers/seed_server.py PORT")
    server = ThreadedHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()


if __name__ == "__main__":
    main()
