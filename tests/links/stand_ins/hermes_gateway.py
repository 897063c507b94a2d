"""Stands in for a gateway of Hermes' (generation 3) with its relay: files in a home, calls over a WebSocket, log-in.

``python hermes_gateway.py HOME [PORT]`` prints ``ready PORT``. What it is and does stands in ``HOME/stand_in.json``
(``DEFAULTS`` has all there is), which is read anew for each call. A call may be held until ``HOME/go/NAME`` is there,
fail, or lose its line before or after its work. All calls, and how each ended, are lines of ``HOME/calls.jsonl``.

It is written from what is known of Hermes and shares no code with the hub. Its known faults are there, too, where a
setting asks for them: an older generation, a drain that a wrong time breaks, a stamp that is rewritten in the body.
"""

import asyncio
import json
import os
import re
import secrets
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import uvicorn

DEFAULTS: dict[str, Any] = {
    "generation": 3,
    "version": "0.21.0",
    "token": "secret",  # of a gateway on loopback; ignored where it is gated
    "gated": None,  # {"provider": …, "users": {name: password}}
    "ticket_seconds": 30,
    "profiles": [{"name": "default", "is_default": True}, {"name": "ops"}],
    "turns": {},  # profile: [{"seconds", "hold", "reply", "error": {code, message, data}}, …]; the last stays
    "faults": {},  # method: [{"error", "hold", "late", "drop": "before" or "after"}, null, …], one for each call
    "pool": 8,
    "tick": 0.5,
    "watch": True,
    "ping": True,
    "ttl": 900,
    "lock_wait": 120,
    "reoffer": 1560,
    "waiter": 3120,
    "strict_times": False,  # a created_at of a wrong type breaks every drain
}
ID = re.compile(r"[0-9a-f]{32}")
NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,63}", re.ASCII)
STAMP = re.compile(r"\A(Message from \N{ROBOT FACE} .*?) \(@([A-Za-z0-9_-]+)\): ", re.DOTALL | re.ASCII)
LONG = ("bot_relay.roster.sync", "bot_relay.outbox.drain", "bot_relay.deliver", "bot_relay.reply", "profiles.list")
Json = dict[str, Any]


class Wrong(Exception):
    def __init__(self, code: int, message: str, data: Json | None = None) -> None:
        super().__init__(message)
        self.told = {"code": code, "message": message, **({"data": data} if data else {})}


class Dropped(Exception):
    """The line is lost in the middle of a call."""


class Files:
    """``HOME/bot_relay``."""

    def __init__(self, home: Path) -> None:
        self.root = home / "bot_relay"

    def folder(self, name: str) -> Path:
        (self.root / name).mkdir(parents=True, exist_ok=True)
        return self.root / name

    def write(self, path: Path, content: object) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.parent / f".rep-{secrets.token_hex(4)}.tmp"
        part.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
        part.chmod(0o600)
        part.replace(path)

    def roster(self, agents: object) -> int:
        rows: dict[tuple[str, str], Json] = {}
        for row in agents if isinstance(agents, list) else []:
            if not isinstance(row, dict):
                continue
            kept = {key: str(row.get(key) or "").strip() for key in ("connection_id", "profile", "handle")}
            kept["handle"] = kept["handle"].lstrip("@") or (
                "hermes" if kept["profile"] == "default" else kept["profile"]
            )
            if not all(NAME.fullmatch(name) for name in kept.values()):
                continue
            more = {key: str(row.get(key) or "") for key in ("connection_label", "title", "description")}
            known = {"online": row["online"]} if isinstance(row.get("online"), bool) else {}
            rows.setdefault((kept["connection_id"], kept["profile"]), {**kept, **more, **known})
        self.write(
            self.root / "roster.json", {"agents": [rows[key] for key in sorted(rows)], "updated_at": int(time.time())}
        )
        return len(rows)

    def reply(self, id: str, generation: int, reply: str = "", error: str = "", reason: str = "") -> None:
        path = self.folder("replies") / f"{id}.json"
        if generation >= 3 and path.exists():
            return
        why = reason or ("unknown" if error else "")
        self.write(path, {"id": id, "at": int(time.time()), "reply": reply, "error": error, "reason": why})

    def drain(self, settings: Json) -> list[Json]:
        now, new = time.time(), settings["generation"] >= 3
        found = self._again(settings, now) if new else []
        queued = list(self.folder("outbox").glob("*.json"))
        for path in sorted(queued, key=lambda path: (path.stat().st_mtime if new else 0, path.name)):
            envelope = json.loads(path.read_text(encoding="utf-8"))
            made = envelope.get("created_at") if isinstance(envelope, dict) else None
            if settings["strict_times"] and made and not isinstance(made, int | float):
                raise TypeError("unsupported operand type(s) for -: 'float' and 'list'")
            age = now - (made if isinstance(made, int | float) and made else path.stat().st_mtime)
            if settings["ttl"] > 0 and age > settings["ttl"]:
                self.reply(envelope["id"], 3, error="not delivered in time", reason="queued_expired")
                path.unlink()
                continue
            claimed = self.folder("claimed") / path.name
            path.rename(claimed)
            os.utime(claimed)
            if isinstance(envelope, dict) or not new:
                found.append(envelope)
        return found

    def _again(self, settings: Json, now: float) -> list[Json]:
        """What was claimed and not answered is offered once more."""
        found = []
        for path in sorted(self.folder("claimed").glob("*.json"), key=lambda path: path.stat().st_mtime):
            envelope = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(envelope, dict) or (self.folder("replies") / path.name).exists():
                continue
            if now - (envelope.get("created_at") or now) > settings["waiter"]:
                self.reply(envelope["id"], 3, error="no answer", reason="delivery_timeout")
            elif "reoffered_at" not in envelope and now - path.stat().st_mtime >= settings["reoffer"]:
                self.write(path, {**envelope, "reoffered_at": int(now)})
                found.append({**envelope, "reoffered_at": int(now)})
        return found


