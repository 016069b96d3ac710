"""The floor of an embedded engine: one loop with asyncio, and SQLite with group commit.

A submit stores a header and a message, and returns once both are committed. The loop then counts
parents and stores one entry per execution and batch, and the header of each that has ended; the
message is deleted with the first entry. Tasks are handed to the worker, and come back, in memory.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from runnel.benchmarks.floors.batch import COMMANDS_MAX, Batch, Runs, creation
from runnel.benchmarks.floors.shape import Shape
from runnel.benchmarks.floors.telling import tell
from runnel.benchmarks.handlers import noop
from runnel.core.commands import Command, CreateExecution, TaskCompleted
from runnel.core.ids import ExecutionId, Nonce, Token
from runnel.core.values import NULL
from runnel.runtime.build import CLAIM_AHEAD
from runnel.runtime.clock import RealClock, RealIds

WORKER = "floor-12345-0123456789ab"
# As the inbox of an embedded engine gathers: until nothing more has come for so many turns.
GATHER_TURNS = 3


class Storage(Protocol):
    async def store(
        self, shape: Shape, submitted: Sequence[CreateExecution], batch: Batch
    ) -> None: ...


class EmbeddedFloor:
    """`execute` submits one execution and waits for its end."""

    def __init__(self, shape: Shape, storage: Storage, slots: int) -> None:
        self._shape = shape
        self._storage = storage
        self._claimed_max = slots + CLAIM_AHEAD
        self._clock = RealClock()
        self._ids = RealIds()
        self._runs = Runs(shape)
        self._submitted: list[tuple[CreateExecution, asyncio.Future[None]]] = []
        self._inbox: deque[Command] = deque()
        self._tasks: deque[Token] = deque()
        self._waiting: dict[ExecutionId, asyncio.Future[None]] = {}
        self._has_news = asyncio.Event()
        self._has_tasks = asyncio.Event()

    async def execute(self) -> None:
        loop = asyncio.get_running_loop()
        execution_id = ExecutionId(self._ids.execution_id())
        command = creation(self._shape, execution_id, self._clock.now())
        stored: asyncio.Future[None] = loop.create_future()
        ended = self._waiting[execution_id] = loop.create_future()
        self._submitted.append((command, stored))
        self._has_news.set()
        await stored
        await ended

    async def work(self) -> None:
        """Claims as many as the worker of an engine does, runs them and reports them together."""
        while True:
            await self._has_tasks.wait()
            claimed = [
                self._tasks.popleft() for _ in range(min(len(self._tasks), self._claimed_max))
            ]
            if not self._tasks:
                self._has_tasks.clear()
            for token in claimed:
                started_at = self._clock.now()
                await noop(None, None)  # type: ignore[arg-type]  # it looks at neither
                report = TaskCompleted(
                    token=token, output=NULL, worker=WORKER, started_at=started_at
                )
                self._inbox.append(report)
            self._has_news.set()
            await asyncio.sleep(0)

    async def write(self) -> None:
        while True:
            await self._has_news.wait()
            await self._gather()
            self._has_news.clear()
            submitted, self._submitted = self._submitted, []
            taken = min(len(self._inbox), COMMANDS_MAX)
            commands = [self._inbox.popleft() for _ in range(taken)]
            nonce = Nonce(self._ids.nonce())
            batch = self._runs.decide(commands, self._clock.now(), nonce)
            await self._storage.store(self._shape, [each for each, _ in submitted], batch)
            for command, stored in submitted:
                tell(stored)
                self._inbox.append(command)
            self._tasks.extend(batch.tasks)
            if batch.tasks:
                self._has_tasks.set()
            for execution_id, *_ in batch.ended:
                tell(self._waiting.pop(execution_id))
            if self._inbox:
                self._has_news.set()

    async def _gather(self) -> None:
        quiet = 0
        while quiet < GATHER_TURNS and len(self._inbox) < COMMANDS_MAX:
            before = len(self._inbox) + len(self._submitted)
            await asyncio.sleep(0)
            quiet = 0 if len(self._inbox) + len(self._submitted) > before else quiet + 1


@asynccontextmanager
async def embedded_floor(
    shape: Shape, storage: Storage, slots: int
) -> AsyncIterator[EmbeddedFloor]:
    floor = EmbeddedFloor(shape, storage, slots)
    async with asyncio.TaskGroup() as group:
        loops = [group.create_task(floor.work()), group.create_task(floor.write())]
        try:
            yield floor
        finally:
            for loop in loops:
                loop.cancel()
