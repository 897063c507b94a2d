"""What every test stands on: asynchronous tests run on asyncio, as the hub does, and a slow moment is no failure."""

import pytest
from hypothesis import settings

# Hypothesis would fail an example that took 200 ms, as any may on a busy machine. pytest-timeout finds what hangs.
# The profile of CI, which Hypothesis chooses by itself, stays below: there the examples are the same each time.
settings.register_profile("angelia", settings(), deadline=None)
settings.load_profile("angelia")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
