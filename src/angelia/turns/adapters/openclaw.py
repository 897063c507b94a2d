"""OpenClaw: one turn by its gateway's ``agent`` method; by its command line where only that is let in.

What must stay true: an attempt is asked for under its own key, so that OpenClaw itself runs it once, however often it
is asked. One conversation is one of OpenClaw's sessions. A turn that is cancelled is broken off there, too. Once the
gateway took it, a lost connection is no failure: OpenClaw goes on by itself, even after a crash, and its history tells.
"""

import asyncio
import math
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from angelia.model.failure import Reason
from angelia.protocol.foreign_json import Malformed, read
from angelia.turns.adapters import openclaw_answers, openclaw_cli
from angelia.turns.adapters.openclaw_gateway import Broken, Gateway, Refused, Unreachable, connected, mapping
from angelia.turns.adapters.port import Failed, Found, Kind, Lost, Options, Outcome, Tools, Turn
from angelia.turns.adapters.secret_file import secret_in, wrong_with

ROUTE = "gateway"
PORT = 18789  # OpenClaw's own choice
STARTING_SECONDS = 60.0  # a gateway that says that it starts is waited for: with all its plugins it takes 10 to 20 s
ABORT_SECONDS = 5.0
LOOK_SECONDS = 1.0
SETTLE_SECONDS = 30.0  # a restarted gateway takes turns up some 5 s after it lets us in
GONE_SECONDS = 60.0  # in which a gateway that crashed is up again and takes its turns up, or does neither
ROWS = 1000  # of a history; the most that OpenClaw hands out at once
HELP = "Start it with `openclaw gateway run`, or give its address in `url`."
# Why a gateway lets nobody in, at the door: then its own command line may still be welcome.
_CLOSED = re.compile(r"AUTH_|DEVICE_|PAIR")
_AGENT = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}", re.ASCII)
_VARIABLE = re.compile(r"\$\{(\w+)\}", re.ASCII)


class OpenClawOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """``agent``: which of OpenClaw's. ``url``: of its gateway; the token in a file or a variable of the hub's (else
    both as the configuration in ``home``, else in ~/.openclaw, says). ``program``: the ``openclaw`` to run (else in
    PATH)."""

    agent: str = "main"
    home: str | None = None
    url: str | None = None
    token_file: str | None = None
    token_env: str | None = None
    program: str | None = None


@dataclass(frozen=True, slots=True)
class _Door:
    url: str
    token: str | None


