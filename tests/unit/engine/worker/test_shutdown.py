"""The shutdown of a worker: drain, cancel, unregister. No code can prevent it."""

import asyncio
import threading
from typing import Any

import pytest

from runnel.authoring.context import Context
from runnel.core.commands import TaskCompleted, TaskDeferred, TaskLost
from runnel.engine.worker.worker import SHUTDOWN_CALL_S
from runnel.errors import BrokenInvariantError, InputError, StoreError
from runnel.testing.clock import FakeClock, settle
from tests.unit.engine.worker.worker_harness import WorkerHarness
from tests.waiting import wait_until


async def test_running_tasks_may_finish_and_nothing_more_is_claimed(
    frozen: WorkerHarness, clock: FakeClock
) -> None:
    go = asyncio.Event()

    @frozen.handlers.handler("slow")
    async def slow(config: Any, ctx: Context) -> str:
        await go.wait()
        return "finished"

    async with frozen.working():
        await frozen.issue(frozen.task("slow"))
        await settle()
        frozen.stop.set()
        await settle()
        await frozen.issue(frozen.task("output", node="later"))
        await clock.advance(10)
        go.set()

    completed = (await frozen.read_reports())[-1]
    assert isinstance(completed, TaskCompleted)
    assert completed.output.decode() == "finished"
    assert [token.node_id for token in frozen.telemetry.started_tokens] == ["node"]


async def test_a_worker_that_the_store_drains_shuts_down(
    frozen: WorkerHarness, clock: FakeClock
) -> None:
    go = asyncio.Event()

    @frozen.handlers.handler("slow")
    async def slow(config: Any, ctx: Context) -> str:
        await go.wait()
        return "finished"

    async with frozen.working(beat_s=2.0):
        await frozen.issue(frozen.task("slow"))
        await settle()
        await frozen.backend.tasks.drain("w1")
        before = frozen.stop.is_set()
        await clock.advance(2.1)
        is_told, (record,) = frozen.stop.is_set(), await frozen.backend.tasks.workers()
        await frozen.issue(frozen.task("output", node="later"))
        go.set()

    completed = (await frozen.read_reports())[-1]
    assert (before, is_told) == (False, True)
    assert str(record.state) == "draining"
    assert isinstance(completed, TaskCompleted)
    assert [token.node_id for token in frozen.telemetry.started_tokens] == ["node"]
    assert frozen.telemetry.named("worker.drained") == [{"worker": "w1"}]
    assert await frozen.backend.tasks.workers() == []


