"""Stand-ins as programs: what an adapter starts in place of a real agent, and what it was called with."""

import asyncio
import json
import os
import shlex
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from angelia.model.failure import Reason, classify_output
from angelia.turns.adapters.port import Adapter, Failed, Tools, Turn
from tests.turns.asking import Asking, tools_in

STAND_INS = Path(__file__).parent / "stand_ins"


@dataclass
class Program:
    """A stand-in in a folder of its own, in the PATH of ``tools``, and one conversation with it."""

    folder: Path
    path: Path
    tools: Tools
    asking: Asking = field(default_factory=Asking)

    def calls(self) -> list[dict[str, Any]]:
        """What it was called with so far: ``argv``, ``stdin``, ``environment`` and ``pid`` of each call."""
        log = self.folder / "log"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def tools_with(self, **variables: str) -> Tools:
        """The same tools, with more variables, which programs get, too."""
        given = {**self.tools.environment, **variables}
        return replace(self.tools, environment=given, variables=given)


def program_in(folder: Path, name: str, stand_in: str) -> Program:
    """``name``, which runs a script of ``stand_ins``."""
    (folder / "bin").mkdir()
    path = folder / "bin" / name
    path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I {shlex.quote(str(STAND_INS / stand_in))} "$@"\n')
    path.chmod(0o755)
    environment = {
        "PATH": f"{path.parent}{os.pathsep}{os.defpath}",
        "HOME": str(folder / "home"),
        "STAND_IN_LOG": str(folder / "log"),
    }
    return Program(folder, path, tools_in(folder, environment))


def telling(turn: Turn, begun: asyncio.Event) -> Turn:
    """The same turn, which also sets ``begun`` when its conversation is known."""

    def tell(session: str) -> None:
        turn.begun(session)
        begun.set()

    return replace(turn, begun=tell)


async def cut_off(agent: Adapter, turn: Turn) -> None:
    """Run a turn until its conversation is known, then cancel it, as the runner does when its time is over."""
    begun = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(agent.run(telling(turn, begun)))
        await begun.wait()
        running.cancel()
    assert running.cancelled()


def reason_of(failed: object) -> Reason:
    """The reason of a failure, as the runner finds it."""
    assert isinstance(failed, Failed)
    return failed.reason or classify_output(failed.output, ())
