"""The data that the next process finds in a data directory, after a regular end and after a
crash.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from runnel.backends.sqlite.backend import SqliteBackend
from runnel.backends.sqlite.writer import SqliteWriter, WriteJob
from runnel.core.ids import DefinitionHash
from runnel.core.states import ExecutionState
from runnel.engine.clock import RealClock
from runnel.ports.store import Commit, HistoryRecord
from runnel.testing.clock import FakeClock, FakeIds
from runnel.testing.conformance.suite import (
    LIMIT_ID,
    READ_LIMIT,
    ROOT_ID,
    LeaseOwner,
    make_completion,
    make_dead_letter,
    make_header,
    make_message,
    make_task,
    make_timer,
    make_token,
)

Open = Callable[[str], Awaitable[SqliteBackend]]


@pytest.fixture
async def open_backend(tmp_path: Path) -> AsyncIterator[Open]:
    clock = FakeClock()
    opened: list[SqliteBackend] = []

    async def open_(name: str) -> SqliteBackend:
        opened.append(await SqliteBackend.open(tmp_path, clock=clock, ids=FakeIds(name)))
        return opened[-1]

    yield open_
    for backend in opened:
        await backend.close()


async def test_all_durable_data_is_available_after_reopening(open_backend: Open) -> None:
    owner = await filled(await open_backend("one"), is_closed=True)

    second = await open_backend("two")
    again = LeaseOwner(second.store, await second.store.acquire(owner.partition, "two"))

    header = await second.archive.get_header(ROOT_ID)
    definition = await second.archive.get_definition(DefinitionHash("hash"))
    timers = await second.store.due_timers(again.lease, 9.0, limit=READ_LIMIT)
    assert again.lease.epoch == owner.lease.epoch + 1
    assert again.lease.sequence == 1
    assert list(await second.store.load(ROOT_ID)) == [b"entry"]
    assert header == make_header()
    assert definition is not None
    assert list(timers) == [make_timer("a", due=1.0)]
    assert list(await second.archive.list_dead_letters()) == [make_dead_letter("a")]
    assert await again.read_commands() == [make_message("kept")]
    assert await take_rate(second) == pytest.approx(1.0, abs=1e-3)
    assert await second.blobs.get("x1/out") == b"blob"


async def test_tasks_and_limits_end_with_their_process(open_backend: Open) -> None:
    owner = await filled(await open_backend("one"), is_closed=False)

    second = await open_backend("two")
    await second.store.acquire(owner.partition, "two")

    assert list(await second.store.unknown_tasks(owner.partition, [make_token("a")])) == [
        make_token("a")
    ]
    assert list(await second.tasks.claim("w", None, limit=9, wait_s=0)) == []
    assert list(await second.store.load(LIMIT_ID)) == []


async def test_a_report_for_a_task_of_an_earlier_lease_is_refused(open_backend: Open) -> None:
    backend = await open_backend("one")
    owner = await filled(backend, is_closed=False, is_released=False)
    await backend.tasks.claim("w", None, limit=1, wait_s=0)
    await backend.store.release(owner.lease)

    again = LeaseOwner(backend.store, await backend.store.acquire(owner.partition, "one"))

    assert list(await backend.tasks.report("w", [make_completion("a")])) == [False]
    assert list((await backend.tasks.beat("w", [make_token("a")])).stop) == [make_token("a")]
    assert await again.read_commands() == [make_message("kept")]


async def test_a_home_partition_is_reused_only_if_it_is_empty(open_backend: Open) -> None:
    first = await open_backend("one")
    home = await first.claim_home_partition("one")
    await first.close()
    second = await open_backend("two")
    reused = await second.claim_home_partition("two")
    owner = LeaseOwner(second.store, await second.store.acquire(reused, "two"))
    await owner.commit(Commit(sequence=0, headers=[make_header()]))
    await second.close()

    third = await open_backend("three")

    assert (home, reused, await third.claim_home_partition("three")) == (0, 0, 1)
    assert list(await third.store.running(0)) == [ROOT_ID]


async def test_a_released_home_partition_stays_with_its_process(open_backend: Open) -> None:
    first, second = await open_backend("one"), await open_backend("two")
    home = await first.claim_home_partition("one")
    await first.store.release(await first.store.acquire(home, "one"))

    other_home = await second.claim_home_partition("two")

    assert (home, await first.claim_home_partition("one"), other_home) == (0, 0, 1)
    assert (await first.store.acquire(home, "one")).epoch == 2


async def test_a_cancelled_acquisition_does_not_fence_out_the_next_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = [
        await SqliteBackend.open(tmp_path, clock=RealClock(), ids=FakeIds(name), durability="power")
        for name in ("one", "two")
    ]
    reached, release = hold_next_batch(monkeypatch)
    cancelled = asyncio.create_task(first.store.acquire(0, "one"))
    await asyncio.to_thread(reached.wait)
    cancelled.cancel()
    await asyncio.wait([cancelled])

    owner = LeaseOwner(second.store, await second.store.acquire(0, "two"))
    release.set()
    await first.archive.put_definition("w", DefinitionHash("after"), b"")

    await owner.commit(Commit(sequence=0))
    assert owner.sequence == 1
    await first.close()
    await second.close()


async def test_an_execution_routes_to_the_partition_that_created_it(open_backend: Open) -> None:
    first, second = await open_backend("one"), await open_backend("two")
    homes = [await first.claim_home_partition("one"), await second.claim_home_partition("two")]
    owner = LeaseOwner(second.store, await second.store.acquire(homes[1], "two"))
    before = await first.store.route(ROOT_ID)

    await owner.commit(Commit(sequence=0, headers=[make_header()]))

    routes = [await first.store.route(name) for name in (ROOT_ID, f"{ROOT_ID}.a.1", "unknown")]
    assert (homes, before, routes) == ([0, 1], 0, [1, 1, 0])


async def test_a_finished_execution_leaves_its_partition_free(open_backend: Open) -> None:
    backend = await open_backend("one")
    owner = LeaseOwner(backend.store, await backend.store.acquire(0, "one"))
    await owner.commit(Commit(sequence=0, headers=[make_header(state=ExecutionState.COMPLETED)]))
    await backend.close()

    assert await (await open_backend("two")).claim_home_partition("two") == 0


def hold_next_batch(monkeypatch: pytest.MonkeyPatch) -> tuple[Event, Event]:
    """Yields two events: one is set when a writer starts the next batch, the other lets it
    continue.
    """
    reached, release = Event(), Event()
    write = SqliteWriter.write_batch

    def held(writer: SqliteWriter, batch: Sequence[WriteJob[Any]]) -> list[Any]:
        if not reached.is_set():
            reached.set()
            release.wait()
        return write(writer, batch)

    monkeypatch.setattr(SqliteWriter, "write_batch", held)
    return reached, release


async def filled(
    backend: SqliteBackend, *, is_closed: bool, is_released: bool = True
) -> LeaseOwner:
    """Stores one item of each kind."""
    home = await backend.claim_home_partition("one")
    owner = LeaseOwner(backend.store, await backend.store.acquire(home, "one"))
    await backend.archive.put_definition("w", DefinitionHash("hash"), b"document")
    await backend.blobs.put("x1/out", b"blob")
    await take_rate(backend)
    await backend.mailbox.send([make_message("consumed"), make_message("kept")])
    entries = await owner.read()
    await owner.commit(
        Commit(
            sequence=0,
            consumed=entries[0].position,
            histories=[
                HistoryRecord(aggregate_id=ROOT_ID, entry=b"entry"),
                HistoryRecord(aggregate_id=LIMIT_ID, entry=b"held"),
            ],
            headers=[make_header()],
            tasks=[make_task("a")],
            timers_set=[make_timer("a", due=1.0)],
            dead_letters=[make_dead_letter("a")],
        )
    )
    if is_closed:
        await backend.close()
    elif is_released:
        backend.leases.locks.unlock(owner.partition)
    return owner


async def take_rate(backend: SqliteBackend) -> float:
    return await backend.tasks.take_token("api", rate_per_second=1.0, burst=1, wait_s_max=9.0)
