"""A writer with group commit: write jobs that arrive together share one transaction.

Without fsync, a commit of one row takes 27 µs on the thread of the event loop, and 122 µs through
another thread. With durability "process", commits therefore run on the event loop. With "power", a
commit waits for the disk, which took 2.6 ms. A thread therefore writes, while the event loop
collects the next batch.
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

# The checkpointer copies the write-ahead log into the database, on its own thread. Writers never
# run a checkpoint, because a checkpoint waits for the disk and writers run on the event loop.

# A checkpoint starts after this number of written rows, which is about 4 MB of log.
CHECKPOINT_ROWS = 4_000
# After this number of failed checkpoints in a row, the writer raises the error. By then the log has
# about 20 MB.
CHECKPOINT_FAILURES_MAX = 5
# Under steady writes a passive checkpoint never reaches the end of the log, and the log only grows.
# Above this size (64 MB), a blocking checkpoint lets the log restart. The blocking checkpoint
# delays writers by 8 to 14 ms on average and 33 ms at most. Truncating the file as well took 42 to
# 52 ms, and 67 ms at most.
WAL_PAGES_MAX = 16_384
# The maximum time that a blocking checkpoint waits for other processes. The next checkpoint tries
# again.
RESTART_BUSY_TIMEOUT_MS = 200


class Checkpointer:
    """Runs checkpoints on its own thread.

    While `is_restarting_log` is True, the writer of this process must pause. A busy writer that
    does not pause takes the lock again before a waiting checkpoint wakes up. With a limit of 0.1 MB
    the log grew to 9 to 56 MB without this pause, and to 1 to 3 MB with it.
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
        self._start_lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="runnel-checkpoint", daemon=True)

    def record_rows(self, rows: int) -> None:
        """Wakes the checkpoint thread after enough writes; `rows` is the total of the writing
        connection.
        """
        if rows - self._rows >= CHECKPOINT_ROWS:
            self._rows = rows
            self.request()

    def request(self) -> None:
        """Wakes the checkpoint thread, for example because the file shrinks only in a checkpoint.

        The first wake-up starts the thread: most commands write little.
        """
        self._wakeup.set()
        with self._start_lock:  # the thread of the writer and the event loop may both be first
            if self._thread.ident is None:
                self._thread.start()

    def raise_failure(self) -> None:
        """Raises the error of repeated failures, because the log must not grow unnoticed.

        A single failure is not raised. The error would reach the next writer, which would give up
        its partition although its own write did not fail.
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
        """Runs one checkpoint; returns the connection for the next one, or None if it must be
        opened again.
        """
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
    """Raised if another process is writing or the log is restarting; no job of the
    batch was run.
    """


@dataclass(slots=True, eq=False)
class WriteJob(Generic[T]):
    """A write that several callers can wait for.

    `run` writes inside the transaction. `apply` runs on the event loop after the commit, even if
    all waiting callers were cancelled. The state in memory therefore never lags behind the
    database. If `apply` raises, the job fails although its data is stored, and the callers must
    reload their state.
    """

    run: Callable[[sqlite3.Connection], T]
    apply: Callable[[T], None] | None
    is_settled: bool = False
    _waiting: "list[asyncio.Future[T]]" = field(default_factory=list)

    def wait(self) -> "asyncio.Future[T]":
        """Returns a new future of the result.

        Cancelling the future affects neither the job nor other callers.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        return future

    def settle(self, outcome: "T | BaseException") -> None:
        if not isinstance(outcome, BaseException) and self.apply is not None:
            try:
                self.apply(outcome)
            except Exception as error:  # noqa: BLE001 - raised to the callers that wait for the job
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
        if self._is_threaded:
            self._thread.start()

    async def submit(
        self, run: Callable[[sqlite3.Connection], T], apply: Callable[[T], None] | None = None
    ) -> T:
        """Returns the result of `run` after its commit.

        If `run` raises, only the writes of this job are rolled back.
        """
        return await self.retry_while_busy(lambda: self.enqueue(run, apply))

    def enqueue(
        self, run: Callable[[sqlite3.Connection], T], apply: Callable[[T], None] | None = None
    ) -> WriteJob[T]:
        """Enqueues a job that several callers share; each awaits it with `retry_while_busy`."""
        job: WriteJob[T] = WriteJob(run, apply)
        self._enqueue(job)
        return job

    async def retry_while_busy(self, enqueue: Callable[[], WriteJob[T]]) -> T:
        """Enqueues the job again, with backoff, while another process is writing."""
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
        """Writes the queued jobs and closes the connection. Further calls do nothing."""
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
            # Jobs from the same iteration of the event loop share a batch, because the flush runs
            # after all of them.
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
        """Runs the jobs in one transaction; returns the result or the exception of each job."""
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
            # The transaction of the previous batch could not be ended. None of its writes may get
            # into this batch.
            self._db.execute("ROLLBACK")
        self._db.execute("BEGIN IMMEDIATE")

    def _run_and_commit(self, batch: Sequence[WriteJob[Any]]) -> list[Any]:
        """Runs the jobs and commits.

        An error outside of the jobs, such as a failed commit, fails all jobs.
        """
        try:
            outcomes = self._run_alone(batch[0]) if len(batch) == 1 else self._run_all(batch)
            if self._db.in_transaction:
                self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            return [self._build_error(error)] * len(batch)
        return outcomes

    def _roll_back(self) -> None:
        """Rolls the transaction back, so that other processes can write.

        If the rollback fails, `_begin` tries again.
        """
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
                    # A full disk ends the whole transaction: no job was written.
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
        except Exception as error:  # noqa: BLE001 - raised to the callers that wait for the job
            return error

    def _build_error(self, error: sqlite3.Error) -> StoreError:
        wrapped = build_store_error(self._path, error)
        wrapped.__cause__ = error
        return wrapped


def _settle_batch(batch: Sequence[WriteJob[Any]], outcomes: Sequence[Any]) -> None:
    for job, outcome in zip(batch, outcomes, strict=True):
        job.settle(outcome)
