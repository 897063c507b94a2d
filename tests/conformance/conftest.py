"""Every store that there is, each also behind one that answers late: a test that takes ``store`` runs on all."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from angelia.bus.ports import Store
from angelia.storage.memory import MemoryStore
from angelia.storage.sqlite.full import Reserve
from angelia.storage.sqlite.store import SqliteStore
from tests.conformance.mail import NOW
from tests.fakes.slow_store import SlowStore

# What the stores of tests keep back. SMALL: the log is folded every few units. ROOMY: it is not, within a short test.
SMALL = Reserve(ballast_bytes=256 * 1024, log_bytes=256 * 1024, slack_bytes=64 * 1024, probe_seconds=0.02)
ROOMY = Reserve(ballast_bytes=256 * 1024, log_bytes=8 * 1024 * 1024, slack_bytes=64 * 1024, probe_seconds=0.02)


@pytest.fixture(params=["memory", "sqlite", "memory, slow", "sqlite, slow"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    kind: str = request.param
    inner: Store
    if kind.startswith("sqlite"):
        inner = await SqliteStore.open(tmp_path / "angelia.db", now=NOW, reserve=SMALL)
    else:
        inner = MemoryStore()
    outer = SlowStore(inner) if kind.endswith("slow") else inner
    yield outer
    await outer.close()