class OpenClaw:
    """One agent of one OpenClaw. Fills ``Adapter``."""

    def __init__(self, options: OpenClawOptions, tools: Tools, settle_seconds: float = SETTLE_SECONDS) -> None:
        """Takes how it is reached, what the hub lends, and how long nothing may happen to a turn before it is over."""
        self._options, self._tools, self._settle_seconds = options, tools, settle_seconds

    async def run(self, turn: Turn) -> Outcome:
        """See ``Adapter``."""
        door, session = _door(self._options, self._tools), self._session(turn)
        try:
            async with connected(door.url, door.token, min(turn.seconds, STARTING_SECONDS)) as gateway:
                return await self._asked(gateway, session, turn)
        except Unreachable as error:
            return Failed(f"OpenClaw is not there: {error}.", ROUTE, Reason.RUNTIME_OFFLINE, began=False)
        except Broken as error:
            return Lost(f"The connection to OpenClaw was lost: {error}.", ROUTE)
        except Refused as error:
            program = _program(self._options, self._tools)
            if _is_closed(error) and program is not None:
                turn.begun(session)
                return await openclaw_cli.run(program, self._options.agent, session, turn, self._tools)
            return _refused(error)

    async def _asked(self, gateway: Gateway, session: str, turn: Turn) -> Outcome:
        """Ask for the run and hear its end. Raises ``Refused`` where it was not taken, or ``Broken``."""
        params = {"message": turn.prompt, "agentId": self._options.agent, "sessionKey": session, "deliver": False}
        limit = {"idempotencyKey": turn.key, "timeout": math.ceil(turn.seconds)}
        ends = asyncio.get_running_loop().time() + min(turn.seconds, STARTING_SECONDS)
        number, accepted = None, False
        try:
            while True:
                number = await gateway.put("agent", {**params, **limit})
                try:
                    answer = await gateway.hear(number)
                    if answer.get("status") == "accepted":
                        accepted = True
                        turn.begun(str(answer.get("sessionKey") or session))
                        answer = await gateway.hear(number)
                    return openclaw_answers.outcome(answer, ROUTE)
                except Refused as error:
                    if error.payload:  # the end of a run that failed; without it, it was not begun
                        return openclaw_answers.outcome(error.payload, ROUTE)
                    if not error.retryable or asyncio.get_running_loop().time() + error.wait_seconds >= ends:
                        raise
                    await asyncio.sleep(error.wait_seconds)
        except asyncio.CancelledError:
            await self._abort(gateway, None if accepted else number, session, turn)
            raise

    async def _abort(self, gateway: Gateway, asked: str | None, session: str, turn: Turn) -> None:
        """Break the run off; if the gateway does not hear it any more, its own limit ends the run. ``asked``: what was
        not accepted yet, and cannot be broken off before it is."""
        with suppress(Refused, Broken, TimeoutError):
            async with asyncio.timeout(ABORT_SECONDS):
                if asked is not None:
                    await gateway.hear(asked)
                await gateway.ask("sessions.abort", {"key": session, "runId": turn.key})

    async def recall(self, turn: Turn) -> Outcome | None:
        """See ``Adapter``. A gateway that is gone is waited for; what it takes up again is waited for, too."""
        door, loop = _door(self._options, self._tools), asyncio.get_running_loop()
        ends, back_by = loop.time() + turn.seconds, loop.time() + min(turn.seconds, GONE_SECONDS)
        while True:
            try:
                async with connected(door.url, door.token, back_by - loop.time()) as gateway:
                    return await self._looked(gateway, turn, ends)
            except (Unreachable, Broken, TimeoutError):
                if loop.time() >= back_by:
                    return None
                await asyncio.sleep(LOOK_SECONDS)
            except Refused:
                return None

    async def _looked(self, gateway: Gateway, turn: Turn, ends: float) -> Outcome | None:
        """What became of a turn, as soon as that is sure; None at ``ends``, and where there is no trace of it."""
        loop, where = asyncio.get_running_loop(), {"sessionKey": self._session(turn), "limit": ROWS}
        busy = loop.time()
        while loop.time() < ends:
            run = await gateway.ask("agent.wait", {"runId": turn.key, "timeoutMs": int(LOOK_SECONDS * 1000)})
            if (known := openclaw_answers.waited(run, ROUTE)) is not None:
                return known
            history = await gateway.ask("chat.history", where)
            outcome = openclaw_answers.remembered(history, turn.key, turn.prompt, f"{ROUTE}, its history")
            if outcome is not None or not openclaw_answers.mentions(history, turn.key, turn.prompt):
                return outcome
            if openclaw_answers.runs(history):
                busy = loop.time()
            elif loop.time() - busy > self._settle_seconds:
                return openclaw_answers.given_up(ROUTE)
            await asyncio.sleep(LOOK_SECONDS)
        return None

    async def close(self) -> None:
        """Nothing is warm: a connection is made in a tenth of a second, and lives as long as its turn."""

    def _session(self, turn: Turn) -> str:
        """The key of OpenClaw's session; it writes them in lower case."""
        return f"agent:{self._options.agent}:angelia-{turn.conversation}".lower()


def _is_closed(error: Refused) -> bool:
    return _CLOSED.search(f"{error.code} {error.detail}") is not None


def _refused(error: Refused) -> Failed:
    """The gateway did not take it."""
    if error.retryable:
        return Failed(
            "OpenClaw is busy starting.", ROUTE, Reason.RUNTIME_OFFLINE, str(error), False, error.wait_seconds
        )
    if _is_closed(error):
        text = "OpenClaw's gateway does not let the hub in: its token is missing or not the one given."
        return Failed(text, ROUTE, Reason.MISSING_CONFIG, str(error), began=False)
    if "unknown agent" in str(error):
        return Failed("OpenClaw has no such agent.", ROUTE, Reason.MISSING_CONFIG, str(error), began=False)
    return Failed("OpenClaw refused it.", ROUTE, None, str(error), began=False)


