"""What a process on servers does: decide (orchestrator), run tasks (worker), or both."""

import asyncio
import os
from collections.abc import Sequence
from typing import Protocol

from runnel.app.engine import Engine, StopEvents
from runnel.app.process_signals import SIGNAL_EXIT_BASE, handle_signals
from runnel.engine.orchestrator.orchestrator import Orchestrator
from runnel.engine.worker.worker import Worker
from runnel.ports import Backend
from runnel.ports.telemetry import PROCESS_ENDED, PROCESS_STARTED, Telemetry


class Service(Protocol):
    """A duty besides deciding; see `engine/services`. Any number of processes may have it."""

    async def run(self, stop: asyncio.Event) -> None: ...


class Role(Protocol):
    name: str

    async def run(self, stops: StopEvents) -> None:
        """Runs until `stops.drain` is set, and ends in order; at once with `stops.abort`."""


class OrchestratorRole:
    """The services outlive the orchestrator: they see its last commit."""

    def __init__(self, name: str, orchestrator: Orchestrator, services: Sequence[Service]) -> None:
        self.name = name
        self._orchestrator = orchestrator
        self._services = services

    async def run(self, stops: StopEvents) -> None:
        is_decided = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            services = [group.create_task(service.run(is_decided)) for service in self._services]
            await self._orchestrator.run(stops.drain)
            is_decided.set()
            hurrying = group.create_task(_cancel_on_abort(stops, services))
            await asyncio.gather(*services, return_exceptions=True)
            hurrying.cancel()


async def _cancel_on_abort(stops: StopEvents, services: Sequence["asyncio.Task[None]"]) -> None:
    """What a service has not done yet is done by the next process."""
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
    """An embedded engine, which goes on with what others have left, and services besides."""

    def __init__(self, engine: Engine, services: Sequence[Service] = ()) -> None:
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
    """Two roles of one process; `first` is the one that ends first: nobody asks the other then.

    Nor is it asked for anything once the other has ended by itself, because its worker was told to.
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


class OrchestratorWorkerRole:
    """One after the other when they end: the reports of the worker are decided before."""

    def __init__(self, orchestrator: OrchestratorRole, worker: WorkerRole) -> None:
        self.name = f"{orchestrator.name} {worker.name}"
        self._orchestrator = orchestrator
        self._worker = worker

    async def run(self, stops: StopEvents) -> None:
        drained = StopEvents(asyncio.Event(), stops.abort)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._orchestrator.run(drained))
            await self._worker.run(stops)
            drained.drain.set()


# A process with a role, from its first log line to its last: the first signal drains it, the next
# ends it.

_ABORT_AT_SIGNAL = 2


class RoleProcess:
    """The first signal drains, the second ends what still runs, the third ends the process.

    What is stored is safe at any moment, so the third needs no word.
    """

    def __init__(self, role: Role, backend: Backend, telemetry: Telemetry) -> None:
        self.stops = StopEvents(asyncio.Event(), asyncio.Event())
        self._role = role
        self._backend = backend
        self._telemetry = telemetry
        self._signal_count = 0
        self._last_signal = 0

    async def run(self) -> int:
        """The exit code: 0 after a drain, 128 and the signal's number when it was hurried.

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
