"""Where the floor of an embedded engine stores: nowhere, or in SQLite as the engine does."""

import asyncio
import sqlite3
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from runnel.backends.sqlite.checkpoint import Checkpointer
from runnel.backends.sqlite.database import FILE_NAME, OPEN_BUSY_MS, Durability, prepare
from runnel.backends.sqlite.queries import SQL
from runnel.benchmarks.floors.batch import VERSION, Batch
from runnel.benchmarks.floors.shape import Shape
from runnel.core.codec import encode_message
from runnel.core.commands import CreateExecution
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.runtime.clock import RealClock

PARTITION = 0
# How long it keeps away at a time while its log is made to begin anew, as the engine's writer does.
GIVE_WAY_S = 0.001


class NoStorage:
    async def store(self, shape: Shape, submitted: Sequence[CreateExecution], batch: Batch) -> None:
        """In memory, an entry is made too."""
        batch.entries()


class SqliteStorage:
    """With "power" on a thread, because a commit waits for the disk; else on the loop."""

    def __init__(self, folder: Path, durability: Durability) -> None:
        self._db = prepare(folder, durability)
        self._db.execute(f"PRAGMA busy_timeout = {OPEN_BUSY_MS}")
        self._clock = RealClock()
        self._checkpointer = Checkpointer(folder / FILE_NAME, durability)
        self._checkpointer.start()
        is_threaded = durability == "power"
        self._thread = ThreadPoolExecutor(1) if is_threaded else None
        self._sequence = 0
        self._last_message = 0
        self._unread: deque[int] = deque()

    async def store(self, shape: Shape, submitted: Sequence[CreateExecution], batch: Batch) -> None:
        while self._checkpointer.is_cutting:
            await self._clock.sleep(GIVE_WAY_S)
        if self._thread is None:
            self._store(shape, submitted, batch)
        else:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, self._store, shape, submitted, batch)

    def _store(self, shape: Shape, submitted: Sequence[CreateExecution], batch: Batch) -> None:
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        if submitted:
            self._add(db, submitted)
        if batch.begun:
            for _ in batch.begun[1:]:
                self._unread.popleft()
            db.execute(SQL["consume_messages"], (PARTITION, self._unread.popleft()))
        if batch.touched:
            self._sequence += 1
            rows = [
                (id_, self._sequence, part, PARTITION, entry)
                for part, (id_, entry) in enumerate(batch.entries())
            ]
            db.executemany(SQL["add_history"], rows)
        if batch.ended:
            db.executemany(SQL["put_header"], [_ended(shape, batch, each) for each in batch.ended])
        db.execute("COMMIT")
        self._checkpointer.note(db.total_changes)

    def _add(self, db: sqlite3.Connection, submitted: Sequence[CreateExecution]) -> None:
        db.executemany(SQL["add_header"], [_header(command) for command in submitted])
        first = self._last_message + 1
        messages = [
            (number, PARTITION, encode_message(command))
            for number, command in enumerate(submitted, start=first)
        ]
        db.executemany(SQL["add_message"], messages)
        self._last_message += len(messages)
        self._unread.extend(range(first, self._last_message + 1))

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()
        self._checkpointer.stop()
        self._db.close()


def _header(command: CreateExecution) -> tuple[object, ...]:
    return (
        *(command.execution_id, PARTITION, command.workflow, command.version, command.definition),
        *(ExecutionState.PENDING.value, command.created_at, None, None, None, "{}", None, None),
    )


def _ended(
    shape: Shape, batch: Batch, ended: tuple[ExecutionId, float, float]
) -> tuple[object, ...]:
    id_, created_at, started_at = ended
    return (
        *(id_, PARTITION, shape.workflow, VERSION, shape.definition),
        *(ExecutionState.COMPLETED.value, created_at, started_at, batch.now),
        *(None, "{}", None, None),
    )
