"""A suspect that no child process can run gets no company in its worker."""

import asyncio
from typing import Any

import pytest

from runnel.core.commands import TaskCompleted, TaskDeferred
from runnel.core.effects import TaskMessage
from runnel.core.retry import SUSPECT_LOSSES
from runnel.engine.worker.runner import ALONE_WAIT_S, SUSPECT_REASON
from runnel.engine.worker.slots import RunSlot, Slots
from runnel.engine.worker.task_run import TaskRun
from runnel.testing.clock import FakeClock, settle
from tests.unit.engine.worker.worker_harness import WorkerHarness


class Gates:
    """Handlers that run until the test opens their gate. `running` names the nodes that run."""

    def __init__(self, stage: WorkerHarness) -> None:
        self._stage = stage
        self._gates: dict[str, asyncio.Event] = {}
        self.running: list[str] = []
        stage.handlers.register("gated", self._run)

    async def _run(self, _config: Any, ctx: Any) -> None:
        self.running.append(ctx.node_id)
        await self._gates.setdefault(ctx.node_id, asyncio.Event()).wait()
        self.running.remove(ctx.node_id)

    def task(self, node: str, *, losses: int = 0) -> TaskMessage:
        return self._stage.task("gated", node=node, losses=losses)

    def suspect(self, node: str) -> TaskMessage:
        return self.task(node, losses=SUSPECT_LOSSES)

    def open(self, *nodes: str) -> None:
        for node in nodes:
            self._gates.setdefault(node, asyncio.Event()).set()


@pytest.fixture
def gates(frozen: WorkerHarness) -> Gates:
    return Gates(frozen)


async def test_a_suspect_runs_after_the_other_tasks_of_its_worker_and_before_later_ones(
    frozen: WorkerHarness, gates: Gates, clock: FakeClock
) -> None:
    ran = []
    async with frozen.working():
        await frozen.issue(gates.task("before"))
        await settle()
        await frozen.issue(gates.suspect("suspect"))
        await settle()
        await frozen.issue(gates.task("after"))
        await clock.advance(1)
        ran.append(list(gates.running))
        gates.open("before")
        await clock.advance(1)
        ran.append(list(gates.running))
        gates.open("suspect")
        await clock.advance(1)
        ran.append(list(gates.running))
        gates.open("after")
        await frozen.results(3)

    assert ran == [["before"], ["suspect"], ["after"]]


async def test_a_second_suspect_goes_back_to_the_store(
    frozen: WorkerHarness, gates: Gates, clock: FakeClock
) -> None:
    second = gates.suspect("second")
    async with frozen.working():
        await frozen.issue(gates.suspect("first"), second)
        await settle()
        [deferred] = list(await frozen.read_reports())
        gates.open("first")
        await clock.advance(1)
        await frozen.results()

    assert isinstance(deferred, TaskDeferred)
    assert (deferred.token, deferred.reason) == (second.token, SUSPECT_REASON)


async def test_a_suspect_runs_beside_tasks_that_do_not_end(
    frozen: WorkerHarness, gates: Gates, clock: FakeClock
) -> None:
    async with frozen.working():
        await frozen.issue(gates.task("long"))
        await settle()
        await frozen.issue(gates.suspect("suspect"))
        await clock.advance(ALONE_WAIT_S + 1)
        running = list(gates.running)
        await frozen.issue(gates.task("after"))
        await clock.advance(1)
        running_later = list(gates.running)
        gates.open("long", "suspect", "after")
        await frozen.results(3)

    assert running == ["long", "suspect"]
    assert running_later == ["long", "suspect", "after"]


async def test_the_wait_of_a_suspect_does_not_count_towards_its_timeout(
    frozen: WorkerHarness, gates: Gates, clock: FakeClock
) -> None:
    suspect = frozen.task("gated", node="suspect", losses=SUSPECT_LOSSES, timeout_s=5.0)
    async with frozen.working():
        await frozen.issue(gates.task("before"))
        await settle()
        await frozen.issue(suspect)
        await clock.advance(20)
        gates.open("before", "suspect")
        await clock.advance(1)
        results = await frozen.results(2)

    assert [type(result) for result in results] == [TaskCompleted, TaskCompleted]


@pytest.mark.parametrize("ends_by", ["drop", "stop"])
async def test_a_suspect_that_waits_can_be_dropped_and_blocks_no_shutdown(
    frozen: WorkerHarness, gates: Gates, clock: FakeClock, ends_by: str
) -> None:
    suspect = gates.suspect("suspect")
    async with frozen.working():
        await frozen.issue(gates.task("before"))
        await settle()
        await frozen.issue(suspect)
        await settle()
        if ends_by == "drop":
            await frozen.drop(suspect.token)
            await settle()
            await frozen.issue(gates.task("after"))
        else:
            frozen.stop.set()
        await clock.advance(1)
        running = list(gates.running)
        gates.open("before", "after")
        await clock.advance(1)
        reports = await frozen.read_reports()

    assert running == (["before", "after"] if ends_by == "drop" else ["before"])
    deferred = [report.token for report in reports if isinstance(report, TaskDeferred)]
    assert deferred == ([] if ends_by == "drop" else [suspect.token])


async def test_a_suspect_that_waits_for_an_execution_lets_its_worker_claim(
    frozen: WorkerHarness,
) -> None:
    slots, run = Slots(2), TaskRun(frozen.task("output", losses=SUSPECT_LOSSES))
    slots.add_suspects([run])
    slots.put([run])
    await slots.take()
    before = slots.claimable

    await RunSlot(slots, run).begin_wait()

    assert (before, slots.claimable) == (0, 2)
