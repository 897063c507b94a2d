"""What every test stands on: asynchronous tests run on asyncio, as the hub does."""

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
