"""A server that stops, restarts, or loses its scripts; callers that are cancelled."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from runnel.app.private_servers.redis import RedisServer
from runnel.backends.redis.backend import RedisBackend
from runnel.backends.redis.options import RedisOptions
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.errors import FencedError, InputError, StoreError
from runnel.ports.store import Commit, Lease, Store
from runnel.testing.conformance.suite import ROOT_ID, make_message, make_task, make_token

CALLS: dict[str, Callable[[Store, Lease], Awaitable[object]]] = {
    "renew": lambda store, lease: store.renew(lease),
    "commit": lambda store, lease: store.commit(lease, Commit(sequence=lease.sequence + 1)),
    "read": lambda store, lease: store.read_inbox(lease, limit=1, wait_s=0),
    "wait": lambda store, lease: store.read_inbox(lease, limit=1, wait_s=1),
    "due": lambda store, lease: store.due_timers(lease, 1.0, limit=1),
    "next due": lambda store, lease: store.next_due(lease),
}


@pytest.fixture
async def backend(own_redis: RedisServer) -> AsyncIterator[RedisBackend]:
    opened = await open_backend(own_redis)
    yield opened
    await opened.close()


async def open_backend(own_redis: RedisServer, partitions: int | None = 1) -> RedisBackend:
    return await RedisBackend.open(
        own_redis.url,
        RedisOptions(partitions=partitions),
        clock=RealClock(),
        ids=RandomIdGenerator(),
    )


async def until_it_answers(backend: RedisBackend) -> None:
    while True:
        try:
            await backend.store.observe(0)
        except StoreError:
            continue
        return


@pytest.mark.parametrize("call", CALLS)
async def test_a_lease_from_before_a_restart_is_refused(
    own_redis: RedisServer, backend: RedisBackend, call: str
) -> None:
    lease = await backend.store.acquire(0, "one")
    own_redis.restart()
    await until_it_answers(backend)

    with pytest.raises(FencedError):
        await CALLS[call](backend.store, lease)

    record = await backend.store.observe(0)
    assert record is not None
    assert (record.epoch, record.counter) == (lease.epoch, 0)


async def test_a_lease_from_before_a_restart_can_be_released_and_acquired_again(
    own_redis: RedisServer, backend: RedisBackend
) -> None:
    await backend.mailbox.send([make_message("a")])
    lease = await backend.store.acquire(0, "one")
    own_redis.restart()
    await until_it_answers(backend)

    await backend.store.release(lease)
    current = await backend.store.acquire(0, "two")

    entries = await backend.store.read_inbox(current, limit=9, wait_s=1)
    assert [entry.command for entry in entries] == [make_message("a")]
    await backend.store.commit(current, Commit(sequence=1, consumed=entries[0].position))


async def test_every_call_to_a_stopped_server_is_a_store_error(
    own_redis: RedisServer, backend: RedisBackend
) -> None:
    lease = await backend.store.acquire(0, "one")
    own_redis.kill()

    calls = [call(backend.store, lease) for call in CALLS.values()]
    calls += [
        backend.mailbox.send([make_message("a")]),
        backend.tasks.claim("w", None, limit=1, wait_s=1),
        backend.tasks.wait_dropped("w", wait_s=1),
        backend.blobs.get("x"),
        backend.archive.get_header(ROOT_ID),
    ]
    answers = await asyncio.gather(*calls, return_exceptions=True)

    assert {type(answer) for answer in answers} == {StoreError}


async def test_scripts_that_the_server_has_forgotten_are_loaded_again(
    backend: RedisBackend,
) -> None:
    lease = await backend.store.acquire(0, "one")
    await backend.pool.call("SCRIPT", "FLUSH")

    await backend.store.commit(lease, Commit(sequence=1, tasks=[make_task("a")]))

    assert len(await backend.tasks.claim("w", None, limit=1, wait_s=0)) == 1


async def test_a_wiped_partition_has_no_owner(backend: RedisBackend) -> None:
    lease = await backend.store.acquire(0, "one")
    await backend.pool.call("FLUSHALL")

    with pytest.raises(FencedError):
        await backend.store.commit(lease, Commit(sequence=1))

    assert await backend.store.observe(0) is None


async def test_the_reply_to_a_cancelled_call_never_reaches_another_call(
    backend: RedisBackend,
) -> None:
    """Calls are cancelled at every point on their way."""
    lease = await backend.store.acquire(0, "one")
    for turns in range(12):
        async with asyncio.TaskGroup() as group:
            given_up = [
                group.create_task(backend.store.load(ROOT_ID)),
                group.create_task(backend.store.read_inbox(lease, limit=1, wait_s=5)),
                group.create_task(backend.tasks.claim("w", None, limit=1, wait_s=5)),
            ]
            for _ in range(turns):
                await asyncio.sleep(0)
            for call in given_up:
                call.cancel()
        record = await backend.store.observe(0)
        assert record is not None
        assert record.owner == "one"
        assert list(await backend.store.load(ROOT_ID)) == []

    await backend.mailbox.send([make_message("a")])
    assert len(await backend.store.read_inbox(lease, limit=9, wait_s=5)) == 1


async def test_many_waiting_claims_do_not_delay_a_call(backend: RedisBackend) -> None:
    lease = await backend.store.acquire(0, "one")

    async with asyncio.TaskGroup() as group:
        waiting = [
            group.create_task(backend.tasks.claim(f"w{number}", None, limit=1, wait_s=30))
            for number in range(40)
        ]
        tasks = [make_task(f"t{number}") for number in range(40)]
        await backend.store.commit(lease, Commit(sequence=1, tasks=tasks))

    claimed = sorted(task.token.node_id for claim in waiting for task in claim.result())
    assert claimed == sorted(task.token.node_id for task in tasks)


async def test_a_claim_with_a_lost_reply_is_lost_after_two_heartbeats(
    backend: RedisBackend,
) -> None:
    lease = await backend.store.acquire(0, "one")
    await backend.store.commit(lease, Commit(sequence=1, tasks=[make_task("a")]))
    await backend.tasks.claim("w", None, limit=1, wait_s=0)

    for _ in range(2):
        await backend.tasks.beat("w", [])

    entries = await backend.store.read_inbox(lease, limit=9, wait_s=0)
    assert [type(entry.command).__name__ for entry in entries] == ["TaskLost"]
    assert list(await backend.store.unknown_tasks(0, [make_token("a")])) == []


async def test_the_number_of_partitions_is_fixed(
    own_redis: RedisServer, backend: RedisBackend
) -> None:
    with pytest.raises(InputError, match="the store has 1 partitions"):
        await open_backend(own_redis, partitions=2)

    second = await open_backend(own_redis, partitions=None)
    assert list(await second.store.partitions()) == [0]
    await second.close()


@pytest.mark.parametrize("url", ["localhost", "http://localhost", "redis://host:x"])
async def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="expected the URL"):
        await RedisBackend.open(url, clock=RealClock(), ids=RandomIdGenerator())
