"""The process of an orchestrator ends on request, even if its services still wait."""

import asyncio
from typing import Any, cast

import pytest

from runnel.app.engine import StopEvents
from runnel.app.roles import OrchestratorRole, PairedRole


class Quick:
    """An orchestrator or a service that ends as soon as `stop` is set."""

    def __init__(self) -> None:
        self.has_ended = False

    async def run(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.has_ended = True


class Slow(Quick):
    """A service whose last step does not end."""

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


async def test_the_second_signal_does_not_wait_for_a_service(stops: StopEvents) -> None:
    services = [Slow(), Quick()]
    stops.drain.set()
    stops.abort.set()

    async with asyncio.timeout(5):
        await OrchestratorRole("o", cast("Any", Quick()), services).run(stops)

    assert services[0].has_ended


class Answering:
    """A role that ends with the process."""

    name = "api"

    def __init__(self) -> None:
        self.has_ended = False

    async def run(self, stops: StopEvents) -> None:
        await stops.drain.wait()
        self.has_ended = True


class Drained:
    """A role that ends by itself because its worker was drained."""

    name = "worker"

    async def run(self, stops: StopEvents) -> None:
        await asyncio.sleep(0)


async def test_nobody_answers_once_the_worker_of_the_process_was_drained(stops: StopEvents) -> None:
    answering = Answering()

    async with asyncio.timeout(5):
        await PairedRole(Drained(), first=answering).run(stops)

    assert answering.has_ended
