"""A worker reports the end of stopped code, after the code has really ended."""

import asyncio
import threading
from typing import Any

from runnel.authoring.context import Context
from runnel.core.commands import Command, TaskStopped
from runnel.core.ids import TaskToken
from runnel.testing.clock import FakeClock
from tests.unit.engine.worker.worker_harness import WorkerHarness
from tests.waiting import wait_for_value, wait_until


async def wait_for_stop(stage: WorkerHarness, token: TaskToken) -> Command:
    async def read() -> Command | None:
        reports = await stage.read_reports()
        return next((r for r in reports if r == TaskStopped(token=token)), None)

    return await wait_for_value(read, every_s=0.001, deadline_s=10.0)


async def test_the_end_of_a_coroutine_is_reported_after_its_finally_block(
    stage: WorkerHarness,
) -> None:
    entered, may_end = asyncio.Event(), asyncio.Event()

    @stage.handlers.handler("slow")
    async def slow(config: Any, ctx: Context) -> None:
        try:
            entered.set()
            await asyncio.Event().wait()
        finally:
            await may_end.wait()

    task = stage.task("slow")
    async with stage.working() as worker:
        await stage.issue(task)
        await entered.wait()
        await stage.stop_tasks(task.token)
        await stage.read_reports()
        before = list(stage.reports)
        may_end.set()
        await wait_for_stop(stage, task.token)

    assert before == []
    assert worker.holds == 0


async def test_the_end_of_a_thread_is_reported_when_its_function_returns(
    stage: WorkerHarness,
) -> None:
    entered, may_end = threading.Event(), threading.Event()

    @stage.handlers.handler("block")
    def block(config: Any, ctx: Context) -> None:
        entered.set()
        may_end.wait()

    task = stage.task("block")
    async with stage.working() as worker:
        await stage.issue(task)
        await asyncio.to_thread(entered.wait)
        await stage.stop_tasks(task.token)
        await wait_until(lambda: worker.abandoned_threads == 1)
        before = [type(report) for report in await stage.read_reports()]
        may_end.set()
        await wait_for_stop(stage, task.token)

    assert TaskStopped not in before


async def test_a_stopped_task_that_waits_for_a_slot_has_ended_at_once(
    stage: WorkerHarness,
) -> None:
    entered, may_end = asyncio.Event(), asyncio.Event()

    @stage.handlers.handler("first")
    async def first(config: Any, ctx: Context) -> None:
        entered.set()
        await may_end.wait()

    running, queued = stage.task("first", node="running"), stage.task("first", node="queued")
    async with stage.working(concurrency=1, claim_ahead=1):
        await stage.issue(running, queued)
        await entered.wait()
        await stage.stop_tasks(queued.token)
        await wait_for_stop(stage, queued.token)
        may_end.set()
        await stage.results()

    assert [token.node_id for token in stage.telemetry.started_tokens] == ["running"]


async def test_code_that_swallows_its_cancellation_has_ended_after_its_grace_time(
    frozen: WorkerHarness, clock: FakeClock
) -> None:
    @frozen.handlers.handler("stubborn")
    async def stubborn(config: Any, ctx: Context) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ctx.logger.debug("no")

    task = frozen.task("stubborn")
    async with frozen.working(grace_s=5.0):
        await frozen.issue(task)
        await clock.advance(0.1)
        await frozen.stop_tasks(task.token)
        await clock.advance(4.9)
        early = [type(report) for report in await frozen.read_reports()]
        await clock.advance(0.2)
        await wait_for_stop(frozen, task.token)

    assert TaskStopped not in early
