"""OpenCode by its HTTP server: turns in sessions that a person may watch, and a history that says what became of one.

What must stay true: a status of 200 alone is no answer (see ``opencode_answers``). A connection that is lost in the
middle is *lost* and no failure: the server works on without us. A turn that is stopped is stopped there, too. Nobody
sits at the screen, so what the agent asks leave for is answered by us, as the options say.
"""

import asyncio
from contextlib import suppress
from typing import Any

from angelia.model.failure import Reason
from angelia.turns.adapters.opencode_answers import SESSION, answer, in_history, is_ours, stalled
from angelia.turns.adapters.opencode_http import Calls, Cut, Unreached
from angelia.turns.adapters.port import Failed, Lost, Outcome, Turn

ROUTE = "HTTP server"
LOOK_SECONDS = 1.0  # between two looks at what it asks leave for: as long as an agent may wait for it
ABORT_SECONDS = 5.0  # the server answers at once, or hangs
# Of a turn's time. OpenCode tries again for ever when its provider fails; then there is time to say why.
PATIENCE = 0.8
# What a program's own turns forbid, as ``opencode run`` does: each would wait for somebody at the screen.
_NOBODY_THERE = [
    {"permission": name, "pattern": "*", "action": "deny"} for name in ("question", "plan_enter", "plan_exit")
]


