"""Turns as the runner would hand them to an adapter, and the tools that it lends: for tests of one adapter alone."""

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from angelia.model.envelope import Envelope, Intent, Kind
from angelia.turns.adapters.port import Tools, Turn
from angelia.turns.processes import ChildProcesses


@dataclass
class Asking:
    """One conversation with an agent. ``sessions``: what ``begun`` was told, in order; the last one is handed on."""

    sessions: list[str] = field(default_factory=list)

    def turn(self, text: str, *, seconds: float = 30.0, message: str | None = None) -> Turn:
        """A turn with this text; ``message``: the id of an earlier one, to ask for it again."""
        sent = Envelope(
            id=message or secrets.token_hex(16),
            sender="anna",
            to="agent",
            intent=Intent.REQUEST,
            kind=Kind.MESSAGE,
            text=text,
            body=None,
            thread="0" * 32,
            chain="0" * 32,
            created_at=0,
            expires_at=0,
            fingerprint=b"",
        )
        return Turn(
            agent="agent",
            message=sent,
            text=text,
            prompt=f"[angelia] A message from @anna (id {sent.id}).\n{text}",
            stamped=text,
            conversation="agent",
            session=self.sessions[-1] if self.sessions else None,
            key=f"{sent.id}-1",
            again=False,
            seconds=seconds,
            environment={"ANGELIA_AGENT": "agent", "ANGELIA_ID": sent.id},
            begun=self.sessions.append,
        )


def tools_in(folder: Path, environment: Mapping[str, str] | None = None, *, grace_seconds: float = 1.0) -> Tools:
    """Tools over real processes, whose notes and home are in ``folder``."""
    (folder / "home").mkdir(exist_ok=True)
    return Tools(
        children=ChildProcesses(str(folder / "children"), grace_seconds=grace_seconds),
        environment=environment or {"PATH": os.defpath},
        variables=environment or {},
        home=str(folder / "home"),
        private=str(folder),
    )


@contextmanager
def nothing_left(folder: Path) -> Iterator[None]:
    """Of what was started by ``tools_in(folder)`` nothing runs at the end: no note of it is on disk."""
    yield
    assert [str(path) for path in (folder / "children").iterdir()] == []
