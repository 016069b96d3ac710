"""Redis users whose access list has the keys of tasks, but not the channels of workers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from runnel.app.private_servers.redis import RedisServer
from runnel.backends.redis.backend import RedisBackend
from runnel.backends.redis.options import RedisOptions
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.errors import StoreError
from runnel.ports.store import Commit, HistoryRecord
from runnel.testing.conformance.suite import ROOT_ID, make_task
from tests.scripted_http_server import LOOPBACK
from tests.waiting import wait_for_value


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[RedisBackend]:
    backend = await RedisBackend.open(
        url, RedisOptions(partitions=1), clock=RealClock(), ids=RandomIdGenerator()
    )
    try:
        yield backend
    finally:
        await backend.close()


@asynccontextmanager
async def without_channels(
    backend: RedisBackend, server: RedisServer
) -> AsyncIterator[RedisBackend]:
    rights = ("on", ">word", "~runnel:*", "resetchannels", "+@all")
    await backend.pool.call("ACL", "SETUSER", "deaf", *rights)
    async with opened(f"redis://deaf:word@{LOOPBACK}:{server.port}/0") as restricted:
        yield restricted


async def test_a_worker_without_access_to_its_channel_gets_an_error_and_leaves_no_connection(
    own_redis: RedisServer,
) -> None:
    async with opened(own_redis.url) as backend, without_channels(backend, own_redis) as deaf:
        for _ in range(3):
            with pytest.raises(StoreError, match=r"SUBSCRIBE.*NOPERM|SUBSCRIBE.*No permissions"):
                await deaf.tasks.claim("w", None, limit=1, wait_s=60)

        async def poll() -> bool | None:
            clients = await backend.pool.call("CLIENT", "LIST")
            return clients.count(b" user=deaf ") == 1 or None

        await wait_for_value(poll, every_s=0.01, deadline_s=20)


async def test_a_commit_without_the_right_to_publish_is_written_completely(
    own_redis: RedisServer,
) -> None:
    async with opened(own_redis.url) as backend, without_channels(backend, own_redis) as mute:
        lease = await mute.store.acquire(0, "one")
        claiming = asyncio.ensure_future(
            backend.tasks.claim("w", None, limit=4, wait_s=60, starts_tasks=True)
        )

        async def poll() -> bool | None:
            return await backend.pool.call("HLEN", backend.keys.waiting) == 1 or None

        await wait_for_value(poll, every_s=0.01, deadline_s=20)
        histories = [HistoryRecord(aggregate_id=ROOT_ID, entry=b"[]")]
        await mute.store.commit(
            lease, Commit(sequence=1, histories=histories, tasks=[make_task("a")])
        )
        claiming.cancel()
        await asyncio.wait([claiming])

        [task] = await backend.tasks.claim("w", None, limit=4, wait_s=0)
        assert task.token.node_id == "a"
        assert await backend.pool.call("LLEN", backend.keys.history + ROOT_ID) == 1
