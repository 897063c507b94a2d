"""Stands in for OpenClaw's gateway (protocol 4, as of 2026.9), on a real socket. What a text says chooses what it does.

``asked``: each request that was let in, in order. ``runs``: the end of each run by its key, which is told again to
whoever asks for it again. ``history``: what ``chat.history`` answers for a session.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.server import ServerConnection, serve

TOKEN = "gateway-token"
HANG_SECONDS = 5.0  # of a run that nobody breaks off, so that a test that fails ends
Frame = dict[str, Any]


class HangUp(Exception):
    """End the connection without a word."""


@dataclass
class OpenClawServer:
    token: str | None = TOKEN
    starting: int = 0  # so many times it says that it starts
    busy: int = 0  # so many times it takes no run yet
    asked: list[tuple[str, Frame]] = field(default_factory=list)
    hellos: list[Frame] = field(default_factory=list)
    runs: dict[str, Frame] = field(default_factory=dict)
    accepted: list[str] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    waits: dict[str, Frame] = field(default_factory=dict)
    history: dict[str, Frame] = field(default_factory=dict)
    aborted: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""

    def params(self, method: str) -> list[Frame]:
        return [params for asked, params in self.asked if asked == method]

    async def serve(self, socket: ServerConnection) -> None:
        await socket.send(json.dumps({"type": "event", "event": "connect.challenge", "payload": {"nonce": "n"}}))
        async with asyncio.TaskGroup() as tasks:
            async for data in socket:
                frame = json.loads(data)
                tasks.create_task(self._answer(socket, frame))

    async def _answer(self, socket: ServerConnection, frame: Frame) -> None:
        async def say(ok: bool, payload: Frame | None = None, error: Frame | None = None) -> None:
            parts = {"payload": payload, "error": error}
            answer = {"type": "res", "id": frame["id"], "ok": ok}
            await socket.send(json.dumps(answer | {name: part for name, part in parts.items() if part is not None}))

        method, params = frame["method"], frame["params"]
        await socket.send(json.dumps({"type": "event", "event": "tick", "payload": {}}))
        if method == "connect":
            return await self._greet(say, params)
        self.asked.append((method, params))
        if method == "agent":
            try:
                await self._run(say, params)
            except HangUp:
                await socket.close(1011)
        elif method == "sessions.abort":
            if params["runId"] not in self.accepted:
                return await say(False, error={"code": "INVALID_REQUEST", "message": "no such run"})
            self.aborted.set()
            await say(True, {"ok": True})
        elif method == "agent.wait":
            await say(True, self.waits.get(params["runId"], {"status": "timeout"}))
        elif method == "chat.history":
            await say(True, self.history.get(params["sessionKey"], {"messages": []}))
        return None

    async def _greet(self, say: Any, params: Frame) -> None:
        self.hellos.append(params)
        if self.starting > 0:
            self.starting -= 1
            await say(
                False, error={"code": "UNAVAILABLE", "message": "starting", "retryable": True, "retryAfterMs": 20}
            )
        elif self.token is not None and params.get("auth", {}).get("token") != self.token:
            details = {"code": "AUTH_TOKEN_MISMATCH"}
            await say(False, error={"code": "INVALID_REQUEST", "message": "unauthorized", "details": details})
        else:
            await say(True, {"type": "hello-ok", "protocol": 4})

    async def _run(self, say: Any, params: Frame) -> None:
        text, key = params["message"], params["idempotencyKey"]
        if self.busy > 0:
            self.busy -= 1
            return await say(False, error={"code": "UNAVAILABLE", "message": "full", "retryable": True})
        if params["agentId"] == "nobody":
            return await say(False, error={"code": "INVALID_REQUEST", "message": 'unknown agent id "nobody"'})
        if "BEFORE" in text:
            raise HangUp
        if key not in self.runs:
            self.begun.append(text)
            if "LATE" in text:
                await asyncio.sleep(0.3)  # it takes its time, and hears others meanwhile
            self.accepted.append(key)
            await say(True, {"status": "accepted", "runId": key, "sessionKey": params["sessionKey"]})
            if "AFTER" in text:
                raise HangUp
            if "HANG" in text:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.aborted.wait(), HANG_SECONDS)
            self.runs[key] = END.get(text) or ended(text)
        end = self.runs[key]
        if end.get("fails"):
            return await say(False, end, {"code": "UNAVAILABLE", "message": end["summary"]})
        await say(True, end)


@asynccontextmanager
async def serving() -> AsyncIterator[OpenClawServer]:
    state = OpenClawServer()
    async with serve(state.serve, "127.0.0.1", 0, compression=None, max_size=32 * 1024 * 1024) as server:
        state.url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
        yield state


def ended(text: str, **changes: Any) -> Frame:
    """The end of a run that went well, and what changes it."""
    usage = {"input": 7, "output": 3}
    meta = {"agentMeta": {"usage": usage, "costUsd": 0.25, "model": "m"}, "aborted": False, **changes.pop("meta", {})}
    payloads = changes.pop("payloads", [{"text": f"REPLY {text}", "mediaUrl": None}])
    return {"status": "ok", "summary": "completed", "result": {"payloads": payloads, "meta": meta}, **changes}


def failing(summary: str) -> Frame:
    return {"status": "error", "summary": summary, "fails": True}


OVERFLOW = {"kind": "context_overflow", "message": "400 too long"}
END: dict[str, Frame] = {
    "TWO PARTS": ended("", payloads=[{"text": "one"}, {"text": "two", "mediaUrl": "/tmp/picture.png"}]),
    "SILENT": ended("", payloads=[]),
    "FULL": ended(
        "", status="error", summary="failed", payloads=[{"text": "x", "isError": True}], meta={"error": OVERFLOW}
    ),
    "OK-BUT-AN-ERROR": ended("", payloads=[{"text": "Rate limit reached, HTTP 429", "isError": True}]),
    "OK-BUT-A-KIND": ended("", meta={"error": {"kind": "model_not_found", "message": "no"}}),
    "OK-BUT-ABORTED": ended("", payloads=[], meta={"aborted": True}),
    "BROKEN-OFF": {"status": "timeout", "summary": "aborted", "stopReason": "rpc"},
    "OWN-TIME": {"status": "timeout", "summary": "aborted"},
    "401": failing("Authentication failed (provider returned HTTP 401). Your provider token may have expired."),
    "COOLING": failing("Inline API key for x is temporarily disabled after a provider auth/billing failure."),
    "402": failing("x (m) returned a billing error \u2014 your API key has run out of credits."),
    "429": failing("Rate limit reached. Try again in 1s.; Retry-After: 1 seconds"),
    "500": failing("x/m request failed (provider internal error, HTTP 500). This is usually temporary."),
    "CUT": failing("LLM request failed: network connection error."),
    "NO-KEY": failing("No route-compatible authentication source is configured for openai."),
}
