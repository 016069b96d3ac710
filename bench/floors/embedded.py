"""The floor of an embedded engine: one asyncio loop, and SQLite with group commit.

A submit stores a header and a message, and returns after their commit. The loop then counts
parents. It stores one entry per execution and batch, and the headers of ended executions. The first
entry deletes the message. Tasks and their results pass in memory.
"""

import asyncio
import sqlite3
from collections import deque
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from bench.floors.batch import (
    COMMANDS_MAX,
    VERSION,
    FloorBatch,
    FloorExecutions,
    GraphShape,
    make_creation,
)
from runnel.app.wiring import CLAIM_AHEAD
from runnel.backends.sqlite.database import (
    FILE_NAME,
    OPEN_BUSY_TIMEOUT_MS,
    SQL,
    Durability,
    open_for_writing,
)
from runnel.backends.sqlite.writer import Checkpointer
from runnel.bench.workflows import noop
from runnel.core.codec import encode_message
from runnel.core.commands import Command, CreateExecution, TaskCompleted
from runnel.core.ids import ExecutionId, Nonce, TaskToken
from runnel.core.states import ExecutionState
from runnel.core.values import NULL
from runnel.engine.clock import RandomIdGenerator, RealClock


def resolve_future(future: asyncio.Future[None]) -> None:
    """Resolves the future of a caller, unless Ctrl-C has cancelled it."""
    if not future.done():
        future.set_result(None)


WORKER_NAME = "floor-12345-0123456789ab"
# As in the engine: a batch is complete after this many loop turns without a new message.
GATHER_TURNS = 3


class FloorStorage(Protocol):
    async def store(
        self, shape: GraphShape, submitted: Sequence[CreateExecution], batch: FloorBatch
    ) -> None: ...


class EmbeddedFloor:
    """The floor of an engine in this process."""

    def __init__(self, shape: GraphShape, storage: FloorStorage, slots: int) -> None:
        self._shape = shape
        self._storage = storage
        self._claimed_max = slots + CLAIM_AHEAD
        self._clock = RealClock()
        self._ids = RandomIdGenerator()
        self._runs = FloorExecutions(shape)
        self._submitted: list[tuple[CreateExecution, asyncio.Future[None]]] = []
        self._inbox: deque[Command] = deque()
        self._tasks: deque[TaskToken] = deque()
        self._waiting: dict[ExecutionId, asyncio.Future[None]] = {}
        self._has_input = asyncio.Event()
        self._has_tasks = asyncio.Event()

    async def execute(self) -> None:
        loop = asyncio.get_running_loop()
        execution_id = ExecutionId(self._ids.execution_id())
        command = make_creation(self._shape, execution_id, self._clock.now())
        stored: asyncio.Future[None] = loop.create_future()
        ended = self._waiting[execution_id] = loop.create_future()
        self._submitted.append((command, stored))
        self._has_input.set()
        await stored
        await ended

    async def work(self) -> None:
        """Claims as many tasks as the engine's worker, runs them and reports them together."""
        while True:
            await self._has_tasks.wait()
            claimed = [
                self._tasks.popleft() for _ in range(min(len(self._tasks), self._claimed_max))
            ]
            if not self._tasks:
                self._has_tasks.clear()
            for token in claimed:
                started_at = self._clock.now()
                await noop(None, None)  # type: ignore[arg-type]  # noop uses neither
                report = TaskCompleted(
                    token=token, output=NULL, worker=WORKER_NAME, started_at=started_at
                )
                self._inbox.append(report)
            self._has_input.set()
            await asyncio.sleep(0)

    async def write(self) -> None:
        while True:
            await self._has_input.wait()
            await self._gather()
            self._has_input.clear()
            submitted, self._submitted = self._submitted, []
            count = min(len(self._inbox), COMMANDS_MAX)
            commands = [self._inbox.popleft() for _ in range(count)]
            nonce = Nonce(self._ids.nonce())
            batch = self._runs.decide(commands, self._clock.now(), nonce)
            await self._storage.store(self._shape, [command for command, _ in submitted], batch)
            for command, stored in submitted:
                resolve_future(stored)
                self._inbox.append(command)
            self._tasks.extend(batch.tasks)
            if batch.tasks:
                self._has_tasks.set()
            for execution_id, *_ in batch.ended:
                resolve_future(self._waiting.pop(execution_id))
            if self._inbox:
                self._has_input.set()

    async def _gather(self) -> None:
        quiet = 0
        while quiet < GATHER_TURNS and len(self._inbox) < COMMANDS_MAX:
            before = len(self._inbox) + len(self._submitted)
            await asyncio.sleep(0)
            quiet = 0 if len(self._inbox) + len(self._submitted) > before else quiet + 1


