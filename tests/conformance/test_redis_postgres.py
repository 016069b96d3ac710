"""Redis with PostgreSQL passes the conformance suite on real servers."""

from collections.abc import AsyncIterator

import pytest

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.notify.event_bus import EventBus
from runnel.testing.clock import FakeClock, FakeIds
from runnel.testing.conformance import StoreConformance
from runnel.testing.harness import Harness
from runnel.testing.server_harness import ArchivedHarness
from tests.redis_postgres import empty_archive, open_archived_backend
from tests.redis_server import flush_server

SCHEMA = "conformance"


@pytest.mark.slow
class TestArchived(StoreConformance):
    @pytest.fixture
    async def harness(
        self,
        shared_redis: RedisServer,
        shared_postgres: PostgresServer,
        clock: FakeClock,
        ids: FakeIds,
    ) -> AsyncIterator[Harness]:
        await empty_archive(shared_postgres, SCHEMA)
        flush_server(shared_redis)
        backend = await open_archived_backend(
            shared_redis, shared_postgres, clock, ids, schema=SCHEMA
        )
        yield ArchivedHarness(backend, clock, EventBus())
        await backend.close()
