"""What a data directory gives back to the next process, after a good end and after a bad one."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from runnel.backends.sqlite.backend import SqliteBackend
from runnel.backends.sqlite.writer import Job, Writer
from runnel.core.ids import DefinitionHash
from runnel.core.states import ExecutionState
from runnel.engine.clock import RealClock
from runnel.ports.store import Commit, History
from runnel.testing.clock import FakeClock, FakeIds
from runnel.testing.conformance.suite import (
    ALL,
    LIMIT,
    ROOT,
    Owner,
    done,
    header,
    letter,
    message,
    task,
    timer,
    token,
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


async def test_all_durable_things_are_there_again(open_backend: Open) -> None:
    owner = await filled(await open_backend("one"), is_closed=True)

    second = await open_backend("two")
    again = Owner(second.store, await second.store.acquire(owner.partition, "two"))

    found = await second.archive.get_header(ROOT)
    definition = await second.archive.get_definition(DefinitionHash("hash"))
    timers = await second.store.due_timers(again.lease, 9.0, limit=ALL)
    assert again.lease.epoch == owner.lease.epoch + 1
    assert again.lease.sequence == 1
    assert list(await second.store.load(ROOT)) == [b"entry"]
    assert found == header()
    assert definition is not None
    assert list(timers) == [timer("a", due=1.0)]
    assert list(await second.archive.list_dead_letters()) == [letter("a")]
    assert await again.commands() == [message("kept")]
    assert await take_rate(second) == pytest.approx(1.0, abs=1e-3)
    assert await second.blobs.get("x1/out") == b"blob"


async def test_tasks_and_limits_end_with_their_process(open_backend: Open) -> None:
    owner = await filled(await open_backend("one"), is_closed=False)

    second = await open_backend("two")
    await second.store.acquire(owner.partition, "two")

    assert list(await second.store.unknown_tasks(owner.partition, [token("a")])) == [token("a")]
    assert list(await second.tasks.claim("w", None, limit=9, wait_s=0)) == []
    assert list(await second.store.load(LIMIT)) == []


async def test_a_task_of_an_earlier_turn_is_refused(open_backend: Open) -> None:
    backend = await open_backend("one")
    owner = await filled(backend, is_closed=False, is_released=False)
    await backend.tasks.claim("w", None, limit=1, wait_s=0)
    await backend.store.release(owner.lease)

    again = Owner(backend.store, await backend.store.acquire(owner.partition, "one"))

    assert list(await backend.tasks.report("w", [done("a")])) == [False]
    assert list((await backend.tasks.beat("w", [token("a")])).stop) == [token("a")]
    assert await again.commands() == [message("kept")]


async def test_a_home_is_reused_only_when_nothing_is_left_in_it(open_backend: Open) -> None:
    first = await open_backend("one")
    home = await first.claim_home("one")
    await first.close()
    second = await open_backend("two")
    reused = await second.claim_home("two")
    owner = Owner(second.store, await second.store.acquire(reused, "two"))
    await owner.commit(Commit(sequence=0, headers=[header()]))
    await second.close()

    third = await open_backend("three")

    assert (home, reused, await third.claim_home("three")) == (0, 0, 1)
    assert list(await third.store.running(0)) == [ROOT]


async def test_a_home_that_was_released_stays_with_its_process(open_backend: Open) -> None:
    first, second = await open_backend("one"), await open_backend("two")
    home = await first.claim_home("one")
    await first.store.release(await first.store.acquire(home, "one"))

    other_home = await second.claim_home("two")

    assert (home, await first.claim_home("one"), other_home) == (0, 0, 1)
    assert (await first.store.acquire(home, "one")).epoch == 2


async def test_a_cancelled_acquire_does_not_shut_out_whoever_came_after_it(
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

    owner = Owner(second.store, await second.store.acquire(0, "two"))
    release.set()
    await first.archive.put_definition("w", DefinitionHash("after"), b"")

    await owner.commit(Commit(sequence=0))
    assert owner.sequence == 1
    await first.close()
    await second.close()


async def test_an_execution_routes_to_where_it_was_made(open_backend: Open) -> None:
    first, second = await open_backend("one"), await open_backend("two")
    homes = [await first.claim_home("one"), await second.claim_home("two")]
    owner = Owner(second.store, await second.store.acquire(homes[1], "two"))
    before = await first.store.route(ROOT)

    await owner.commit(Commit(sequence=0, headers=[header()]))

    routes = [await first.store.route(name) for name in (ROOT, f"{ROOT}.a.1", "unknown")]
    assert (homes, before, routes) == ([0, 1], 0, [1, 1, 0])


async def test_a_finished_execution_leaves_its_partition_free(open_backend: Open) -> None:
    backend = await open_backend("one")
    owner = Owner(backend.store, await backend.store.acquire(0, "one"))
    await owner.commit(Commit(sequence=0, headers=[header(state=ExecutionState.COMPLETED)]))
    await backend.close()

    assert await (await open_backend("two")).claim_home("two") == 0


def hold_next_batch(monkeypatch: pytest.MonkeyPatch) -> tuple[Event, Event]:
    """(set once a writer begins the next batch, to be set so that it goes on)."""
    reached, release = Event(), Event()
    write = Writer.write_batch

    def held(writer: Writer, batch: Sequence[Job[Any]]) -> list[Any]:
        if not reached.is_set():
            reached.set()
            release.wait()
        return write(writer, batch)

    monkeypatch.setattr(Writer, "write_batch", held)
    return reached, release


async def filled(backend: SqliteBackend, *, is_closed: bool, is_released: bool = True) -> Owner:
    """Something of each kind, all of it stored when this returns."""
    home = await backend.claim_home("one")
    owner = Owner(backend.store, await backend.store.acquire(home, "one"))
    await backend.archive.put_definition("w", DefinitionHash("hash"), b"document")
    await backend.blobs.put("x1/out", b"blob")
    await take_rate(backend)
    await backend.mailbox.send([message("consumed"), message("kept")])
    entries = await owner.read()
    await owner.commit(
        Commit(
            sequence=0,
            consumed=entries[0].position,
            histories=[
                History(aggregate_id=ROOT, entry=b"entry"),
                History(aggregate_id=LIMIT, entry=b"held"),
            ],
            headers=[header()],
            tasks=[task("a")],
            timers_set=[timer("a", due=1.0)],
            dead_letters=[letter("a")],
        )
    )
    if is_closed:
        await backend.close()
    elif is_released:
        backend.leases.locks.free(owner.partition)
    return owner


async def take_rate(backend: SqliteBackend) -> float:
    return await backend.tasks.take_token("api", rate_per_second=1.0, burst=1, wait_s_max=9.0)
