"""Group commit: jobs that arrive together are written in one transaction.

Without an fsync a commit of one row takes 27 µs on the event loop's thread and 122 µs when it
hops to another and back, so with durability "process" it runs inline. With "power" it waits for
the disk (2.6 ms measured): then a thread writes, and the loop gathers the next batch meanwhile.
"""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from runnel.backends.sqlite.database import Durability, build_store_error, connect, is_busy
from runnel.errors import StoreError
from runnel.ports.clock import Clock

# Copies the write-ahead log back into the database, on a thread of its own.
#
# Writers never do it themselves: a checkpoint waits for the disk, and they run on the event loop.

# Rows written between two checkpoints: about 4 MB of log.
CHECKPOINT_ROWS = 4_000
# So many in a row may fail before a writer is told: about 20 MB of log.
CHECKPOINT_FAILURES_MAX = 5
# Under steady writing a passive checkpoint never gets to the end, and the log only grows: from
# here on (64 MB) one that holds the writers up for a moment lets it begin anew: for 8 to 14 ms
# on average and 33 at most, and for 42 to 52 and 67 when the file was cut back to nothing, too.
WAL_PAGES_MAX = 16_384
# How long that may wait for other processes; it is tried again with the next checkpoint.
RESTART_BUSY_TIMEOUT_MS = 200


class Checkpointer:
    """While `is_restarting_log` its own process's writer must keep away.

    Left to itself a busy writer takes the lock again before a waiting checkpoint has woken up:
    with a bound of 0.1 MB the log grew to 9-56 MB, and to 1-3 MB since the writer gives way.
    """

    def __init__(self, path: Path, durability: Durability) -> None:
        self._path = path
        self._durability = durability
        self._rows = 0
        self._wakeup = threading.Event()
        self.is_restarting_log = False
        self._is_stopped = False
        self._problem: StoreError | None = None
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name="runnel-checkpoint", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def record_rows(self, rows: int) -> None:
        """`rows` is the total that the writing connection has changed so far."""
        if rows - self._rows >= CHECKPOINT_ROWS:
            self._rows = rows
            self._wakeup.set()

    def raise_failure(self) -> None:
        """Raises what keeps going wrong: the log must not grow in silence.

        Once is no reason: whoever writes next would pay for it with its partition.
        """
        if self._failures >= CHECKPOINT_FAILURES_MAX and self._problem is not None:
            self._failures, problem = 0, self._problem
            raise problem

    def stop(self) -> None:
        self._is_stopped = True
        self._wakeup.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        db: sqlite3.Connection | None = None
        try:
            while self._wakeup.wait() and not self._is_stopped:
                self._wakeup.clear()
                db = self._checkpoint(db)
        finally:
            if db is not None:
                db.close()

    def _checkpoint(self, db: sqlite3.Connection | None) -> sqlite3.Connection | None:
        """The connection to use next time: None when there is none yet."""
        try:
            db = db or connect(self._path, self._durability)
            _, pages, _ = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if pages > WAL_PAGES_MAX:
                self._restart_log(db)
            self._failures = 0
        except sqlite3.Error as error:
            self._problem = build_store_error(self._path, error)
            self._failures += 1
        return db

    def _restart_log(self, db: sqlite3.Connection) -> None:
        db.execute(f"PRAGMA busy_timeout = {RESTART_BUSY_TIMEOUT_MS}")
        self.is_restarting_log = True
        try:
            db.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
        finally:
            self.is_restarting_log = False


T = TypeVar("T")

BATCH_JOBS_MAX = 256
BUSY_BACKOFF_S_MIN = 0.001
BUSY_BACKOFF_S_MAX = 0.020
BUSY_TIMEOUT_S = 10.0


class _BusyError(Exception):
    """Another process is writing, or the log is being cut: nothing of the batch was tried."""


