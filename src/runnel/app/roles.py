"""The roles of a server process: orchestrator, worker, embedded engine, or two of them."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from runnel.app.embedded_engine import EmbeddedEngine, Service, StopEvents
from runnel.app.process_signals import SIGNAL_EXIT_BASE, handle_signals
from runnel.engine.orchestrator.orchestrator import Orchestrator
from runnel.engine.worker.worker import Worker
from runnel.errors import EngineEndedError
from runnel.ports import Backend
from runnel.ports.telemetry import PROCESS_ENDED, PROCESS_STARTED, Telemetry


class Role(Protocol):
    name: str

    async def run(self, stops: StopEvents) -> None:
        """Runs until `stops.drain` is set, then shuts down; `stops.abort` shortens that."""


class OrchestratorRole:
    """An orchestrator and its services, which stop after it so that they see its last commit."""

    def __init__(self, name: str, orchestrator: Orchestrator, services: Sequence[Service]) -> None:
        self.name = name
        self._orchestrator = orchestrator
        self._services = services

    async def run(self, stops: StopEvents) -> None:
        has_drained = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            services = [group.create_task(service.run(has_drained)) for service in self._services]
            await self._orchestrator.run(stops.drain)
            has_drained.set()
            aborting = group.create_task(_cancel_on_abort(stops, services))
            await asyncio.gather(*services, return_exceptions=True)
            aborting.cancel()


async def _cancel_on_abort(stops: StopEvents, services: Sequence["asyncio.Task[None]"]) -> None:
    """Cancels the services; another process does the rest of their work."""
    await stops.abort.wait()
    for service in services:
        service.cancel()


class WorkerRole:
    def __init__(self, name: str, worker: Worker) -> None:
        self.name = name
        self._worker = worker

    async def run(self, stops: StopEvents) -> None:
        await self._worker.run(stops.drain, stops.abort)


class EngineRole:
    """An embedded engine that adopts all free partitions, and its services."""

    def __init__(self, engine: EmbeddedEngine, services: Sequence[Service] = ()) -> None:
        self.name = engine.name
        self._engine = engine
        self._services = services

    async def run(self, stops: StopEvents) -> None:
        self._engine.stops = stops
        async with asyncio.TaskGroup() as group:
            for service in self._services:
                group.create_task(service.run(stops.drain))
            await self._engine.run(adopts=True)


class PairedRole:
    """Two roles of one process: `first` shuts down completely before `last` begins to.

    So a worker's last reports are still decided, and an API's last requests still answered. If
    `last` ends by itself, for example because its worker was drained, `first` is drained too.
    """

    def __init__(self, last: Role, *, first: Role) -> None:
        self.name = f"{last.name} {first.name}"
        self._last = last
        self._first = first

    async def run(self, stops: StopEvents) -> None:
        afterwards = StopEvents(asyncio.Event(), stops.abort)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._run_last(afterwards, stops))
            await self._first.run(stops)
            afterwards.drain.set()

    async def _run_last(self, own_stops: StopEvents, stops: StopEvents) -> None:
        await self._last.run(own_stops)
        stops.drain.set()


@asynccontextmanager
async def run_role(role: Role, stops: StopEvents) -> AsyncIterator[None]:
    """Runs the role inside the block, and drains it afterwards.

    Ends the block with EngineEndedError if the role ends first.
    """
    has_left = asyncio.Event()

    async def run() -> None:
        await role.run(stops)
        if not has_left.is_set():
            raise EngineEndedError(reason="its worker was drained")

    async with asyncio.TaskGroup() as group:
        group.create_task(run())
        try:
            yield
        finally:
            has_left.set()
            stops.drain.set()


_ABORT_AT_SIGNAL = 2


class RoleProcess:
    """Runs a role until it ends or signals stop it.

    The first signal drains, the second aborts running tasks, the third exits at once. That is safe,
    because every state change is stored before it takes effect.
    """

    def __init__(self, role: Role, backend: Backend, telemetry: Telemetry) -> None:
        self.stops = StopEvents(asyncio.Event(), asyncio.Event())
        self._role = role
        self._backend = backend
        self._telemetry = telemetry
        self._signal_count = 0
        self._last_signal = 0

    async def run(self) -> int:
        """Returns the exit code: 0 after a drain, 128 plus the signal's number after an abort.

        Closes the backend.
        """
        with handle_signals(self._on_signal, before_exit=lambda: None):
            self._telemetry.event(PROCESS_STARTED, process=self._role.name, pid=os.getpid())
            try:
                await self._role.run(self.stops)
            finally:
                await self._backend.close()
                self._telemetry.event(PROCESS_ENDED, process=self._role.name)
        return 0 if self._signal_count < _ABORT_AT_SIGNAL else SIGNAL_EXIT_BASE + self._last_signal

    def _on_signal(self, number: int) -> None:
        self._signal_count += 1
        self._last_signal = number
        self.stops.drain.set()
        if self._signal_count >= _ABORT_AT_SIGNAL:
            self.stops.abort.set()
