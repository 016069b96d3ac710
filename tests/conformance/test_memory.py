"""The memory backend passes the conformance suite."""

import pytest

from runnel.backends.memory import MemoryBackend
from runnel.testing.clock import FakeClock, FakeIds
from runnel.testing.conformance import StoreConformance
from runnel.testing.harness import Harness, MemoryHarness


class TestMemory(StoreConformance):
    @pytest.fixture
    async def harness(self, clock: FakeClock, ids: FakeIds) -> Harness:
        return MemoryHarness(MemoryBackend(clock, ids), clock)
