"""What tests of dialling share: connections to a stand-in, a line while a block runs, and why there is none."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from angelia.links.dial import DialTools, dial
from angelia.links.port import Dialled, Kind, Trouble
from angelia.model.connection import Connection
from tests.links.lines import SECONDS
from tests.links.stand_ins.server import Server

SECRET = "s3cr3t-t0ken/+"
SILENCE = 0.3  # seconds for a line, where nobody says anything


def tools(seconds: float = SECONDS, **variables: str) -> DialTools:
    return lent({"PATH": os.defpath, **variables}, seconds=seconds)


def lent(environment: Mapping[str, str], folder: str = "/nowhere", seconds: float = SECONDS) -> DialTools:
    """What dialling needs, where programs see the whole environment."""
    return DialTools(environment, lambda: environment, folder, seconds)


def to(server: Server | int, **more: Any) -> Connection:
    port = server.port if isinstance(server, Server) else server
    return Connection(**{"name": "box", "target": f"ws://127.0.0.1:{port}", **more})


@asynccontextmanager
async def dialled(connection: Connection, with_tools: DialTools | None = None) -> AsyncIterator[Dialled]:
    found = await dial(connection, with_tools or tools())
    try:
        yield found
    finally:
        await found.wire.close()


async def trouble(connection: Connection, with_tools: DialTools | None = None) -> Trouble:
    """Why there is no line. It holds no secret, and says what to do."""
    with pytest.raises(Trouble) as found:
        await dial(connection, with_tools or tools())
    problem, advice = found.value.problem, found.value.advice
    assert SECRET not in problem + advice + repr(found.value)
    assert problem.endswith("."), problem
    assert advice.endswith(".") or advice.startswith("Run: "), advice
    return found.value


def kind_of(found: Trouble) -> tuple[Kind, bool]:
    return found.kind, found.lasting


def secret_in(folder: Path, content: str = SECRET, mode: int = 0o600) -> str:
    path = folder / "secret"
    path.write_text(content)
    path.chmod(mode)
    return str(path)
