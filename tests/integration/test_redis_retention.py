"""Executions on a Redis without an archive are deleted with all their data."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import structs

from runnel.app.private_servers.redis import RedisServer
from runnel.backends.redis import archive
from runnel.backends.redis import retention as module
from runnel.backends.redis.backend import RedisBackend
from runnel.backends.redis.options import RedisOptions
from runnel.backends.redis.retention import RedisRetention
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.errors import NotFoundError
from runnel.ports.archive import ExecutionFilter
from runnel.ports.store import Commit, ExecutionHeader, HistoryRecord, Lease
from runnel.testing.conformance.suite import make_header
from tests.redis_server import flush_server

S = ExecutionState


@pytest.fixture
async def backend(shared_redis: RedisServer) -> AsyncIterator[RedisBackend]:
    flush_server(shared_redis)
    opened = await RedisBackend.open(
        shared_redis.url, RedisOptions(partitions=2), clock=RealClock(), ids=RandomIdGenerator()
    )
    yield opened
    await opened.close()


class Kept:
    """Writes executions as their owner does, and lists those that remain."""

    def __init__(self, backend: RedisBackend) -> None:
        self.backend = backend
        self._leases: dict[int, Lease] = {}
        self._sequences: dict[int, int] = {}

    async def write(self, *headers: ExecutionHeader) -> None:
        for header in headers:
            number = await self.backend.store.route(header.execution_id)
            if number not in self._leases:
                self._leases[number] = await self.backend.store.acquire(number, "one")
            self._sequences[number] = self._sequences.get(number, 0) + 1
            history = HistoryRecord(aggregate_id=header.execution_id, entry=b"entry")
            await self.backend.store.commit(
                self._leases[number],
                Commit(
                    sequence=self._sequences[number],
                    headers=[header],
                    histories=[history],
                ),
            )
            await self.backend.blobs.put(f"{header.execution_id}/out", b"large")

    async def left(self) -> list[str]:
        criteria = ExecutionFilter(with_children=True, limit=1_000)
        return sorted(
            header.execution_id for header in await self.backend.archive.list_headers(criteria)
        )


def ended(
    id_: str, *, at: float = 10.0, state: ExecutionState = S.COMPLETED, parent: str | None = None
) -> ExecutionHeader:
    return structs.replace(make_header(id_, state=state, parent=parent), finished_at=at)


@pytest.fixture
def kept(backend: RedisBackend) -> Kept:
    return Kept(backend)


@pytest.fixture
def retention(backend: RedisBackend) -> RedisRetention:
    return RedisRetention(backend.pool, backend.keys, backend.layout)


async def test_executions_that_ended_in_the_state_before_the_time_are_deleted(
    kept: Kept, retention: RedisRetention
) -> None:
    await kept.write(
        ended("x1"),
        ended("x2", at=99.0),
        ended("x3", state=S.FAILED),
        make_header("x4"),
        ended("x10"),
    )

    deleted = await retention.delete_finished(S.COMPLETED, before=50.0, limit=9)

    assert deleted == 2
    assert await kept.left() == ["x2", "x3", "x4"]
    assert not await kept.backend.archive.load(ExecutionId("x1"))
    assert await kept.backend.archive.load(ExecutionId("x2"))
    assert await kept.backend.blobs.get("x2/out") == b"large"
    with pytest.raises(NotFoundError):
        await kept.backend.blobs.get("x1/out")


async def test_at_most_the_limit_is_deleted(kept: Kept, retention: RedisRetention) -> None:
    await kept.write(*[ended(f"x{number}") for number in range(5)])

    counts = [await retention.delete_finished(S.COMPLETED, before=50.0, limit=2) for _ in range(4)]

    assert counts == [2, 2, 1, 0]


async def test_a_tree_is_deleted_completely_and_only_if_all_of_it_is_final(
    kept: Kept, retention: RedisRetention
) -> None:
    await kept.write(ended("x1"), ended("x1.a.1", parent="x1"))
    await kept.write(ended("x2"), make_header("x2.a.1", parent="x2"), ended("x20"))

    deleted = await retention.delete_finished(S.COMPLETED, before=50.0, limit=9)

    assert deleted == 2
    assert await kept.left() == ["x2", "x2.a.1"]


async def test_executions_that_stay_do_not_hide_later_ones(
    kept: Kept, retention: RedisRetention, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE_SIZE", 3)
    old = [make_header(f"x{number}", created_at=1.0) for number in range(10, 20)]
    tree = [ended(f"x3.{number}", parent="x3") for number in range(8)]
    await kept.write(*old, ended("x3"), *tree, ended("x4"))

    deleted = await retention.delete_finished(S.COMPLETED, before=50.0, limit=9)

    assert deleted == 2
    assert await kept.left() == [header.execution_id for header in old]


async def test_an_execution_that_changed_meanwhile_is_not_deleted(
    kept: Kept, retention: RedisRetention, monkeypatch: pytest.MonkeyPatch
) -> None:
    await kept.write(ended("x1"))
    run = kept.backend.pool.run_script

    async def after_a_change(*args: object, **named: object) -> object:
        monkeypatch.undo()
        await kept.write(make_header("x1"))
        return await run(*args, **named)  # type: ignore[arg-type]  # passed on unchanged

    monkeypatch.setattr(kept.backend.pool, "run_script", after_a_change)
    deleted = await retention.delete_finished(S.COMPLETED, before=50.0, limit=9)

    assert deleted == 0
    assert await kept.left() == ["x1"]


async def test_orphaned_blobs_are_deleted_after_their_idle_time(
    kept: Kept, retention: RedisRetention, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE_SIZE", 2)
    await kept.write(make_header("x1"), make_header("x3"))
    for key in ("x0/a", "x1.a/b.1/out", "x2/a", "x2.b/a", "x30/a"):
        await kept.backend.blobs.put(key, b"large")

    counts = [await retention.delete_orphaned_blobs(idle_s=idle_s) for idle_s in (3_600, 0, 0)]

    assert counts == [0, 4, 0]
    assert await kept.backend.blobs.delete("") == 3


async def test_listing_continues_while_executions_are_deleted(
    kept: Kept, retention: RedisRetention, monkeypatch: pytest.MonkeyPatch
) -> None:
    await kept.write(ended("x1"), ended("x2", state=S.FAILED), ended("x3"))
    monkeypatch.setattr(archive, "PAGE_SIZE", 1)
    run = kept.backend.pool.run_script

    async def delete_after_the_first(*args: Any, **how: Any) -> Any:
        reply = await run(*args, **how)
        if args[0] == "list_headers":
            monkeypatch.setattr(kept.backend.pool, "run_script", run)
            await retention.delete_finished(S.COMPLETED, before=1e10, limit=9)
        return reply

    monkeypatch.setattr(kept.backend.pool, "run_script", delete_after_the_first)

    assert await kept.left() == ["x2", "x3"]
    assert await kept.left() == ["x2"]
