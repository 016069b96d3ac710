"""Timeouts and cancellations, also of code that does not stop."""

import asyncio
import threading
from functools import partial
from typing import Any

import pytest

from runnel.authoring.context import Context
from runnel.core.commands import TaskCompleted
from runnel.core.effects import TaskMessage
from runnel.core.values import INLINE_BYTES_MAX
from runnel.engine.worker import worker as worker_module
from runnel.errors import SoftTimeoutError, TaskCancelledError
from runnel.testing.clock import FakeClock, settle
from tests.unit.engine.worker.worker_harness import WorkerHarness
from tests.waiting import wait_for_value, wait_until


async def test_a_task_over_its_timeout_is_cancelled_and_fails_as_retryable(
    frozen: WorkerHarness, clock: FakeClock
) -> None:
    ended: list[str] = []

    @frozen.handlers.handler("hang")
    async def hang(config: Any, ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("told" if ctx.cancelled else "not told")

    async with frozen.working():
        await frozen.issue(frozen.task("hang", timeout_s=10.0))
        await clock.advance(9.9)
        early = list(ended)
        await clock.advance(0.2)
        [failed] = await frozen.results()

    assert early == []
    assert ended == ["told"]
    assert failed.error.type == "TaskTimeoutError"  # type: ignore[union-attr]  # a failure
    assert failed.error.retryable is True  # type: ignore[union-attr]  # a failure


async def test_the_soft_timeout_is_raised_where_the_code_waits_and_may_be_caught(
    frozen: WorkerHarness, clock: FakeClock
) -> None:
    @frozen.handlers.handler("careful")
    async def careful(config: Any, ctx: Context) -> Any:
        try:
            await asyncio.Event().wait()
        except SoftTimeoutError:
            await asyncio.sleep(0)
            me = asyncio.current_task()
            return ["partial", ctx.soft_timeout, ctx.cancelled, me.cancelling() if me else -1]

    async with frozen.working():
        await frozen.issue(frozen.task("careful", soft_timeout_s=2.0, timeout_s=10.0))
        await clock.advance(2.0)
        [completed] = await frozen.results()

    assert completed.output.decode() == ["partial", True, False, 0]  # type: ignore[union-attr]  # it completed


async def test_a_soft_timeout_that_is_not_caught_is_the_error_of_the_task(
    frozen: WorkerHarness, clock: FakeClock
) -> None:
    @frozen.handlers.handler("hang")
    async def hang(config: Any, ctx: Context) -> None:
        await asyncio.Event().wait()

    async with frozen.working():
        await frozen.issue(frozen.task("hang", soft_timeout_s=2.0, timeout_s=10.0))
        await clock.advance(2.0)
        [failed] = await frozen.results()

    assert failed.error.type == "SoftTimeoutError"  # type: ignore[union-attr]  # a failure


async def test_a_soft_and_a_hard_timeout_at_the_same_moment_end_the_task(
    frozen: WorkerHarness, clock: FakeClock
) -> None:
    @frozen.handlers.handler("stubborn")
    async def stubborn(config: Any, ctx: Context) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except SoftTimeoutError:
                continue

    async with frozen.working():
        await frozen.issue(frozen.task("stubborn", soft_timeout_s=2.0, timeout_s=2.0))
        await clock.advance(2.0)
        [failed] = await frozen.results()

    assert failed.error.type == "TaskTimeoutError"  # type: ignore[union-attr]  # a failure


async def test_a_soft_timeout_after_the_code_has_ended_has_no_effect(
    frozen: WorkerHarness, clock: FakeClock
) -> None:
    written = asyncio.Event()
    put = frozen.backend.blobs.put

    async def put_slowly(key: str, data: bytes) -> None:
        await written.wait()
        await put(key, data)

    frozen.backend.blobs.put = put_slowly  # type: ignore[method-assign]  # a slow store

    @frozen.handlers.handler("large")
    async def large(config: Any, ctx: Context) -> str:
        await asyncio.sleep(0)
        return "x" * (INLINE_BYTES_MAX + 1)

    async with frozen.working(concurrency=1):
        await frozen.issue(
            frozen.task("large", soft_timeout_s=1.0, timeout_s=10.0), frozen.task("output")
        )
        await clock.advance(2)
        written.set()
        results = await frozen.results(2)

    assert [type(report) for report in results] == [TaskCompleted, TaskCompleted]


async def test_a_dropped_task_is_cancelled_at_once_and_reports_nothing(
    frozen: WorkerHarness,
) -> None:
    entered, ended = asyncio.Event(), asyncio.Event()

    @frozen.handlers.handler("hang")
    async def hang(config: Any, ctx: Context) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = frozen.task("hang")
    async with frozen.working() as worker:
        await frozen.issue(task)
        await entered.wait()
        await frozen.drop(task.token)
        await ended.wait()
        await wait_until(lambda: worker.holds == 0)

    assert await frozen.read_reports() == []


async def test_code_that_swallows_its_cancellation_is_closed_by_force(
    frozen: WorkerHarness, clock: FakeClock
) -> None:
    closed: list[str] = []

    @frozen.handlers.handler("deaf")
    async def deaf(config: Any, ctx: Context) -> None:
        try:
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    closed.append("cancelled")
        finally:
            closed.append("closed")

    async with frozen.working(concurrency=1, grace_s=5.0):
        await frozen.issue(frozen.task("deaf", timeout_s=1.0), frozen.task("output"))
        await clock.advance(1.0)
        await clock.advance(5.0)
        failed, completed = await frozen.results(2)

    assert closed == ["cancelled", "closed"]
    assert failed.error.type == "TaskTimeoutError"  # type: ignore[union-attr]  # a failure
    assert completed.output.decode() == {}  # type: ignore[union-attr]  # the slot was free again


async def test_a_handler_may_clean_up_asynchronously_after_it_was_cancelled(
    frozen: WorkerHarness, clock: FakeClock
) -> None:
    steps: list[str] = []

    @frozen.handlers.handler("tidy")
    async def tidy(config: Any, ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            steps.append("cleaned up")

    async with frozen.working():
        await frozen.issue(frozen.task("tidy", timeout_s=1.0))
        await clock.advance(1.0)
        [failed] = await frozen.results()

    assert steps == ["cleaned up"]
    assert failed.error.type == "TaskTimeoutError"  # type: ignore[union-attr]  # a failure


class Blocking:
    """A handler in a thread that runs until the test opens its gate, whatever its timeout is."""

    def __init__(self, stage: WorkerHarness) -> None:
        self.go = threading.Event()
        self.saw_cancel: list[bool] = []
        self._stage = stage
        stage.handlers.register("blocking", self._run, mode="thread")

    def task(self, node: str) -> TaskMessage:
        return self._stage.task("blocking", node=node, timeout_s=0.02)

    def _run(self, _config: Any, ctx: Context) -> str:
        self.go.wait(10)
        self.saw_cancel.append(ctx.cancelled)
        return "too late"


async def test_a_timed_out_thread_gives_its_slot_back(stage: WorkerHarness) -> None:
    blocking = Blocking(stage)
    async with stage.working(concurrency=1, beat_s=0.01) as worker:
        await stage.issue(blocking.task("a"), stage.task("output"))
        failed, completed = await stage.results(2)
        abandoned = worker.abandoned_threads
        shown = await wait_for_value(
            partial(read_abandoned_threads, stage), every_s=0.01, deadline_s=10.0
        )
        blocking.go.set()
        await wait_until(lambda: worker.abandoned_threads == 0)

    assert failed.error.type == "TaskTimeoutError"  # type: ignore[union-attr]  # a failure
    assert completed.output.decode() == {}  # type: ignore[union-attr]  # it completed
    assert (abandoned, shown) == (1, 1)
    [event] = stage.telemetry.named("thread.abandoned")
    assert (event["reason"], event["abandoned"], event["keeps_slot"]) == ("timeout", 1, False)
    assert blocking.saw_cancel == [True]


async def read_abandoned_threads(stage: WorkerHarness) -> int | None:
    [record] = await stage.backend.tasks.workers()
    return None if record.about is None else record.about.abandoned_threads or None


async def test_a_timed_out_thread_keeps_its_slot_if_too_many_of_them_continue(
    stage: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "ABANDONED_PER_SLOT", 2)
    blocking = Blocking(stage)
    last = stage.task("output", node="last", queue="tasks:blocking")
    async with stage.working(concurrency=1) as worker:
        await stage.issue(*map(blocking.task, ["a", "b", "c"]), last)
        await stage.results(3)
        abandoned = worker.abandoned_threads
        blocking.go.set()
        results = await stage.results(4)
        await wait_until(lambda: worker.abandoned_threads == 0)

    assert abandoned == 3
    events = stage.telemetry.named("thread.abandoned")
    assert [event["keeps_slot"] for event in events] == [False, False, True]
    assert [result.token.node_id for result in results] == ["a", "b", "c", "last"]
    assert stage.telemetry.started_tokens[-1].node_id == "last"
    assert len(blocking.saw_cancel) == 3


async def test_a_thread_can_check_its_soft_timeout_and_stop(
    stage: WorkerHarness,
) -> None:
    @stage.handlers.handler("polite")
    def polite(config: Any, ctx: Context) -> str:
        while not ctx.soft_timeout:
            threading.Event().wait(0.001)
        return "stopped early"

    task = stage.task("polite", soft_timeout_s=0.01, timeout_s=10.0)

    assert await stage.output(task) == "stopped early"


async def test_a_cancelled_thread_can_check_for_it_and_raise(stage: WorkerHarness) -> None:
    entered, raised = threading.Event(), threading.Event()

    @stage.handlers.handler("polite")
    def polite(config: Any, ctx: Context) -> None:
        entered.set()
        try:
            while True:
                ctx.check_cancelled()
                threading.Event().wait(0.001)
        except TaskCancelledError:
            raised.set()
            raise

    task = stage.task("polite")
    async with stage.working() as worker:
        await stage.issue(task)
        await wait_until(entered.is_set)
        await stage.drop(task.token)
        await wait_until(raised.is_set)
        await wait_until(lambda: worker.abandoned_threads == 0 and worker.holds == 0)

    assert await stage.read_reports() == []


async def test_waiting_for_the_cancellation_ends_with_it(frozen: WorkerHarness) -> None:
    outcome: list[str] = []

    @frozen.handlers.handler("waiter")
    async def waiter(config: Any, ctx: Context) -> None:
        async def watch() -> None:
            await ctx.wait_cancelled()
            outcome.append("noticed")

        async with asyncio.TaskGroup() as group:
            group.create_task(watch())
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)

    task = frozen.task("waiter")
    async with frozen.working():
        await frozen.issue(task)
        await settle()
        await frozen.drop(task.token)
        await wait_until(lambda: outcome == ["noticed"])

    assert outcome == ["noticed"]


async def test_a_task_that_takes_longer_than_a_quarter_second_is_reported_as_started_once(
    frozen: WorkerHarness, clock: FakeClock
) -> None:
    go = asyncio.Event()

    @frozen.handlers.handler("slow")
    async def slow(config: Any, ctx: Context) -> None:
        await go.wait()

    task = frozen.task("slow")
    async with frozen.working():
        await frozen.issue(task, frozen.task("output"))
        await clock.advance(0.2)
        await frozen.read_reports()
        early = len(frozen.notes())
        await clock.advance(5)
        go.set()
        await frozen.results(2)

    assert early == 0
    assert [note.token for note in frozen.notes()] == [task.token]
    assert frozen.notes()[0].started_at == pytest.approx(clock.now() - 5.2)


async def test_a_result_after_the_timeout_counts_as_a_timeout(
    frozen: WorkerHarness, clock: FakeClock
) -> None:
    @frozen.handlers.handler("late")
    async def late(config: Any, ctx: Context) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ctx.logger.debug("no")
        return "a result after all"

    async with frozen.working():
        await frozen.issue(frozen.task("late", timeout_s=10.0))
        await clock.advance(10.1)
        [failed] = await frozen.results()

    assert failed.error.type == "TaskTimeoutError"  # type: ignore[union-attr]  # a failure
