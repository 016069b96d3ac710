"""A worker on a memory backend. The test plays the part of the orchestrator."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import msgspec

from runnel.authoring.registry import HandlerRegistry
from runnel.backends.memory import MemoryBackend
from runnel.core.commands import Command, TaskCompleted, TaskFailed, TaskSkipped, TaskStarted
from runnel.core.effects import TaskMessage
from runnel.core.ids import NO_ITEM, ExecutionId, NodeId, Nonce, TaskToken
from runnel.core.values import EMPTY_OBJECT, NO_DATA, Value, make_inline_value
from runnel.engine.clock import RandomIdGenerator
from runnel.engine.worker.worker import Worker, WorkerOptions
from runnel.handlers import create_builtin_registry
from runnel.ports.clock import Clock, Secrets
from runnel.ports.store import Commit, Lease
from runnel.ports.telemetry import NullTelemetry

WAIT_S = 10.0

Ending = TaskCompleted | TaskFailed | TaskSkipped


class RecordingTelemetry(NullTelemetry):
    """Telemetry that records every call."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []
        self.started_tokens: list[TaskToken] = []
        self.ended_as: list[tuple[str, str, float]] = []

    def event(self, name: str, **fields: object) -> None:
        self.events.append((name, fields))

    def started(self, task: TaskMessage, worker: str, at: float) -> None:
        self.started_tokens.append(task.token)

    def ended(self, task: TaskMessage, outcome: str, took_s: float) -> None:
        self.ended_as.append((task.token.node_id, outcome, took_s))

    def named(self, name: str) -> list[dict[str, object]]:
        return [fields for event_name, fields in self.events if event_name == name]


class WorkerHarness:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.backend = MemoryBackend(clock, RandomIdGenerator())
        self.handlers: HandlerRegistry = create_builtin_registry()
        self.telemetry = RecordingTelemetry()
        self.stop = asyncio.Event()
        self.stop_now = asyncio.Event()
        self.reports: list[Command] = []
        self._lease: Lease | None = None
        self._sequence = count(1)
        self._nonces = count(1)

    def task(
        self, handler: str, config: Mapping[str, Any] | None = None, **fields: Any
    ) -> TaskMessage:
        """Builds a task. Fields are those of TaskMessage; `inputs` and `item` are plain JSON.

        `node` is the node id.
        """
        node = NodeId(fields.pop("node", "node"))
        inputs = {
            NodeId(name): value if isinstance(value, Value) else make_inline_value(value)
            for name, value in fields.pop("inputs", {}).items()
        }
        execution_input = fields.pop("execution_input", EMPTY_OBJECT)
        if not isinstance(execution_input, Value):
            execution_input = make_inline_value(execution_input)
        item = fields.pop("item", None)
        nonce = Nonce(f"n{next(self._nonces)}")
        settings: dict[str, Any] = {
            "parents": len(inputs),
            "workflow": "flow",
            "version": 1,
            "execution_started_at": 5.0,
            "timeout_s": 300.0,
            "issued_at": self.clock.now(),
            "queue": f"tasks:{handler}",
            **fields,
        }
        return TaskMessage(
            token=TaskToken(ExecutionId("x1"), node, fields.pop("item_index", NO_ITEM), 1, nonce),
            handler=handler,
            config=msgspec.Raw(msgspec.json.encode(config or {})),
            inputs=inputs,
            execution_input=execution_input,
            item=NO_DATA if item is None else msgspec.Raw(msgspec.json.encode(item)),
            **settings,
        )

    async def issue(self, *tasks: TaskMessage) -> None:
        await self._commit(tasks=tasks)

    async def drop(self, *tokens: TaskToken) -> None:
        await self._commit(dropped=tokens)

    async def stop_tasks(self, *tokens: TaskToken) -> None:
        await self._commit(stopped=tokens)

    @asynccontextmanager
    async def working(self, **settings: Any) -> AsyncIterator[Worker]:
        """Runs a worker that has ended when the block ends."""
        worker = self.worker(**settings)
        async with asyncio.TaskGroup() as group:
            group.create_task(worker.run(self.stop, self.stop_now))
            try:
                yield worker
            finally:
                self.stop.set()

    def worker(self, *, name: str = "w1", secrets: Secrets | None = None, **options: Any) -> Worker:
        return Worker(
            self.backend.tasks,
            self.backend.blobs,
            self.handlers,
            self.clock,
            self.telemetry,
            name=name,
            options=WorkerOptions(**options),
            secrets=secrets,
        )

    async def read_reports(self) -> list[Command]:
        """Returns all reports so far, in the order of the store."""
        lease = await self._leased()
        entries = await self.backend.store.read_inbox(lease, limit=10_000, wait_s=0)
        self.reports += [entry.command for entry in entries if entry.command is not None]
        return self.reports

    async def results(self, expected: int = 1) -> list[Ending]:
        """Waits for and returns the first `expected` reports that end a task."""
        async with asyncio.timeout(WAIT_S):
            while len(reports := self.ended()) < expected:
                await self.read_reports()
                await asyncio.sleep(0)
        return reports[:expected]

    def ended(self) -> list[Ending]:
        return [report for report in self.reports if isinstance(report, Ending)]

    def notes(self) -> list[TaskStarted]:
        return [report for report in self.reports if isinstance(report, TaskStarted)]

    async def run(self, task: TaskMessage, **settings: Any) -> Ending:
        """Issues one task to a worker of its own and returns its report."""
        async with self.working(**settings):
            await self.issue(task)
            [result] = await self.results()
        return result

    async def output(self, task: TaskMessage, **settings: Any) -> Any:
        result = await self.run(task, **settings)
        assert isinstance(result, TaskCompleted), result
        return result.output.decode()

    async def error(self, task: TaskMessage, **settings: Any) -> TaskFailed:
        result = await self.run(task, **settings)
        assert isinstance(result, TaskFailed), result
        return result

    async def _commit(self, **fields: Any) -> None:
        lease = await self._leased()
        await self.backend.store.commit(lease, Commit(sequence=next(self._sequence), **fields))

    async def _leased(self) -> Lease:
        if self._lease is None:
            self._lease = await self.backend.store.acquire(0, "test")
        return self._lease
