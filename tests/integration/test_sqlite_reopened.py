"""The data that the next process finds in a data directory, after a regular end and after a
crash.
"""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from runnel.backends.sqlite.backend import SqliteBackend
from runnel.backends.sqlite.writer import SqliteWriter, WriteJob
from runnel.core.ids import DefinitionHash
from runnel.core.states import ExecutionState
from runnel.engine.clock import RandomIdGenerator, RealClock
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


# Short calls keep a connection, so that the log of the database outlives them.


async def open_briefly(folder: Path) -> None:
    backend = await SqliteBackend.open(
        folder, clock=RealClock(), ids=RandomIdGenerator(), keeps_log=True
    )
    await backend.claim_home_partition("a")
    await backend.close()


def list_open_files(folder: Path) -> set[str]:
    """Returns the names of the files in the folder that this process has open."""
    targets = [link.resolve() for link in Path("/proc/self/fd").iterdir()]
    return {target.name for target in targets if target.parent == folder}


async def test_short_calls_share_the_log_of_the_database(tmp_path: Path) -> None:
    await open_briefly(tmp_path)
    log = (tmp_path / "runnel.db-wal").stat()
    await open_briefly(tmp_path)

    assert (tmp_path / "runnel.db-wal").stat().st_ino == log.st_ino
    assert list_open_files(tmp_path) == {"runnel.db", "runnel.db-wal", "runnel.db-shm"}


async def test_opening_an_existing_database_writes_nothing(tmp_path: Path) -> None:
    await open_briefly(tmp_path)
    log = (tmp_path / "runnel.db-wal").read_bytes()
    backend = await SqliteBackend.open(tmp_path, clock=RealClock(), ids=RandomIdGenerator())
    await backend.close()

    assert (tmp_path / "runnel.db-wal").read_bytes() == log


async def test_a_large_log_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await open_briefly(tmp_path)
    monkeypatch.setattr("runnel.backends.sqlite.database.IDLE_LOG_BYTES_MAX", 0)
    await open_briefly(tmp_path)

    assert list_open_files(tmp_path) == set()
    assert not (tmp_path / "runnel.db-wal").exists()


async def test_only_the_last_database_is_kept_open(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    await open_briefly(first)
    await open_briefly(second)

    assert list_open_files(first) == set()
    assert list_open_files(second) != set()


async def test_a_deleted_database_is_not_kept_open(tmp_path: Path) -> None:
    await open_briefly(tmp_path)
    for path in tmp_path.iterdir():
        path.unlink()
    await open_briefly(tmp_path)

    assert list_open_files(tmp_path) == {"runnel.db", "runnel.db-wal", "runnel.db-shm"}


def test_a_program_ends_the_log_at_its_end(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from tests.integration.test_sqlite_reopened import open_briefly\n"
        "asyncio.run(open_briefly(Path(sys.argv[1])))\n"
    )
    folder = tmp_path / "data"
    subprocess.run(
        [sys.executable, "-c", program, str(folder)],
        cwd=Path(__file__).parents[2],
        check=True,
        timeout=30,
    )

    assert (folder / "runnel.db").exists()
    assert not (folder / "runnel.db-wal").exists()
