"""The Redis backend passes the conformance suite on a real server."""

from collections.abc import AsyncIterator

import pytest

from runnel.app.private_servers.redis import RedisServer
from runnel.backends.redis.backend import RedisBackend
from runnel.backends.redis.options import RedisOptions
from runnel.testing.clock import FakeClock, FakeIds
from runnel.testing.conformance import StoreConformance
from runnel.testing.harness import Harness
from runnel.testing.server_harness import RedisHarness
from tests.redis_server import flush_server


class TestRedis(StoreConformance):
    @pytest.fixture
    async def harness(
        self, shared_redis: RedisServer, clock: FakeClock, ids: FakeIds
    ) -> AsyncIterator[Harness]:
        flush_server(shared_redis)
        backend = await RedisBackend.open(
            shared_redis.url, RedisOptions(partitions=1), clock=clock, ids=ids
        )
        yield RedisHarness(backend)
        await backend.close()