class Gateway:
    def __init__(self, home: Path) -> None:
        self.home, self.files = home, Files(home)
        self.lines: set[Callable[[Json], Awaitable[None]]] = set()
        self.tickets: dict[str, float] = {}
        self.cookies: set[str] = set()
        self.used: Counter[str] = Counter()
        self.locks: dict[str, asyncio.Lock] = {}
        self.pool = asyncio.Semaphore(self.settings()["pool"])
        self.count = 0

    def settings(self) -> Json:
        given = json.loads((self.home / "stand_in.json").read_text(encoding="utf-8"))
        return {**DEFAULTS, **given}

    def log(self, **what: object) -> None:
        with (self.home / "calls.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"at": time.monotonic(), **what}) + "\n")

    def scripted(self, steps: list[Any] | None, key: str, *, last_stays: bool) -> Json:
        """The step for this use of ``key``."""
        steps, number = steps or [], self.used[key]
        self.used[key] += 1
        step = steps[number] if number < len(steps) else steps[-1] if steps and last_stays else None
        return step or {}

    async def held(self, step: Json) -> None:
        while "hold" in step and not (self.home / "go" / step["hold"]).exists():  # noqa: ASYNC110 - a file wakes nobody
            await asyncio.sleep(0.01)
        await asyncio.sleep(step.get("seconds", 0))

    # ------------------------------------------------------------------------------------------------------ calls

    async def answer(self, call: object, line: int) -> Json | None:
        if not isinstance(call, dict):
            return {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no object"}}
        method, params, id = call.get("method"), call.get("params") or {}, call.get("id")
        number = self.count = self.count + 1
        self.log(event="call", n=number, line=line, method=method, params=params)
        try:
            result = await self._serve(str(method), params, number)
        except Wrong as wrong:
            self.log(event="end", n=number, method=method, error=wrong.told)
            return {"jsonrpc": "2.0", "id": id, "error": wrong.told}
        except Dropped:
            self.log(event="end", n=number, method=method, dropped=True)
            raise
        brief = (
            {"ids": [e.get("id") for e in result["envelopes"] if isinstance(e, dict)]} if "envelopes" in result else {}
        )
        self.log(event="end", n=number, method=method, result=brief or result)
        return {"jsonrpc": "2.0", "id": id, "result": result}

    async def _serve(self, method: str, params: Json, number: int) -> Json:
        settings = self.settings()
        if method not in LONG:
            if method == "gateway.ping" and settings["ping"]:
                fault = self.scripted(settings["faults"].get(method), method, last_stays=False)
                await self.held(fault)
                return {"ok": True}
            raise Wrong(-32601, f"unknown method: {method}")
        async with self.pool:
            self.log(event="work", n=number, method=method)
            fault = self.scripted(settings["faults"].get(method), method, last_stays=False)
            await self.held(fault)
            if fault.get("drop") == "before":
                raise Dropped
            if "error" in fault:
                raise Wrong(**fault["error"])
            result = await self._work(method, params, settings, number)
            if fault.get("drop") == "after":
                raise Dropped
            await self.held({"hold": fault["late"]} if "late" in fault else {})
            return result

    async def _work(self, method: str, params: Json, settings: Json, number: int) -> Json:
        if method == "profiles.list":
            return {"profiles": settings["profiles"], "bot_mode_protocol": True}
        if method == "bot_relay.roster.sync":
            return {"count": self.files.roster(params.get("agents"))}
        if method == "bot_relay.outbox.drain":
            try:
                return {"envelopes": self.files.drain(settings)}
            except TypeError as error:
                raise Wrong(5091, f"outbox drain failed: {error}") from None
        if method == "bot_relay.reply":
            return self._reply(params, settings)
        return await self._deliver(params, settings, number)

    def _reply(self, params: Json, settings: Json) -> Json:
        id = str(params.get("id") or "").strip()
        if not id:
            raise Wrong(4093, "id required")
        if ID.fullmatch(id) is None:
            raise Wrong(4094, "invalid envelope id")
        words = {key: str(params.get(key) or "") for key in ("reply", "error", "reason")}
        self.files.reply(id, settings["generation"], **words)
        return {"ok": True}

    async def _deliver(self, params: Json, settings: Json, number: int) -> Json:
        profile, text = str(params.get("profile") or "").strip(), str(params.get("message") or "").strip()
        if not profile or not text:
            raise Wrong(4090, "profile and message required")
        if len(text) > 16200:
            raise Wrong(4091, "message too long")
        profile = "default" if profile.lower() == "hermes" else profile
        if profile not in [each["name"] for each in settings["profiles"]]:
            raise Wrong(4092, f"unknown profile: {profile}")
        if settings["generation"] == 2 and settings["gated"] and any(key.startswith("from_") for key in params):
            raise Wrong(4095, "sender fields are not accepted from a logged-in client")
        sender = (params.get("from_handle"), params.get("from_connection"))
        if settings["generation"] >= 3 and all(isinstance(name, str) and NAME.fullmatch(name) for name in sender):
            text = STAMP.sub(lambda found: f"{found[1]} (@{sender[0]}@{sender[1]}): ", text, count=1)
        lock = self.locks.setdefault(profile, asyncio.Lock())
        try:
            async with asyncio.timeout(settings["lock_wait"]):
                await lock.acquire()
        except TimeoutError:
            data = {"reason": "target_busy"} if settings["generation"] >= 3 else None
            raise Wrong(5096, f"target_busy: {profile} was busy", data) from None
        try:
            turn = self.scripted(settings["turns"].get(profile), f"turn:{profile}", last_stays=True)
            self.log(event="turn", n=number, profile=profile, text=text)
            await self.held(turn)
        finally:
            lock.release()
        if "error" in turn:
            raise Wrong(**turn["error"])
        return {"reply": turn.get("reply", f"{profile} heard: {text}")}

    # ------------------------------------------------------------------------------------------------------ events

    async def watch(self) -> None:
        """``bot_relay.outbox.pending`` whenever there is newer mail than ever before; the first look is a baseline."""
        newest: float | None = None
        while True:
            settings = self.settings()
            times = [path.stat().st_mtime for path in self.files.folder("outbox").glob("*.json")]
            latest = max(times, default=0.0)
            if newest is not None and latest > newest and settings["watch"]:
                self.log(event="signal")
                for tell in list(self.lines):
                    await tell({"method": "event", "params": {"type": "bot_relay.outbox.pending", "payload": {}}})
            newest = max(newest or 0.0, latest)
            await asyncio.sleep(settings["tick"])

    # ---------------------------------------------------------------------------------------------------- transport

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send)
        elif scope["type"] == "http":
            status, body, cookie = self._http(scope, await self._body(receive))
            headers = [(b"content-type", b"application/json")]
            headers += [(b"set-cookie", f"hermes_session={cookie}; HttpOnly; Path=/".encode())] if cookie else []
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": json.dumps(body).encode()})

    async def _body(self, receive: Any) -> bytes:
        body = b""
        while True:
            part = await receive()
            body += part.get("body", b"")
            if not part.get("more_body"):
                return body

    def _http(self, scope: Any, body: bytes) -> tuple[int, Json, str | None]:
        settings = self.settings()
        gated, path = settings["gated"], (scope["method"], scope["path"])
        if path == ("GET", "/api/status"):
            providers = [gated["provider"]] if gated else []
            return (
                200,
                {"auth_required": bool(gated), "auth_providers": providers, "version": settings["version"]},
                None,
            )
        if path == ("POST", "/auth/password-login") and gated:
            given = json.loads(body)
            if given.get("provider") != gated["provider"]:
                return 404, {"detail": "unknown provider"}, None
            if gated["users"].get(given.get("username")) != given.get("password"):
                return 401, {"detail": "wrong name or password"}, None
            self.cookies.add(cookie := secrets.token_hex(8))
            return 200, {"ok": True}, cookie
        if path == ("POST", "/api/auth/ws-ticket") and gated:
            headers = {key.decode(): value.decode() for key, value in scope["headers"]}
            here = headers.get("cookie", "") + headers.get("authorization", "")
            if not any(cookie in here for cookie in self.cookies):
                return 401, {"detail": "not logged in"}, None
            ticket = secrets.token_hex(16)
            self.tickets[ticket] = time.monotonic() + settings["ticket_seconds"]
            return 200, {"ticket": ticket, "ttl_seconds": settings["ticket_seconds"]}, None
        return 404, {"detail": "Not Found"}, None

    def _lets_in(self, scope: Any) -> bool:
        settings = self.settings()
        query = {key: values[0] for key, values in parse_qs(scope["query_string"].decode()).items()}
        if any(key == b"origin" and value.startswith(b"http") for key, value in scope["headers"]):
            return False  # no page of anybody's is one of ours
        if settings["gated"]:
            return self.tickets.pop(query.get("ticket", ""), 0.0) > time.monotonic()
        return secrets.compare_digest(query.get("token", ""), settings["token"])

    async def _socket(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        if scope["path"] != "/api/ws" or not self._lets_in(scope):
            self.log(event="refused", path=scope["path"])
            await send({"type": "websocket.close", "code": 4401})  # before it was accepted: an HTTP 403
            return
        await send({"type": "websocket.accept"})
        self.count = line = self.count + 1
        self.log(event="connect", line=line)

        async def tell(what: Json) -> None:
            try:
                await send({"type": "websocket.send", "text": json.dumps({"jsonrpc": "2.0", **what})})
            except (OSError, RuntimeError):
                self.lines.discard(tell)  # the answer of a call whose line is gone is lost

        await tell({"method": "event", "params": {"type": "gateway.ready", "payload": {"skin": {}}}})
        self.lines.add(tell)
        async with asyncio.TaskGroup() as calls:
            while (frame := await receive())["type"] == "websocket.receive":
                calls.create_task(self._one(frame.get("text") or "", line, tell, send))
            self.lines.discard(tell)
            self.log(event="gone", line=line)

    async def _one(self, text: str, line: int, tell: Callable[[Json], Awaitable[None]], send: Any) -> None:
        try:
            if text.strip() and (answer := await self.answer(json.loads(text), line)) is not None:
                await tell(answer)
        except Dropped:
            self.lines.discard(tell)
            await send({"type": "websocket.close", "code": 1012})
        except ValueError:
            await tell({"id": None, "error": {"code": -32700, "message": "parse error"}})


class Server(uvicorn.Server):
    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        print("ready", self.servers[0].sockets[0].getsockname()[1], flush=True)


async def main(home: Path, port: int) -> None:
    gateway = Gateway(home)
    options: Json = {"ws": "websockets-sansio", "log_level": "error", "lifespan": "off", "timeout_graceful_shutdown": 1}
    server = Server(uvicorn.Config(gateway, "127.0.0.1", port, ws_max_size=1 << 27, **options))
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(gateway.watch())
        await server.serve()
        watching.cancel()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