async def test_a_task_that_runs_too_long_is_cancelled_and_lost_at_once(
    frozen: WorkerHarness, clock: FakeClock
) -> None:
    cancelled: list[bool] = []

    @frozen.handlers.handler("hang")
    async def hang(config: Any, ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(ctx.cancelled)

    task = frozen.task("hang")
    async with frozen.working(shutdown_s=30.0):
        await frozen.issue(task)
        await settle()
        frozen.stop.set()
        await clock.advance(29)
        early = list(cancelled)
        await clock.advance(2)

    lost = [report for report in await frozen.read_reports() if isinstance(report, TaskLost)]
    assert early == []
    assert cancelled == [True]
    assert [report.token for report in lost] == [task.token]
    assert await frozen.backend.tasks.workers() == []


async def test_the_second_signal_ends_the_worker_at_once_although_code_ignores_it(
    frozen: WorkerHarness, clock: FakeClock
) -> None:
    @frozen.handlers.handler("deaf")
    async def deaf(config: Any, ctx: Context) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ctx.logger.debug("no")

    async with frozen.working():
        await frozen.issue(frozen.task("deaf"))
        await settle()
        frozen.stop.set()
        frozen.stop_now.set()
        await settle()

    assert [type(report) for report in await frozen.read_reports()] == [TaskLost]


async def test_a_hanging_thread_does_not_keep_a_worker_from_ending(stage: WorkerHarness) -> None:
    go, entered = threading.Event(), threading.Event()

    @stage.handlers.handler("hang")
    def hang(config: Any, ctx: Context) -> None:
        entered.set()
        go.wait(10)

    async with stage.working(shutdown_s=0.01) as worker:
        await stage.issue(stage.task("hang"))
        await wait_until(entered.is_set)

    assert worker.abandoned_threads == 1
    assert [type(report) for report in await stage.read_reports()] == [TaskLost]
    go.set()
    await wait_until(lambda: worker.abandoned_threads == 0)


async def test_parked_tasks_go_back_to_the_store_without_counting_as_lost(
    frozen: WorkerHarness,
) -> None:
    tasks = [frozen.task("output", resource_tag="api", rate_per_second=1.0) for _ in range(2)]
    async with frozen.working():
        await frozen.issue(*tasks)
        await settle()

    reports = await frozen.read_reports()
    assert [type(report) for report in reports] == [TaskCompleted, TaskDeferred]


async def test_an_idle_worker_ends_at_once(frozen: WorkerHarness) -> None:
    async with asyncio.timeout(5):
        async with frozen.working():
            await settle()

    assert frozen.telemetry.named("shutdown.started") == [{"worker": "w1", "holds": 0}]


async def test_a_cancelled_worker_ends_although_its_code_ignores_it(frozen: WorkerHarness) -> None:
    @frozen.handlers.handler("deaf")
    async def deaf(config: Any, ctx: Context) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ctx.logger.debug("no")

    await frozen.issue(frozen.task("deaf"), frozen.task("output"))
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        running = group.create_task(frozen.worker().run(frozen.stop))
        await settle()
        running.cancel()

    assert running.cancelled()
    assert TaskLost in [type(report) for report in await frozen.read_reports()]


async def test_a_bug_in_a_loop_ends_the_worker_with_that_error(frozen: WorkerHarness) -> None:
    async def broken(*_args: object, **_named: object) -> Any:
        raise BrokenInvariantError("a bug")

    frozen.backend.tasks.beat = broken  # type: ignore[method-assign]  # a fault for this test only

    with pytest.raises(ExceptionGroup) as caught:
        await frozen.worker().run(frozen.stop)

    assert isinstance(caught.value.exceptions[0], BrokenInvariantError)


def test_a_worker_without_slots_is_refused(frozen: WorkerHarness) -> None:
    with pytest.raises(InputError, match="at least 1, got 0"):
        frozen.worker(concurrency=0)


async def test_a_cancelled_worker_does_not_wait_for_its_threads(
    stage: WorkerHarness,
) -> None:
    go, entered = threading.Event(), threading.Event()

    @stage.handlers.handler("hang")
    def hang(config: Any, ctx: Context) -> None:
        entered.set()
        go.wait(10)

    await stage.issue(stage.task("hang"))
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        running = group.create_task(stage.worker().run(stage.stop))
        await wait_until(entered.is_set)
        running.cancel()

    go.set()
    assert running.cancelled()
    assert [type(report) for report in await stage.read_reports()] == [TaskLost]


async def test_the_tasks_of_a_claim_are_lost_if_the_worker_is_cancelled_during_it(
    frozen: WorkerHarness,
) -> None:
    claimed, claim = asyncio.Event(), frozen.backend.tasks.claim

    async def late(*arguments: Any, **named: Any) -> Any:
        tasks = await claim(*arguments, **named)
        claimed.set()
        await asyncio.Event().wait()
        return tasks

    frozen.backend.tasks.claim = late  # type: ignore[method-assign]  # a fault
    task = frozen.task("output")
    await frozen.issue(task)
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        running = group.create_task(frozen.worker().run(frozen.stop))
        await claimed.wait()
        running.cancel()

    assert [type(report) for report in await frozen.read_reports()] == [TaskLost]
    assert frozen.telemetry.started_tokens == []


@pytest.mark.parametrize(
    ("call", "seconds", "error"),
    [("report", SHUTDOWN_CALL_S, "timed out at shutdown"), ("leave", SHUTDOWN_CALL_S, "timed out")],
)
async def test_a_store_that_does_not_answer_does_not_keep_a_worker_from_ending(
    frozen: WorkerHarness, clock: FakeClock, call: str, seconds: float, error: str
) -> None:
    async def endless(*_arguments: object, **_named: object) -> Any:
        await asyncio.Event().wait()

    setattr(frozen.backend.tasks, call, endless)
    async with frozen.working():
        await frozen.issue(frozen.task("output"))
        await settle()
        frozen.stop.set()
        await clock.advance(seconds)

    [reported] = frozen.telemetry.named("store.failed")
    assert (reported["call"], reported["error"]) == (call, error)


async def test_a_failed_unregistration_is_reported_and_the_worker_ends(
    frozen: WorkerHarness,
) -> None:
    async def away(worker: str) -> None:
        raise StoreError("the store is away")

    frozen.backend.tasks.leave = away  # type: ignore[method-assign]  # a fault
    async with frozen.working():
        await settle()

    assert frozen.telemetry.named("store.failed") == [
        {"worker": "w1", "call": "leave", "error": "the store is away"}
    ]
