"""Tasks that were running when their process died: the next owner knows them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from runnel.backends.sqlite.backend import SqliteBackend
from runnel.ports.store import Commit, LossKind
from runnel.ports.workers import WorkerInfo
from runnel.testing.clock import FakeClock, FakeIds
from runnel.testing.conformance.suite import LeaseOwner, make_completion, make_task, make_token

Open = Callable[[str], Awaitable[SqliteBackend]]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def open_backend(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Open]:
    opened: list[SqliteBackend] = []

    async def open_(name: str) -> SqliteBackend:
        opened.append(await SqliteBackend.open(tmp_path, clock=clock, ids=FakeIds(name)))
        return opened[-1]

    yield open_
    for backend in opened:
        await backend.close()


async def begin(backend: SqliteBackend, *names: str, partition: int = 0) -> LeaseOwner:
    """Owns the partition and starts these tasks, before any history records it.

    One more task is claimed and started with them, but waits for a slot.
    """
    owner = LeaseOwner(backend.store, await backend.store.acquire(partition, "one"))
    claimed = [*names, "ahead"]
    await owner.commit(Commit(sequence=0, tasks=[make_task(name) for name in claimed]))
    await backend.tasks.claim("w", None, limit=9, wait_s=0)
    await backend.tasks.start("w", [make_token(name) for name in claimed], now=1.0)
    for name in names:
        backend.tasks.begin(make_token(name))
    return owner


def die(backend: SqliteBackend, *partitions: int) -> None:
    """Simulates a kill: the kernel frees the locks, and nothing else is cleaned up."""
    for partition in partitions:
        backend.leases.locks.unlock(partition)


async def test_the_next_owner_knows_which_tasks_were_running(open_backend: Open) -> None:
    first = await open_backend("one")
    await begin(first, "ended", "running")
    await first.tasks.report("w", [make_completion("ended")])
    die(first, 0)

    second = await open_backend("two")
    await second.store.acquire(0, "two")
    tokens = [make_token("ended"), make_token("running"), make_token("queued"), make_token("ahead")]

    unknown = await second.store.unknown_tasks(0, tokens)

    assert unknown == dict(zip(tokens, [None, LossKind.ALONE, None, None], strict=True))


async def test_a_task_whose_code_has_ended_is_not_blamed_before_its_report(
    open_backend: Open,
) -> None:
    first = await open_backend("one")
    await begin(first, "ended", "running")
    first.tasks.end(make_token("ended"))
    first.tasks.end(make_token("unknown"))
    die(first, 0)

    second = await open_backend("two")
    await second.store.acquire(0, "two")
    tokens = [make_token("ended"), make_token("running")]

    unknown = await second.store.unknown_tasks(0, tokens)

    assert unknown == dict(zip(tokens, [None, LossKind.ALONE], strict=True))


async def test_no_task_is_blamed_for_the_end_of_a_draining_process(
    open_backend: Open,
) -> None:
    first = await open_backend("one")
    await begin(first, "a")
    held = [make_token("a"), make_token("ahead")]
    await first.tasks.beat("w", held, about=WorkerInfo(is_draining=True))
    die(first, 0)

    second = await open_backend("two")
    await second.store.acquire(0, "two")

    assert await second.store.unknown_tasks(0, held) == dict.fromkeys(held, LossKind.NOT_STARTED)


async def test_tasks_of_two_partitions_of_a_dead_process_were_running_together(
    open_backend: Open,
) -> None:
    first = await open_backend("one")
    await begin(first, "a", partition=0)
    await begin(first, "b", partition=1)
    die(first, 1)

    second = await open_backend("two")
    await second.store.acquire(1, "two")

    unknown = await second.store.unknown_tasks(1, [make_token("a"), make_token("b")])
    assert unknown == {make_token("a"): None, make_token("b"): LossKind.TOGETHER}


async def test_a_released_partition_blames_no_task(open_backend: Open, tmp_path: Path) -> None:
    first = await open_backend("one")
    owner = await begin(first, "a")
    existed = (tmp_path / "p0.running").exists()

    await first.store.release(owner.lease)

    await first.store.acquire(0, "one")
    assert await first.store.unknown_tasks(0, [make_token("a")]) == {make_token("a"): None}
    assert (existed, (tmp_path / "p0.running").exists()) == (True, False)
