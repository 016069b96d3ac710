"""What a process on servers does: decide (orchestrator), run tasks (worker), or both."""

import asyncio
import os
from collections.abc import Sequence
from typing import Protocol

from runnel.app.engine import Engine, Stops
from runnel.app.process_signals import SIGNAL_EXIT, hearing
from runnel.engine.orchestrator.orchestrator import Orchestrator
from runnel.engine.worker.worker import Worker
from runnel.ports import Backend
from runnel.ports.telemetry import PROCESS_ENDED, PROCESS_STARTED, Telemetry


class Service(Protocol):
    """A duty besides deciding; see `engine/services`. Any number of processes may have it."""

    async def run(self, stop: asyncio.Event) -> None: ...


class Role(Protocol):
    name: str

    async def run(self, stops: Stops) -> None:
        """Until `stops.gently`: what was begun is ended in order, or at once with `stops.now`."""


class OrchestratorRole:
    """The services outlive the orchestrator: they see its last commit."""

    def __init__(self, name: str, orchestrator: Orchestrator, services: Sequence[Service]) -> None:
        self.name = name
        self._orchestrator = orchestrator
        self._services = services

    async def run(self, stops: Stops) -> None:
        is_decided = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            services = [group.create_task(each.run(is_decided)) for each in self._services]
            await self._orchestrator.run(stops.gently)
            is_decided.set()
            hurrying = group.create_task(_hurry(stops, services))
            await asyncio.gather(*services, return_exceptions=True)
            hurrying.cancel()


async def _hurry(stops: Stops, services: Sequence["asyncio.Task[None]"]) -> None:
    """What a service has not done yet is done by the next process."""
    await stops.now.wait()
    for service in services:
        service.cancel()


class WorkerRole:
    def __init__(self, name: str, worker: Worker) -> None:
        self.name = name
        self._worker = worker

    async def run(self, stops: Stops) -> None:
        await self._worker.run(stops.gently, stops.now)


class EngineRole:
    """An embedded engine, which goes on with what others have left, and services besides."""

    def __init__(self, engine: Engine, services: Sequence[Service] = ()) -> None:
        self.name = engine.name
        self._engine = engine
        self._services = services

    async def run(self, stops: Stops) -> None:
        self._engine.stops = stops
        async with asyncio.TaskGroup() as group:
            for service in self._services:
                group.create_task(service.run(stops.gently))
            await self._engine.run(adopts=True)


class Together:
    """Two roles of one process; `first` is the one that ends first: nobody asks the other then.

    Nor is it asked for anything once the other has ended by itself, because its worker was told to.
    """

    def __init__(self, last: Role, *, first: Role) -> None:
        self.name = f"{last.name} {first.name}"
        self._last = last
        self._first = first

    async def run(self, stops: Stops) -> None:
        afterwards = Stops(asyncio.Event(), stops.now)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._run_last(afterwards, stops))
            await self._first.run(stops)
            afterwards.gently.set()

    async def _run_last(self, afterwards: Stops, stops: Stops) -> None:
        await self._last.run(afterwards)
        stops.gently.set()


class BothRoles:
    """One after the other when they end: the reports of the worker are decided before."""

    def __init__(self, orchestrator: OrchestratorRole, worker: WorkerRole) -> None:
        self.name = f"{orchestrator.name} {worker.name}"
        self._orchestrator = orchestrator
        self._worker = worker

    async def run(self, stops: Stops) -> None:
        drained = Stops(asyncio.Event(), stops.now)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._orchestrator.run(drained))
            await self._worker.run(stops)
            drained.gently.set()


# A process with a role, from its first log line to its last: signals drain it, then end it.

_NOW = 2


class Process:
    """The first signal drains, the second ends what still runs, the third ends the process.

    What is stored is safe at any moment, so the third needs no word.
    """

    def __init__(self, role: Role, backend: Backend, telemetry: Telemetry) -> None:
        self.stops = Stops(asyncio.Event(), asyncio.Event())
        self._role = role
        self._backend = backend
        self._telemetry = telemetry
        self._signals = 0
        self._last = 0

    async def run(self) -> int:
        """The exit code: 0 after a drain, 128 and the signal's number when it was hurried.

        Closes the backend.
        """
        with hearing(self._on_signal, at_last=lambda: None):
            self._telemetry.event(PROCESS_STARTED, process=self._role.name, pid=os.getpid())
            try:
                await self._role.run(self.stops)
            finally:
                await self._backend.close()
                self._telemetry.event(PROCESS_ENDED, process=self._role.name)
        return 0 if self._signals < _NOW else SIGNAL_EXIT + self._last

    def _on_signal(self, number: int) -> None:
        self._signals += 1
        self._last = number
        self.stops.gently.set()
        if self._signals >= _NOW:
            self.stops.now.set()
