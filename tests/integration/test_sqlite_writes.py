"""Group commit: many jobs share one transaction, and the failure of one affects no other."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import NoReturn

import pytest

from runnel.backends.sqlite.backend import SqliteBackend
from runnel.backends.sqlite.database import FILE_NAME, Durability
from runnel.backends.sqlite.records import BUCKETS_PER_DELETION
from runnel.backends.sqlite.writer import CHECKPOINT_ROWS, Checkpointer
from runnel.core.ids import DefinitionHash
from runnel.engine.clock import RealClock
from runnel.errors import StoreError
from runnel.ports.store import Commit, HistoryRecord
from runnel.testing.clock import FakeClock, FakeIds
from runnel.testing.conformance.suite import (
    READ_LIMIT,
    ROOT_ID,
    LeaseOwner,
    make_dead_letter,
    make_header,
    make_message,
    make_task,
    make_timer,
)
from tests.waiting import wait_until

TABLES = ["history", "executions", "timers", "messages", "dead_letters"]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["process", "power"])
def durability(request: pytest.FixtureRequest) -> Durability:
    return "power" if request.param == "power" else "process"


@pytest.fixture
async def backend(
    tmp_path: Path, clock: FakeClock, durability: Durability
) -> AsyncIterator[SqliteBackend]:
    backend = await SqliteBackend.open(tmp_path, clock=clock, ids=FakeIds(), durability=durability)
    yield backend
    await backend.close()


@pytest.fixture
def other(tmp_path: Path, backend: SqliteBackend) -> Iterator[sqlite3.Connection]:
    """Another program that has the database open."""
    db = sqlite3.connect(tmp_path / "runnel.db", isolation_level=None)
    yield db
    db.close()


@pytest.fixture
async def owner(backend: SqliteBackend) -> LeaseOwner:
    home = await backend.claim_home_partition("one")
    return LeaseOwner(backend.store, await backend.store.acquire(home, "one"))


@pytest.mark.parametrize("table", TABLES)
async def test_a_commit_that_fails_in_one_table_writes_nothing_in_any(
    backend: SqliteBackend, owner: LeaseOwner, other: sqlite3.Connection, table: str
) -> None:
    other.execute(
        f"CREATE TRIGGER no BEFORE INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'no'); END"
    )

    with pytest.raises(StoreError, match="failed: no"):
        await owner.commit(everything())

    assert [rows_in(other, name) for name in TABLES] == [0] * len(TABLES)
    assert list(await backend.tasks.claim("w", None, limit=9, wait_s=0)) == []
    assert await owner.read_commands() == []
    assert list(await backend.store.due_timers(owner.lease, 9.0, limit=READ_LIMIT)) == []


async def test_the_commit_after_a_failed_one_has_the_same_sequence(
    owner: LeaseOwner, other: sqlite3.Connection
) -> None:
    other.execute("CREATE TRIGGER no BEFORE INSERT ON timers BEGIN SELECT RAISE(ABORT, 'no'); END")
    with pytest.raises(StoreError):
        await owner.commit(everything())
    other.execute("DROP TRIGGER no")

    await owner.commit(everything())

    assert [rows_in(other, name) for name in TABLES] == [1] * len(TABLES)


async def test_jobs_of_one_loop_iteration_share_a_transaction_and_fail_separately(
    backend: SqliteBackend, owner: LeaseOwner, other: sqlite3.Connection
) -> None:
    other.execute(
        "CREATE TRIGGER no BEFORE INSERT ON definitions WHEN NEW.name = 'bad' "
        "BEGIN SELECT RAISE(ABORT, 'no'); END"
    )
    names = ["a", "bad", "b", "c"]
    puts = [backend.archive.put_definition(name, DefinitionHash(name), b"") for name in names]

    outcomes = await asyncio.gather(
        *puts, backend.mailbox.send([make_message("1")]), return_exceptions=True
    )

    assert [outcome for outcome in outcomes if not isinstance(outcome, StoreError)] == [
        1,
        1,
        1,
        None,
    ]
    assert isinstance(outcomes[1], StoreError)
    assert rows_in(other, "definitions") == 3
    assert await owner.read_commands() == [make_message("1")]


async def test_concurrent_sends_each_keep_their_order(
    backend: SqliteBackend, owner: LeaseOwner
) -> None:
    sends = [
        backend.mailbox.send([make_message(f"{sender}-{number}") for number in range(3)])
        for sender in range(40)
    ]

    await asyncio.gather(*sends)

    commands = await owner.read_commands()
    assert len(commands) == 120
    for start in range(0, 120, 3):
        first = getattr(commands[start], "reason", "").partition("-")[0]
        assert commands[start : start + 3] == [
            make_message(f"{first}-{number}") for number in range(3)
        ]


async def test_a_writer_waits_for_another_process_to_finish(
    backend: SqliteBackend, owner: LeaseOwner, other: sqlite3.Connection, clock: FakeClock
) -> None:
    other.execute("BEGIN IMMEDIATE")

    async with asyncio.TaskGroup() as group:
        sending = group.create_task(backend.mailbox.send([make_message("1")]))
        await clock.wait_for_sleeper()
        was_done = sending.done()
        other.execute("COMMIT")
        await clock.advance(0.1)

    assert not was_done
    assert await owner.read_commands() == [make_message("1")]


async def test_a_writer_gives_up_after_ten_seconds_and_names_the_file(
    backend: SqliteBackend, other: sqlite3.Connection, clock: FakeClock
) -> None:
    other.execute("BEGIN IMMEDIATE")

    async def passing_time() -> None:
        while True:
            await clock.wait_for_sleeper()
            await clock.advance(1.0)

    async with asyncio.TaskGroup() as group:
        time = group.create_task(passing_time())
        with pytest.raises(StoreError) as caught:
            await backend.mailbox.send([make_message("1")])
        time.cancel()

    assert "runnel.db has been locked by another process for 10 s" in str(caught.value)
    other.execute("COMMIT")


async def test_a_foreign_message_is_seen_before_a_later_one_of_our_own(
    backend: SqliteBackend, owner: LeaseOwner, other: sqlite3.Connection
) -> None:
    other.execute("INSERT INTO messages (partition, body) VALUES (?, ?)", (0, b"foreign"))

    await backend.mailbox.send([make_message("own")])

    entries = await owner.read()
    assert [entry.command for entry in entries] == [None, make_message("own")]
    await owner.consume(entries[0].position)
    assert rows_in(other, "messages") == 1


async def test_the_store_works_without_a_wakeup_socket(
    backend: SqliteBackend, tmp_path: Path
) -> None:
    (tmp_path / "p7.sock").mkdir()

    lease = await backend.store.acquire(7, "one")
    await backend.store.release(lease)

    assert await backend.store.observe(7) is None


async def test_a_foreign_message_without_a_wakeup_is_seen_within_a_second(
    owner: LeaseOwner, other: sqlite3.Connection, clock: FakeClock
) -> None:
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(owner.read(wait_s=60))
        await clock.advance(0.1)
        other.execute("INSERT INTO messages (partition, body) VALUES (?, ?)", (0, b"foreign"))
        await clock.advance(1.0)

    assert [entry.body for entry in reading.result()] == [b"foreign"]


async def test_the_log_is_restarted_under_steady_writing(
    tmp_path: Path, durability: Durability, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runnel.backends.sqlite.writer.CHECKPOINT_ROWS", 50)
    monkeypatch.setattr("runnel.backends.sqlite.writer.WAL_PAGES_MAX", 20)
    monkeypatch.setattr("runnel.backends.sqlite.database.WAL_BYTES_MAX", 100_000)
    backend = await SqliteBackend.open(
        tmp_path, clock=RealClock(), ids=FakeIds(), durability=durability
    )
    owner = LeaseOwner(backend.store, await backend.store.acquire(0, "one"))
    commit = Commit(
        sequence=0, histories=[HistoryRecord(aggregate_id=ROOT_ID, entry=b"x" * 20_000)]
    )
    log = tmp_path / "runnel.db-wal"
    largest = size = 0

    while size == largest and owner.sequence < 3_000:
        await owner.commit(commit)
        size = log.stat().st_size
        largest = max(largest, size)
    await backend.close()

    assert size < largest


async def test_a_checkpoint_that_can_not_open_the_file_reports_it_and_tries_again(
    tmp_path: Path,
) -> None:
    checkpointer = Checkpointer(tmp_path / "not yet" / "t.db", "process")

    written = count(CHECKPOINT_ROWS, CHECKPOINT_ROWS)
    await wait_until(lambda: fails_again(checkpointer, next(written)))
    (tmp_path / "not yet").mkdir()
    checkpointer.record_rows(next(written))
    await wait_until((tmp_path / "not yet" / "t.db").exists)

    checkpointer.stop()
    checkpointer.raise_failure()


async def test_a_requested_checkpoint_runs_before_enough_rows_are_written(tmp_path: Path) -> None:
    checkpointer = Checkpointer(tmp_path / "t.db", "process")

    checkpointer.request()

    await wait_until((tmp_path / "t.db").exists)
    checkpointer.stop()
    assert (tmp_path / "t.db").exists()


async def test_a_checkpoint_that_fails_once_fails_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpointer = Checkpointer(tmp_path / "t.db", "process")
    failed = threading.Event()

    def fail(*_args: object) -> NoReturn:
        failed.set()
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr("runnel.backends.sqlite.writer.connect", fail)
    checkpointer.record_rows(CHECKPOINT_ROWS)
    await wait_until(failed.is_set)
    checkpointer.stop()

    checkpointer.raise_failure()


def fails_again(checkpointer: Checkpointer, rows: int) -> bool:
    """Raises only after repeated failures."""
    checkpointer.record_rows(rows)
    try:
        checkpointer.raise_failure()
    except StoreError:
        return True
    return False


def everything() -> Commit:
    return Commit(
        sequence=0,
        histories=[HistoryRecord(aggregate_id=ROOT_ID, entry=b"entry")],
        headers=[make_header()],
        tasks=[make_task("a")],
        timers_set=[make_timer("a", due=1.0)],
        messages=[make_message("m")],
        dead_letters=[make_dead_letter("a")],
    )


def rows_in(db: sqlite3.Connection, table: str) -> int:
    return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


async def test_a_bucket_for_each_user_is_deleted_once_it_is_full(
    backend: SqliteBackend, clock: FakeClock, tmp_path: Path
) -> None:
    async def take(tag: str) -> None:
        await backend.tasks.take_token(tag, rate_per_second=1.0, burst=1, wait_s_max=0.0)

    for number in range(BUCKETS_PER_DELETION):
        await take(f"user-{number}")
    await clock.advance(0.5)
    await take("user-0")
    kept = count_buckets(tmp_path)
    await clock.advance(2.0)
    await take("user-new")

    assert (kept, count_buckets(tmp_path)) == (BUCKETS_PER_DELETION, 1)


def count_buckets(folder: Path) -> int:
    with closing(sqlite3.connect(folder / FILE_NAME)) as db:
        return int(db.execute("SELECT count(*) FROM buckets").fetchone()[0])