async def detect(options: OpenClawOptions, tools: Tools) -> Found:
    """Which OpenClaw there is, and whether its gateway lets us in."""
    door, program = _door(options, tools), _program(options, tools)
    version = await openclaw_cli.version(program, tools) if program is not None else None
    try:
        async with connected(door.url, door.token, 0):
            ways = (ROUTE, *((openclaw_cli.ROUTE,) if program else ()))
            return Found(program, version, ways, notes=(f"gateway at {door.url}",))
    except Unreachable:
        problem = f"No OpenClaw gateway answers at {door.url}. {HELP}"
    except Refused as error:
        if error.retryable:
            return Found(program, version, (ROUTE,), notes=(f"the gateway at {door.url} is starting",))
        if _is_closed(error) and program is not None:
            return Found(program, version, (openclaw_cli.ROUTE,), notes=(f"{door.url} lets in only its own: {error}",))
        problem = f"OpenClaw's gateway at {door.url} does not let the hub in ({error}): give its token in token_file."
    return Found(program, version, (), problem)


def check(options: OpenClawOptions, tools: Tools) -> str | None:
    """What is wrong with the options."""
    if _AGENT.fullmatch(options.agent) is None:
        return f"'{options.agent[:80]}' is no id of an OpenClaw agent: lower-case letters, digits, '_' and '-'."
    if options.url is not None and (
        urlsplit(options.url).scheme not in ("ws", "wss") or not urlsplit(options.url).hostname
    ):
        return f"'{options.url}' is no address of a gateway: ws://HOST:PORT."
    if options.program is not None and not os.access(options.program, os.X_OK):
        return f"There is no program {options.program}."
    if options.home is not None and not Path(options.home).is_dir():
        return f"There is no folder {options.home}."
    return wrong_with(options.token_file) if options.token_file is not None else None


def _program(options: OpenClawOptions, tools: Tools) -> str | None:
    found = options.program or shutil.which("openclaw", path=tools.environment.get("PATH", os.defpath))
    return os.path.abspath(found) if found else None


def _door(options: OpenClawOptions, tools: Tools) -> _Door:
    """Where the gateway is, and the token: as the options say, else as OpenClaw's own configuration does.
    Raises ``UnfitSecret``."""
    gateway = mapping(_configuration(options, tools).get("gateway"))
    port = gateway.get("port")
    url = options.url or f"ws://127.0.0.1:{port if isinstance(port, int) else PORT}"
    if options.token_file is not None:
        return _Door(url, secret_in(options.token_file))
    if options.token_env is not None:
        return _Door(url, tools.variables.get(options.token_env))
    token = mapping(gateway.get("auth")).get("token")
    if isinstance(token, str):
        named = _VARIABLE.fullmatch(token)
        token = tools.variables.get(named[1]) if named else token
    # A token out of a file of this machine is never sent to a gateway on another.
    here = urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost")
    return _Door(url, token if here and isinstance(token, str) else None)


def _configuration(options: OpenClawOptions, tools: Tools) -> Mapping[str, Any]:
    """OpenClaw's own configuration; nothing where there is none that we can read (it may be JSON5)."""
    told = tools.environment.get("OPENCLAW_CONFIG_PATH") if options.home is None else None
    home = options.home or tools.environment.get("OPENCLAW_STATE_DIR") or os.path.join(tools.home, ".openclaw")
    try:
        return mapping(read(Path(told or os.path.join(home, "openclaw.json")).read_bytes()))
    except (OSError, Malformed):
        return {}


KIND = Kind(
    name="openclaw",
    title="OpenClaw",
    options=OpenClawOptions,
    make=OpenClaw,
    detect=detect,
    check=check,
    reports=("input_tokens", "output_tokens", "cost_usd", "model"),
)
