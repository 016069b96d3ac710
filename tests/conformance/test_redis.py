"""The Redis backend keeps the promises of the ports, on a real server."""

from collections.abc import AsyncIterator

import pytest

from runnel.backends.redis import RedisBackend
from runnel.testing.clock import FakeClock, FakeIds
from runnel.testing.conformance import StoreConformance
from runnel.testing.harness import Harness
from runnel.testing.redis_harness import RedisHarness
from tests.redis_server import RedisServer


class TestRedis(StoreConformance):
    @pytest.fixture
    async def harness(
        self, redis_server: RedisServer, clock: FakeClock, ids: FakeIds
    ) -> AsyncIterator[Harness]:
        redis_server.empty()
        backend = await RedisBackend.open(redis_server.url, clock=clock, ids=ids, partitions=1)
        yield RedisHarness(backend)
        await backend.close()