class _Refused(Exception):
    """The server said no before a turn could begin; ``failed`` is what that means."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.text)
        self.failed = failed


class Server:
    """One agent at a server. ``reply``: what is said to a question for leave, ``once`` or ``reject``."""

    def __init__(self, calls: Calls, *, model: str | None, reply: str) -> None:
        """Takes how the server is asked; ``model``: provider/model, None for the server's own choice."""
        self._calls, self._reply = calls, reply
        provider, _, name = (model or "").partition("/")
        self._model = {"model": {"providerID": provider, "modelID": name}} if name else {}

    async def run(self, turn: Turn) -> Outcome:
        """Run one turn; see ``Adapter``."""
        try:
            session, route = await self._session(turn)
        except _Refused as refused:
            return refused.failed
        except (Unreached, Cut):
            text = "OpenCode's server cannot be reached; whoever runs this agent has to start it."
            return Failed(text, ROUTE, reason=Reason.RUNTIME_OFFLINE, began=False)
        turn.begun(session)
        async with asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(self._say(turn, session, route))
            try:
                ended = await self._watch(asked, turn, session, route)
            except asyncio.CancelledError:
                await self._abort(session)
                raise
            if ended is not None:
                await self._abort(session)
                asked.cancel()
        return ended or asked.result()

    async def recall(self, turn: Turn) -> Outcome | None:
        """Read what the session says of it, and wait while it still runs."""
        if turn.session is None or not SESSION.fullmatch(turn.session):
            return None
        with suppress(Unreached, Cut, TimeoutError):
            async with asyncio.timeout(turn.seconds):
                while True:
                    busy = await self._state(turn.session)  # before the history: what ends in between is in there
                    status, messages = await self._calls.ask("GET", f"/session/{turn.session}/message")
                    if status != 200 or not isinstance(messages, list):
                        return None
                    there, outcome = in_history(messages, turn, ROUTE)
                    if outcome is not None:
                        return outcome
                    if not there:
                        text = "The connection to OpenCode was lost before it had the message."
                        return Failed(text, ROUTE, reason=Reason.RUNTIME_OFFLINE, began=False)
                    if not busy:
                        return None
                    await self._give_leave(turn.session)
                    await asyncio.sleep(LOOK_SECONDS)
        return None

    async def close(self) -> None:
        """Nothing is warm."""

    async def version(self) -> str | None:
        """The version of the server that answers; None where none does. Raises ``PermissionError`` for a password."""
        try:
            status, said = await self._calls.ask("GET", "/global/health")
            if status == 401:
                raise PermissionError
        except (Unreached, Cut):
            return None
        version = said.get("version") if isinstance(said, dict) else None
        return version if isinstance(version, str) else None

    async def _session(self, turn: Turn) -> tuple[str, str]:
        """The session that the turn goes to, and its route. Raises ``_Refused``, or as ``Calls.ask`` does."""
        route = ROUTE
        if turn.session is not None and SESSION.fullmatch(turn.session):
            status, _ = await self._calls.ask("GET", f"/session/{turn.session}")
            if status == 200:
                return turn.session, route
            if status != 404:
                raise _Refused(_refusal(status))
        if turn.session is not None:
            route = f"{ROUTE}, a new session (the old one is gone)"
        wish = {"title": turn.conversation, "permission": _NOBODY_THERE}
        status, made = await self._calls.ask("POST", "/session", wish)
        session = made.get("id") if isinstance(made, dict) else None
        if status != 200 or not isinstance(session, str) or not SESSION.fullmatch(session):
            raise _Refused(_refusal(status))
        return session, route

    async def _say(self, turn: Turn, session: str, route: str) -> Outcome:
        """Hand over the message and wait for its answer."""
        path = f"/session/{session}/message"
        try:
            wish = {"parts": [{"type": "text", "text": turn.prompt}], **self._model}
            status, said = await self._calls.ask("POST", path, wish)
            if status != 200 or not isinstance(said, dict):
                return _refusal(status)
            parent = (said.get("info") or {}).get("parentID")
            _, question = await self._calls.ask("GET", f"{path}/{parent}")
            if not is_ours(question, turn):
                _, messages = await self._calls.ask("GET", path)
                ended = in_history(messages if isinstance(messages, list) else [], turn, route)[1]
                return ended or Lost("OpenCode answered another message than this one.", route)
        except Unreached:
            text = "OpenCode's server went away before it had the message."
            return Failed(text, ROUTE, reason=Reason.RUNTIME_OFFLINE, began=False)
        except Cut:
            return Lost("The connection to OpenCode's server was lost in the middle of the turn.", route)
        return answer(said, route)

    async def _watch(self, asked: "asyncio.Task[Outcome]", turn: Turn, session: str, route: str) -> Outcome | None:
        """Answer what it asks leave for until it is done (None), or until it is clear that it will not be."""
        ends = asyncio.get_running_loop().time() + turn.seconds * PATIENCE
        while not (await asyncio.wait({asked}, timeout=LOOK_SECONDS))[0]:
            with suppress(Unreached, Cut):  # then ``asked`` hears of it as well
                await self._give_leave(session)
                if asyncio.get_running_loop().time() > ends:
                    state = await self._state(session)
                    if state.get("type") == "retry" and not asked.done():
                        return stalled(str(state.get("message") or ""), route)
        return None

    async def _state(self, session: str) -> dict[str, Any]:
        """What the session does; empty when it does nothing."""
        _, states = await self._calls.ask("GET", "/session/status")
        state = states.get(session) if isinstance(states, dict) else None
        return state if isinstance(state, dict) and state.get("type") != "idle" else {}

    async def _give_leave(self, session: str) -> None:
        """Answer what the session, or one that it started, asks leave for."""
        _, requests = await self._calls.ask("GET", "/permission")
        if not isinstance(requests, list) or not requests:
            return
        _, children = await self._calls.ask("GET", f"/session/{session}/children")
        ours = {session} | {child.get("id") for child in (children if isinstance(children, list) else ())}
        for request in requests:
            if request.get("sessionID") in ours:
                await self._calls.ask("POST", f"/permission/{request.get('id')}/reply", {"reply": self._reply})

    async def _abort(self, session: str) -> None:
        with suppress(Unreached, Cut, TimeoutError):
            async with asyncio.timeout(ABORT_SECONDS):
                await self._calls.ask("POST", f"/session/{session}/abort")


def _refusal(status: int) -> Failed:
    """What an answer other than 200 means; below 500 it was refused before anything ran."""
    if status == 401:
        text = "OpenCode's server asks for a password that the hub does not have (password_file, password_env)."
        return Failed(text, ROUTE, reason=Reason.MISSING_CONFIG, began=False)
    text = f"OpenCode's server answered with status {status}."
    return Failed(text, ROUTE, reason=Reason.UNKNOWN, began=status >= 500)
