"""A small hub for each test; one over a store that can be troubled for those who ask."""

import pytest

from tests.fakes.small_hub import SmallHub
from tests.fakes.troubled_store import TroubledStore


@pytest.fixture
async def hub() -> SmallHub:
    return await SmallHub.open()


@pytest.fixture
def store() -> TroubledStore:
    return TroubledStore()


@pytest.fixture
async def troubled(store: TroubledStore) -> SmallHub:
    return await SmallHub.open(store=store)
