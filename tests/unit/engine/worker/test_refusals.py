"""Tasks that a worker can't run go back to their queue, for workers that can run them."""

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
    ("queues", "age_s", "fails"),
    [
        (("tasks:python",), 60.0, False),
        (("tasks:python",), 600.0, True),
        (("tasks:gpu",), 60.0, True),
    ],
)
async def test_other_workers_of_the_queue_have_more_time_to_take_the_task(
    frozen: WorkerHarness, clock: FakeClock, queues: tuple[str, ...], age_s: float, *, fails: bool
) -> None:
    await frozen.backend.tasks.beat("other", [], about=WorkerInfo(queues=queues))
    async with frozen.working(hand_back_s=60.0):
        await frozen.issue(missing_task(frozen))
        await settle()
        await run_again(frozen, clock, after_s=age_s)
        last = (await frozen.read_reports())[-1]

    assert isinstance(last, TaskFailed if fails else TaskDeferred)


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
