"""Tasks that a worker can't run go back to their queue, for workers that can run them."""

from typing import Any

import pytest

from runnel.core.commands import TaskDeferred, TaskFailed
from runnel.core.effects import TaskMessage
from runnel.engine.worker import refusals
from runnel.ports.telemetry import TASK_HANDED_BACK
from runnel.ports.workers import WorkerInfo
from runnel.testing.clock import FakeClock, settle
from tests.unit.engine.worker.worker_harness import WorkerHarness

MISSING = {"function": "somewhere_else:work"}


def missing_task(stage: WorkerHarness, *, node: str = "node") -> TaskMessage:
    return stage.task("python", MISSING, node=node)


async def run_again(stage: WorkerHarness, clock: FakeClock, *, after_s: float) -> TaskMessage:
    """Issues the task again, as the owner does after a TaskDeferred."""
    await clock.advance(after_s)
    task = missing_task(stage)
    await stage.issue(task)
    await settle()
    return task


async def test_a_task_that_cannot_be_imported_is_handed_back(
    frozen: WorkerHarness, clock: FakeClock
) -> None:
    task = missing_task(frozen)
    async with frozen.working(hand_back_s=60.0):
        await frozen.issue(task)
        await settle()
        reports = list(await frozen.read_reports())
        await run_again(frozen, clock, after_s=30)

    (deferred,) = reports
    assert isinstance(deferred, TaskDeferred)
    assert (deferred.token, deferred.wait_s) == (task.token, 1.0)
    assert "there is no module 'somewhere_else'" in deferred.reason
    assert deferred.reason.endswith("and name the module with --app")
    later = (await frozen.read_reports())[-1]
    assert isinstance(later, TaskDeferred)
    assert later.wait_s == 10.0
    assert len(frozen.telemetry.named(TASK_HANDED_BACK)) == 1


async def test_a_task_that_no_worker_can_run_fails_after_the_limit(
    frozen: WorkerHarness, clock: FakeClock
) -> None:
    async with frozen.working(hand_back_s=60.0):
        await frozen.issue(missing_task(frozen))
        await settle()
        last = await run_again(frozen, clock, after_s=60)
        (failed,) = await frozen.results()

    assert isinstance(failed, TaskFailed)
    assert failed.token == last.token
    assert failed.error.type == "NotImportableError"


@pytest.mark.parametrize(
    ("about", "fails"),
    [
        (WorkerInfo(queues=("tasks:python",)), False),
        (WorkerInfo(queues=("tasks:python",), refuses=("python another:work",)), False),
        (WorkerInfo(queues=("tasks:python",), refuses=("python somewhere_else:work",)), True),
        (WorkerInfo(queues=("tasks:gpu",)), True),
    ],
)
async def test_a_task_fails_only_if_every_worker_of_its_queue_has_refused_it(
    frozen: WorkerHarness, clock: FakeClock, about: WorkerInfo, *, fails: bool
) -> None:
    await frozen.backend.tasks.beat("other", [], about=about)
    async with frozen.working(hand_back_s=60.0):
        await frozen.issue(missing_task(frozen))
        await settle()
        for _ in range(8 if fails else 100):
            await run_again(frozen, clock, after_s=10)
        reports = await frozen.read_reports()

    assert any(isinstance(report, TaskFailed) for report in reports) == fails


async def test_two_workers_that_cannot_run_a_task_agree_to_fail_it(
    frozen: WorkerHarness, clock: FakeClock
) -> None:
    async with (
        frozen.working(name="w1", hand_back_s=60.0),
        frozen.working(name="w2", hand_back_s=60.0),
    ):
        await frozen.issue(missing_task(frozen))
        await settle()
        for _ in range(20):
            await run_again(frozen, clock, after_s=10)
        about = [record.about for record in await frozen.backend.tasks.workers()]
        await frozen.read_reports()

    assert [info.refuses for info in about if info] == [("python somewhere_else:work",)] * 2
    assert {type(report) for report in frozen.reports} == {TaskDeferred, TaskFailed}


@pytest.mark.parametrize(("after_s", "failures"), [(71.0, 0), (60.0, 1)])
async def test_the_age_restarts_after_another_worker_had_the_task(
    frozen: WorkerHarness, clock: FakeClock, after_s: float, failures: int
) -> None:
    async with frozen.working(hand_back_s=60.0):
        await frozen.issue(missing_task(frozen))
        await settle()
        await clock.advance(after_s)
        await frozen.issue(frozen.task("python", MISSING, failures=failures))
        await settle()
        last = (await frozen.read_reports())[-1]

    assert isinstance(last, TaskDeferred)
    assert last.wait_s == 1.0


async def test_one_refused_task_does_not_delay_other_tasks(
    frozen: WorkerHarness, clock: FakeClock
) -> None:
    async with frozen.working(hand_back_s=60.0):
        await frozen.issue(missing_task(frozen))
        await settle()
        await frozen.issue(*(frozen.task("output", node=f"n{number}") for number in range(100)))
        await clock.advance(0.2)
        await frozen.read_reports()

    assert len(frozen.ended()) == 100


async def test_a_worker_that_refuses_every_task_claims_less(
    frozen: WorkerHarness, clock: FakeClock
) -> None:
    async with frozen.working(hand_back_s=60.0, concurrency=4):
        await frozen.issue(*(missing_task(frozen, node=f"n{number}") for number in range(100)))
        await clock.advance(10)
        await frozen.read_reports()

    assert 20 <= len(frozen.reports) <= 40


async def test_a_refused_task_takes_no_rate_token(frozen: WorkerHarness, clock: FakeClock) -> None:
    limit: dict[str, Any] = {"resource_tag": "api", "rate_per_second": 0.001}
    async with frozen.working(hand_back_s=60.0):
        await frozen.issue(frozen.task("python", MISSING, **limit))
        await settle()
        await frozen.issue(frozen.task("output", node="runs", **limit))
        await clock.advance(1)
        await frozen.read_reports()

    assert [report.token.node_id for report in frozen.ended()] == ["runs"]


async def test_the_only_worker_of_a_process_fails_such_a_task_at_once(
    frozen: WorkerHarness,
) -> None:
    async with frozen.working():
        await frozen.issue(missing_task(frozen))
        (failed,) = await frozen.results()

    assert isinstance(failed, TaskFailed)
    assert "--app" not in failed.error.message


async def test_a_worker_remembers_a_bounded_number_of_tasks(
    frozen: WorkerHarness, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "REMEMBERED_TASKS_MAX", 1)
    async with frozen.working(hand_back_s=60.0):
        await frozen.issue(missing_task(frozen))
        await settle()
        await frozen.issue(missing_task(frozen, node="another"))
        await settle()
        await run_again(frozen, clock, after_s=60)
        last = (await frozen.read_reports())[-1]

    assert isinstance(last, TaskDeferred)
