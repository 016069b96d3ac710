"""The heap of deadlines keeps no finished run in memory."""

import asyncio
import gc
from math import inf
from typing import Any

import pytest

from runnel.authoring.context import Context
from runnel.engine.worker.deadlines import Deadlines
from runnel.engine.worker.task_run import TaskRun
from runnel.testing.clock import FakeClock
from tests.unit.engine.worker.worker_harness import WorkerHarness

HOUR_S = 3_600.0


class RecordingChecker:
    """A checker that records runs and requests no further check."""

    def __init__(self) -> None:
        self.runs: list[TaskRun] = []

    def check(self, run: TaskRun, now: float) -> float:
        self.runs.append(run)
        return inf


@pytest.fixture
def deadlines(clock: FakeClock) -> Deadlines:
    return Deadlines(clock)


def runs_of(frozen: WorkerHarness, number: int) -> list[TaskRun]:
    return [TaskRun(frozen.task("work")) for _ in range(number)]


def test_finished_runs_never_outnumber_the_others(
    frozen: WorkerHarness, deadlines: Deadlines
) -> None:
    for number, run in enumerate(runs_of(frozen, 1_000)):
        deadlines.arm(run, HOUR_S)
        if number >= 10:
            run.is_finished = True
            deadlines.forget(run)
        assert len(deadlines) <= 2 * 10 + 1


def test_the_heap_is_empty_when_all_runs_are_finished(
    frozen: WorkerHarness, deadlines: Deadlines
) -> None:
    runs = runs_of(frozen, 100)
    for run in runs:
        deadlines.arm(run, HOUR_S)

    for run in runs:
        deadlines.forget(run)

    assert len(deadlines) == 0


async def test_a_run_is_checked_at_the_time_of_its_last_arm(
    frozen: WorkerHarness, clock: FakeClock, deadlines: Deadlines
) -> None:
    checks = RecordingChecker()
    sooner, later, over = runs_of(frozen, 3)
    for run in (sooner, later, over):
        deadlines.arm(run, 10.0)
    deadlines.arm(sooner, 5.0)
    deadlines.arm(later, 15.0)
    deadlines.forget(over)

    seen = []
    for _ in range(4):
        await clock.advance(5.0)
        deadlines.tick(checks)
        seen.append(list(checks.runs))

    assert seen == [[sooner], [sooner], [sooner, later], [sooner, later]]
    assert len(deadlines) == 0


async def test_a_finished_task_is_not_kept_until_its_timeout(
    frozen: WorkerHarness, clock: FakeClock
) -> None:
    @frozen.handlers.handler("slow")
    async def slow(config: Any, ctx: Context) -> None:
        await done.wait()

    done = asyncio.Event()
    before = runs_alive()
    async with frozen.working(concurrency=20):
        await frozen.issue(*(frozen.task("slow", timeout_s=HOUR_S) for _ in range(20)))
        await clock.advance(1.0)
        done.set()
        await frozen.results(20)
        await clock.advance(1.0)
        alive = runs_alive() - before

    assert alive <= 0


def runs_alive() -> int:
    gc.collect()
    return sum(isinstance(candidate, TaskRun) for candidate in gc.get_objects())
