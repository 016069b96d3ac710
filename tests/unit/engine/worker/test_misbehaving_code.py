"""User code that raises or cancels what asyncio and the interpreter reserve for themselves."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from runnel.authoring.context import Context
from runnel.core.commands import Command, TaskCompleted, TaskFailed, TaskLost
from runnel.engine.worker.task_run import TaskRun
from runnel.errors import BrokenInvariantError
from runnel.testing.clock import FakeClock, settle
from tests.unit.engine.worker.worker_harness import WorkerHarness

Code = Callable[[Any, Context], Awaitable[Any]]


def cancel_myself() -> None:
    me = asyncio.current_task()
    assert me is not None
    me.cancel()


async def exits_at_once(config: Any, ctx: Context) -> None:
    raise GeneratorExit("by the code")


async def exits_after_a_wait(config: Any, ctx: Context) -> None:
    await asyncio.sleep(0)
    raise GeneratorExit("by the code")


async def awaits_a_task_that_exits(config: Any, ctx: Context) -> None:
    await asyncio.ensure_future(exits_after_a_wait(config, ctx))


async def gathers_what_exits(config: Any, ctx: Context) -> None:
    try:
        await asyncio.gather(exits_after_a_wait(config, ctx))
    finally:
        ctx.logger.debug("cleaned up")


async def cancels_itself(config: Any, ctx: Context) -> None:
    cancel_myself()
    await asyncio.Event().wait()


async def is_cancelled_by_its_own_callback(config: Any, ctx: Context) -> None:
    asyncio.get_running_loop().call_soon(cancel_of_current())
    await asyncio.Event().wait()


async def swallows_its_own_cancel(config: Any, ctx: Context) -> str:
    cancel_myself()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        ctx.logger.debug("no")
    return "went on"


async def cancels_itself_as_its_last_step(config: Any, ctx: Context) -> str:
    cancel_myself()
    return "done"


async def is_cancelled_after_it_has_ended(config: Any, ctx: Context) -> str:
    asyncio.get_running_loop().call_soon(cancel_of_current())
    return "done"


async def awaits_what_was_cancelled(config: Any, ctx: Context) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


def cancel_of_current() -> Callable[[], object]:
    me = asyncio.current_task()
    assert me is not None
    return me.cancel


@pytest.mark.parametrize(
    "code", [exits_at_once, exits_after_a_wait, awaits_a_task_that_exits, gathers_what_exits]
)
async def test_a_generator_exit_of_user_code_is_the_error_of_its_task(
    stage: WorkerHarness, code: Code
) -> None:
    stage.handlers.register("odd", code)

    async with stage.working(concurrency=1):
        await stage.issue(stage.task("odd"), stage.task("output"))
        failed, completed = await stage.results(2)

    assert isinstance(failed, TaskFailed)
    assert str(failed.error) == "GeneratorExit: by the code"
    assert isinstance(completed, TaskCompleted)


async def test_a_runner_that_is_closed_from_outside_closes_its_code_and_ends(
    stage: WorkerHarness,
) -> None:
    seen: list[str] = []

    @stage.handlers.handler("hang")
    async def hang(config: Any, ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("closed")

    worker = stage.worker(concurrency=1)
    worker._slots.put([TaskRun(stage.task("hang"))])  # noqa: SLF001  # no loop of the worker's runs
    runner = worker._runners.run()  # noqa: SLF001  # as above

    async def first_step() -> None:
        runner.send(None)

    async with asyncio.TaskGroup() as group:
        group.create_task(first_step())
    before = list(seen)
    runner.close()

    assert before == []
    assert seen == ["closed"]


@pytest.mark.parametrize("code", [cancels_itself, is_cancelled_by_its_own_callback])
async def test_code_that_cancels_its_own_task_fails_with_an_explanation(
    stage: WorkerHarness, code: Code
) -> None:
    stage.handlers.register("odd", code)

    async with stage.working(concurrency=1):
        await stage.issue(stage.task("odd"), stage.task("output"))
        failed, completed = await stage.results(2)

    assert isinstance(failed, TaskFailed)
    assert failed.error.type == "CancelledError"
    assert "the code cancelled itself" in failed.error.message
    assert failed.error.retryable is None
    assert isinstance(completed, TaskCompleted)


@pytest.mark.parametrize(
    "code",
    [
        swallows_its_own_cancel,
        cancels_itself_as_its_last_step,
        is_cancelled_after_it_has_ended,
    ],
)
async def test_a_pending_cancellation_does_not_reach_the_next_task(
    stage: WorkerHarness, code: Code
) -> None:
    counts: list[int] = []

    @stage.handlers.handler("next")
    async def next_one(config: Any, ctx: Context) -> None:
        await asyncio.sleep(0)
        me = asyncio.current_task()
        counts.append(me.cancelling() if me else -1)

    stage.handlers.register("odd", code)
    stage.handlers.register("late", awaits_what_was_cancelled)
    async with stage.working(concurrency=1):
        for number, name in enumerate(("odd", "next", "late", "next")):
            await stage.issue(stage.task(name))
            await stage.results(number + 1)

    kinds = [type(report) for report in stage.ended()]
    assert kinds == [TaskCompleted, TaskCompleted, TaskFailed, TaskCompleted]
    assert counts == [0, 0]


@pytest.mark.parametrize("code", [swallows_its_own_cancel, cancels_itself])
async def test_a_worker_whose_code_has_cancelled_itself_still_ends_when_it_is_cancelled(
    frozen: WorkerHarness, code: Code
) -> None:
    @frozen.handlers.handler("hang")
    async def hang(config: Any, ctx: Context) -> None:
        cancel_myself()
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ctx.logger.debug("no")

    frozen.handlers.register("odd", code)
    await frozen.issue(frozen.task("odd"), frozen.task("hang"))
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        running = group.create_task(frozen.worker(concurrency=1).run(frozen.stop))
        await settle()
        running.cancel()

    assert running.cancelled()
    assert lost_or_failed(await frozen.read_reports())[-1] is TaskLost


async def test_code_that_is_cancelled_with_everything_else_is_lost_and_has_not_failed(
    frozen: WorkerHarness,
) -> None:
    """As at the end of asyncio.run, which cancels every task without stopping the worker first."""
    entered: list[str] = []

    @frozen.handlers.handler("hang")
    async def hang(config: Any, ctx: Context) -> None:
        entered.append(ctx.node_id)
        await asyncio.Event().wait()

    await frozen.issue(*(frozen.task("hang", node=name) for name in "ab"))
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        before = asyncio.all_tasks()
        running = group.create_task(frozen.worker(concurrency=1).run(frozen.stop))
        await settle()
        for task in asyncio.all_tasks() - before:
            task.cancel()

    assert running.cancelled()
    assert entered == ["a"]
    assert lost_or_failed(await frozen.read_reports()) == [TaskLost]


async def test_code_that_is_cancelled_by_a_bug_in_a_loop_is_lost_and_has_not_failed(
    frozen: WorkerHarness, clock: FakeClock
) -> None:
    @frozen.handlers.handler("hang")
    async def hang(config: Any, ctx: Context) -> None:
        await asyncio.Event().wait()

    async def broken(*_args: object, **_named: object) -> Any:
        raise BrokenInvariantError("a bug")

    async def work_until_it_breaks() -> None:
        with pytest.raises(ExceptionGroup):
            await frozen.worker(beat_s=5.0).run(frozen.stop)

    await frozen.issue(frozen.task("hang"))
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(work_until_it_breaks())
        await settle()
        frozen.backend.tasks.beat = broken  # type: ignore[method-assign]  # a fault for this test only
        await clock.advance(5)

    assert lost_or_failed(await frozen.read_reports()) == [TaskLost]


def lost_or_failed(reports: list[Command]) -> list[type[Command]]:
    return [type(report) for report in reports if isinstance(report, TaskLost | TaskFailed)]
