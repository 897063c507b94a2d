"""A turn as the runner would hand it to an adapter, and the tools of a hub, for tests of adapters."""

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from angelia.model.envelope import Envelope, Intent, Kind
from angelia.turns.adapters.port import Tools, Turn
from angelia.turns.processes import ChildProcesses

NOW = 1_800_000_000_000  # 2027-01-15T08:00:00Z


def envelope(text: str | None = "hello", body: bytes | None = None, **fields: Any) -> Envelope:
    """A message of alice to bot; ``fields`` change it."""
    id = uuid.uuid4().hex
    plain = Envelope(
        id=id, sender="alice", to="bot", intent=Intent.REQUEST, kind=Kind.MESSAGE, text=text, body=body, thread=id,
        chain=id, created_at=NOW, expires_at=NOW + 60_000, fingerprint=b"",
    )  # fmt: skip
    return plain._replace(**fields)


def turn(text: str = "hello", message: Envelope | None = None, **fields: Any) -> Turn:
    """A turn with this text; ``fields`` change it."""
    message = message or envelope(text)
    plain = Turn(
        agent="bot", message=message, text=text, prompt=f"alice writes: <<{text}>>", stamped=f"[alice] {text}",
        conversation="bot", session=None, key=f"{message.id}-1", again=False, seconds=30.0,
        environment={"ANGELIA_FROM": "alice", "ANGELIA_URL": "http://127.0.0.1:18900"}, begun=_ignore,
    )  # fmt: skip
    return replace(plain, **fields)


def _ignore(session: str) -> None:
    """Nobody keeps it."""


def tools(base: Path, grace_seconds: float = 5.0, **environment: str) -> Tools:
    """The tools of a hub whose folders are under ``base``."""
    home, private = base / "home", base / "private"
    home.mkdir(exist_ok=True)
    private.mkdir(mode=0o700, exist_ok=True)
    return Tools(
        children=ChildProcesses(str(base / "running"), grace_seconds=grace_seconds),
        environment={"PATH": "/usr/bin:/bin", **environment},
        variables=environment,
        home=str(home),
        private=str(private),
    )
