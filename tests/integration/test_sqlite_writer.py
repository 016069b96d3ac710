"""After any fault between a job and its transaction, every job ends and the next one is written."""

import asyncio
import gc
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runnel.backends.sqlite.writer import SqliteWriter
from runnel.errors import StoreError
from runnel.testing.clock import FakeClock

STATEMENTS = ["SAVEPOINT job", "ROLLBACK TO job", "RELEASE job", "COMMIT"]


class Faulty(sqlite3.Connection):
    """A connection on which each statement in `faults` fails once."""

    faults: list[str]

    def execute(self, sql: str, *values: object) -> sqlite3.Cursor:
        if sql in self.faults:
            self.faults.remove(sql)
            raise sqlite3.OperationalError("disk I/O error")
        return super().execute(sql, *values)  # type: ignore[arg-type]  # passed on unchanged


@pytest.fixture
def db(tmp_path: Path) -> Faulty:
    db = sqlite3.connect(
        tmp_path / "t.db", isolation_level=None, check_same_thread=False, factory=Faulty
    )
    db.faults = []
    db.execute("CREATE TABLE rows (name TEXT)")
    return db


@pytest.fixture(params=[False, True], ids=["on the loop", "threaded"])
async def writer(
    request: pytest.FixtureRequest, tmp_path: Path, db: Faulty
) -> AsyncIterator[SqliteWriter]:
    """Not started yet: jobs that are queued before its start share one batch."""
    writer = SqliteWriter(db, tmp_path / "t.db", clock=FakeClock(), is_threaded=request.param)
    yield writer
    writer.close()


async def test_a_job_whose_apply_fails_does_not_affect_the_others(
    writer: SqliteWriter,
) -> None:
    def refuse(_: int) -> None:
        raise OSError("too many open files")

    jobs = [writer.enqueue(count, apply).wait() for apply in (None, refuse, None)]
    writer.start()
    outcomes = await asyncio.gather(*jobs, return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [int, OSError, int]


@pytest.mark.parametrize("statement", STATEMENTS)
async def test_an_error_outside_of_a_job_fails_its_batch_but_no_later_batch(
    writer: SqliteWriter, db: Faulty, statement: str
) -> None:
    db.faults = [statement]

    outcomes = await together(writer)

    assert {type(outcome) for outcome in outcomes} == {StoreError}
    assert await writer.submit(count) == 0


@pytest.mark.parametrize("statement", STATEMENTS)
async def test_an_unfinished_transaction_is_rolled_back_before_the_next(
    writer: SqliteWriter, db: Faulty, statement: str
) -> None:
    db.faults = [statement, "ROLLBACK"]

    await together(writer)

    assert await writer.submit(count) == 0


async def test_a_single_job_whose_rollback_fails_stores_nothing(
    writer: SqliteWriter, db: Faulty
) -> None:
    db.faults = ["ROLLBACK"]
    writer.start()

    with pytest.raises(StoreError):
        await writer.submit(add_and_fail)

    assert await writer.submit(count) == 0


async def test_the_error_of_a_job_without_callers_is_not_logged(
    writer: SqliteWriter, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = asyncio.create_task(writer.submit(add_and_fail))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])

    writer.start()
    await writer.submit(count)

    gc.collect()
    assert caplog.messages == []


async def together(writer: SqliteWriter) -> list[BaseException | int]:
    """Enqueues two jobs of one batch, the second of which fails."""
    jobs = (writer.enqueue(add).wait(), writer.enqueue(add_and_fail).wait())
    writer.start()
    return list(await asyncio.gather(*jobs, return_exceptions=True))


def count(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT count(*) FROM rows").fetchone()[0])


def add(db: sqlite3.Connection) -> int:
    return db.execute("INSERT INTO rows VALUES ('a')").rowcount


def add_and_fail(db: sqlite3.Connection) -> int:
    add(db)
    raise StoreError("no")
