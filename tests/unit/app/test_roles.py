"""Roles of a process end in order, and at once after an abort."""

import asyncio
from typing import Any, cast

import pytest

from runnel.app.embedded_engine import StopEvents
from runnel.app.roles import OrchestratorRole, PairedRole


class Quick:
    """An orchestrator or a service that ends when `stop` is set."""

    def __init__(self) -> None:
        self.has_ended = False

    async def run(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.has_ended = True


class Slow(Quick):
    """A service whose last step never ends."""

    async def run(self, stop: asyncio.Event) -> None:
        await super().run(stop)
        await asyncio.Event().wait()


@pytest.fixture
def stops() -> StopEvents:
    return StopEvents(asyncio.Event(), asyncio.Event())


async def test_services_end_after_the_orchestrator(stops: StopEvents) -> None:
    services = [Quick(), Quick()]
    stops.drain.set()

    async with asyncio.timeout(5):
        await OrchestratorRole("o", cast("Any", Quick()), services).run(stops)

    assert all(service.has_ended for service in services)


async def test_an_abort_does_not_wait_for_a_service(stops: StopEvents) -> None:
    services = [Slow(), Quick()]
    stops.drain.set()
    stops.abort.set()

    async with asyncio.timeout(5):
        await OrchestratorRole("o", cast("Any", Quick()), services).run(stops)

    assert services[0].has_ended


class ApiLikeRole:
    """A role that ends when the process is drained."""

    name = "api"

    def __init__(self) -> None:
        self.has_ended = False

    async def run(self, stops: StopEvents) -> None:
        await stops.drain.wait()
        self.has_ended = True


class DrainedRole:
    """A role that ends by itself, as a drained worker does."""

    name = "worker"

    async def run(self, stops: StopEvents) -> None:
        await asyncio.sleep(0)


async def test_the_api_of_a_process_ends_once_its_worker_was_drained(stops: StopEvents) -> None:
    api = ApiLikeRole()

    async with asyncio.timeout(5):
        await PairedRole(DrainedRole(), first=api).run(stops)

    assert api.has_ended