@dataclass(slots=True, eq=False)
class WriteJob(Generic[T]):
    """`run` writes, inside the transaction; `apply` follows on the loop once it is committed.

    `apply` is called even when all who `wait` for the job were cancelled meanwhile: what is in
    memory never falls behind what is stored. If it raises, the job fails though it is stored:
    whoever waits has to load again what it holds.
    """

    run: Callable[[sqlite3.Connection], T]
    apply: Callable[[T], None] | None
    is_settled: bool = False
    _waiting: "list[asyncio.Future[T]]" = field(default_factory=list)

    def wait(self) -> "asyncio.Future[T]":
        """A future of one's own: to cancel it changes nothing for the job, nor for others."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        return future

    def settle(self, outcome: "T | BaseException") -> None:
        if not isinstance(outcome, BaseException) and self.apply is not None:
            try:
                self.apply(outcome)
            except Exception as error:  # noqa: BLE001 - handed to whoever waits for the job
                outcome = error
        self.is_settled = True
        for future in self._waiting:
            if future.done():
                continue
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)


class SqliteWriter:
    def __init__(
        self, db: sqlite3.Connection, path: Path, *, clock: Clock, is_threaded: bool
    ) -> None:
        self._db = db
        self._path = path
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._jobs: list[WriteJob[Any]] = []
        self._queue: queue.SimpleQueue[WriteJob[Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run_thread, name="runnel-writer", daemon=True)
        self._is_threaded = is_threaded
        self._is_closed = False
        self.checkpointer = Checkpointer(path, "power" if is_threaded else "process")

    def start(self) -> None:
        self.checkpointer.start()
        if self._is_threaded:
            self._thread.start()

    async def submit(
        self, run: Callable[[sqlite3.Connection], T], apply: Callable[[T], None] | None = None
    ) -> T:
        """The result of `run`, once it is stored; a job that raises is rolled back alone."""
        return await self.retry_while_busy(lambda: self.enqueue(run, apply))

    def enqueue(
        self, run: Callable[[sqlite3.Connection], T], apply: Callable[[T], None] | None = None
    ) -> WriteJob[T]:
        """For jobs that several callers share: each waits for it by `retry_while_busy`."""
        job: WriteJob[T] = WriteJob(run, apply)
        self._enqueue(job)
        return job

    async def retry_while_busy(self, enqueue: Callable[[], WriteJob[T]]) -> T:
        """Tries again, after a pause, while another process is writing."""
        deadline = self._clock.monotonic() + BUSY_TIMEOUT_S
        wait_s = BUSY_BACKOFF_S_MIN
        while True:
            try:
                return await enqueue().wait()
            except _BusyError as error:
                if self._clock.monotonic() >= deadline:
                    raise StoreError(
                        f"{self._path} has been locked by another process for {BUSY_TIMEOUT_S:g} s"
                    ) from error
            await self._clock.sleep(wait_s)
            wait_s = min(BUSY_BACKOFF_S_MAX, 2 * wait_s)

    def close(self) -> None:
        """Writes what is queued, then ends; idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._is_threaded:
            self._queue.put(None)
            self._thread.join()
        elif self._jobs:
            self._flush()
        self.checkpointer.stop()
        self._db.close()

    def _enqueue(self, job: WriteJob[Any]) -> None:
        if self._is_closed:
            raise StoreError(f"the store {self._path} is closed")
        if self._is_threaded:
            self._queue.put(job)
            return
        self._jobs.append(job)
        if len(self._jobs) == 1:
            # Jobs of the same turn of the loop join; the flush itself comes after all of them.
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        jobs, self._jobs = self._jobs, []
        for start in range(0, len(jobs), BATCH_JOBS_MAX):
            batch = jobs[start : start + BATCH_JOBS_MAX]
            _settle_batch(batch, self.write_batch(batch))

    def _run_thread(self) -> None:
        while (first := self._queue.get()) is not None:
            batch = [first]
            while len(batch) < BATCH_JOBS_MAX and not self._queue.empty():
                job = self._queue.get()
                if job is None:
                    self._queue.put(None)
                    break
                batch.append(job)
            outcomes = self.write_batch(batch)
            self._loop.call_soon_threadsafe(_settle_batch, batch, outcomes)

    def write_batch(self, batch: Sequence[WriteJob[Any]]) -> list[Any]:
        """One outcome per job: its result, or the exception to raise."""
        if self.checkpointer.is_restarting_log:
            return [_BusyError() for _ in batch]
        try:
            self.checkpointer.raise_failure()
            self._begin()
        except StoreError as error:
            return [error] * len(batch)
        except sqlite3.Error as error:
            return [_BusyError() if is_busy(error) else self._build_error(error) for _ in batch]
        outcomes = self._run_and_commit(batch)
        self.checkpointer.record_rows(self._db.total_changes)
        return outcomes

    def _begin(self) -> None:
        if self._db.in_transaction:
            # The batch before could not be ended: nothing of it may get into this one.
            self._db.execute("ROLLBACK")
        self._db.execute("BEGIN IMMEDIATE")

    def _run_and_commit(self, batch: Sequence[WriteJob[Any]]) -> list[Any]:
        """An error outside of the jobs is that of every job: nothing of them is stored."""
        try:
            outcomes = self._run_alone(batch[0]) if len(batch) == 1 else self._run_all(batch)
            if self._db.in_transaction:
                self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            return [self._build_error(error)] * len(batch)
        return outcomes

    def _roll_back(self) -> None:
        """So that others can write meanwhile; `_begin` tries again if this fails."""
        with suppress(sqlite3.Error):
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def _run_alone(self, job: WriteJob[Any]) -> list[Any]:
        outcome = self._run(job)
        if isinstance(outcome, BaseException) and self._db.in_transaction:
            self._db.execute("ROLLBACK")
        return [outcome]

    def _run_all(self, batch: Sequence[WriteJob[Any]]) -> list[Any]:
        outcomes: list[Any] = []
        for job in batch:
            self._db.execute("SAVEPOINT job")
            outcome = self._run(job)
            if isinstance(outcome, BaseException):
                if not self._db.in_transaction:
                    # A full disk ends the whole transaction: nobody's job was written.
                    return [outcome] * len(batch)
                self._db.execute("ROLLBACK TO job")
            self._db.execute("RELEASE job")
            outcomes.append(outcome)
        return outcomes

    def _run(self, job: WriteJob[Any]) -> Any:
        try:
            return job.run(self._db)
        except sqlite3.Error as error:
            return self._build_error(error)
        except Exception as error:  # noqa: BLE001 - handed to whoever waits for the job
            return error

    def _build_error(self, error: sqlite3.Error) -> StoreError:
        wrapped = build_store_error(self._path, error)
        wrapped.__cause__ = error
        return wrapped


def _settle_batch(batch: Sequence[WriteJob[Any]], outcomes: Sequence[Any]) -> None:
    for job, outcome in zip(batch, outcomes, strict=True):
        job.settle(outcome)