@asynccontextmanager
async def open_embedded_floor(
    shape: GraphShape, storage: FloorStorage, slots: int
) -> AsyncIterator[EmbeddedFloor]:
    floor = EmbeddedFloor(shape, storage, slots)
    async with asyncio.TaskGroup() as group:
        loops = [group.create_task(floor.work()), group.create_task(floor.write())]
        try:
            yield floor
        finally:
            for loop in loops:
                loop.cancel()


PARTITION = 0
# As in the engine: the pause of the writer while the write-ahead log restarts.
CHECKPOINT_PAUSE_S = 0.001


class NoFloorStorage:
    async def store(
        self, shape: GraphShape, submitted: Sequence[CreateExecution], batch: FloorBatch
    ) -> None:
        """Encodes the entries without storing them, as the memory backend does."""
        batch.encode_entries()


class SqliteFloorStorage:
    """SQLite storage. With "power" it commits on a thread, because a commit waits for the disk."""

    def __init__(self, folder: Path, durability: Durability) -> None:
        self._db = open_for_writing(folder, durability)
        self._db.execute(f"PRAGMA busy_timeout = {OPEN_BUSY_TIMEOUT_MS}")
        self._clock = RealClock()
        self._checkpointer = Checkpointer(folder / FILE_NAME, durability)
        is_threaded = durability == "power"
        self._thread = ThreadPoolExecutor(1) if is_threaded else None
        self._sequence = 0
        self._last_message = 0
        self._unread: deque[int] = deque()

    async def store(
        self, shape: GraphShape, submitted: Sequence[CreateExecution], batch: FloorBatch
    ) -> None:
        while self._checkpointer.is_restarting_log:
            await self._clock.sleep(CHECKPOINT_PAUSE_S)
        if self._thread is None:
            self._store(shape, submitted, batch)
        else:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, self._store, shape, submitted, batch)

    def _store(
        self, shape: GraphShape, submitted: Sequence[CreateExecution], batch: FloorBatch
    ) -> None:
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        if submitted:
            self._add_submitted(db, submitted)
        if batch.started:
            for _ in batch.started[1:]:
                self._unread.popleft()
            db.execute(SQL["consume_messages"], (PARTITION, self._unread.popleft()))
        if batch.events:
            self._sequence += 1
            rows = [
                (id_, self._sequence, part, PARTITION, entry)
                for part, (id_, entry) in enumerate(batch.encode_entries())
            ]
            db.executemany(SQL["add_history"], rows)
        if batch.ended:
            db.executemany(
                SQL["put_header"], [_make_final_row(shape, batch, ended) for ended in batch.ended]
            )
        db.execute("COMMIT")
        self._checkpointer.record_rows(db.total_changes)

    def _add_submitted(self, db: sqlite3.Connection, submitted: Sequence[CreateExecution]) -> None:
        db.executemany(SQL["add_header"], [_make_pending_row(command) for command in submitted])
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


def _make_pending_row(command: CreateExecution) -> tuple[object, ...]:
    return (
        *(command.execution_id, PARTITION, command.workflow, command.version, command.definition),
        *(ExecutionState.PENDING.value, command.created_at, None, None, None, "{}", None, None),
    )


def _make_final_row(
    shape: GraphShape, batch: FloorBatch, ended: tuple[ExecutionId, float, float]
) -> tuple[object, ...]:
    id_, created_at, started_at = ended
    return (
        *(id_, PARTITION, shape.workflow, VERSION, shape.definition),
        *(ExecutionState.COMPLETED.value, created_at, started_at, batch.now),
        *(None, "{}", None, None),
    )
