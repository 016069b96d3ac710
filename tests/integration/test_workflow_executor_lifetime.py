"""WorkflowExecutor when it is cancelled, shared by event loops, stored, broken or misused."""

import asyncio
import gc
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from runnel import StepContext, WorkflowDAG, WorkflowExecutor
from runnel.app.live_execution import WorkflowResult
from runnel.app.wiring import build_engine
from runnel.backends.memory.store import MemoryMailbox
from runnel.core.commands import CancelExecution, Command
from runnel.core.states import ExecutionState
from runnel.engine.clock import RealClock
from runnel.errors import (
    EngineEndedError,
    InputError,
    InvalidWorkflowError,
    PayloadError,
    StoreError,
)
from runnel.ports.archive import ExecutionFilter
from runnel.settings.model import Settings
from tests.integration.document_pipeline import document, fail


async def test_cancelling_the_caller_stops_running_steps_before_it_returns() -> None:
    has_begun = asyncio.Event()
    cleaned_up: list[str] = []

    async def for_ever(_ctx: StepContext) -> None:
        has_begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned_up.append("yes")

    dag = WorkflowDAG().add_step("a", for_ever).add_step("b", for_ever, depends_on=["a"])
    async with asyncio.TaskGroup() as group:
        running = group.create_task(WorkflowExecutor().execute(dag))
        await has_begun.wait()
        running.cancel()

    assert running.cancelled()
    assert cleaned_up == ["yes"]
    assert len(asyncio.all_tasks()) == 1


async def test_a_cancel_succeeds_although_the_store_fails_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    has_begun = asyncio.Event()
    send, failures = MemoryMailbox.send, [StoreError("the disk is full")]

    async def flaky(self: MemoryMailbox, commands: Sequence[Command], **given: Any) -> None:
        if isinstance(commands[0], CancelExecution) and failures:
            raise failures.pop()
        await send(self, commands, **given)

    async def for_ever(_ctx: StepContext) -> None:
        has_begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(MemoryMailbox, "send", flaky)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(
            WorkflowExecutor().execute(WorkflowDAG().add_step("a", for_ever))
        )
        await has_begun.wait()
        running.cancel()

    assert running.cancelled()
    assert not failures


async def test_cancelling_an_execution_does_not_affect_others_of_the_executor() -> None:
    executor = WorkflowExecutor()
    has_begun, may_end = asyncio.Event(), asyncio.Event()

    async def wait(_ctx: StepContext) -> str:
        has_begun.set()
        await may_end.wait()
        return "done"

    async with asyncio.TaskGroup() as group:
        cancelled = group.create_task(executor.execute(WorkflowDAG().add_step("a", wait)))
        await has_begun.wait()
        kept = group.create_task(executor.execute(WorkflowDAG().add_step("a", wait)))
        cancelled.cancel()
        await asyncio.wait([cancelled])
        may_end.set()

    assert kept.result().outputs == {"a": "done"}


async def test_a_function_in_a_thread_is_notified_that_its_caller_was_cancelled() -> None:
    loop = asyncio.get_running_loop()
    has_begun, is_notified = asyncio.Event(), threading.Event()

    def work(ctx: StepContext) -> None:
        loop.call_soon_threadsafe(has_begun.set)
        while not ctx.task.cancelled:
            is_notified.wait(0.001)
        is_notified.set()

    async with asyncio.TaskGroup() as group:
        running = group.create_task(WorkflowExecutor().execute(WorkflowDAG().add_step("a", work)))
        await has_begun.wait()
        running.cancel()

    assert running.cancelled()
    assert await asyncio.to_thread(is_notified.wait, 10)


def count_live_tasks() -> int:
    gc.collect()
    return sum(isinstance(candidate, asyncio.Task) for candidate in gc.get_objects())


def test_many_event_loops_in_one_process_leak_neither_threads_nor_tasks() -> None:
    executor = WorkflowExecutor()
    dag = document()
    threads, tasks = set(threading.enumerate()), count_live_tasks()

    results = [asyncio.run(executor.execute(dag, {"doc_id": 1})) for _ in range(50)]
    results += [executor.execute_sync(dag, {"doc_id": 1}) for _ in range(50)]

    for thread in set(threading.enumerate()) - threads:
        thread.join(10)
    assert all(result.is_successful for result in results)
    assert set(threading.enumerate()) <= threads
    assert count_live_tasks() <= tasks


def test_threads_with_an_event_loop_each_may_share_an_executor() -> None:
    executor = WorkflowExecutor()
    results: list[WorkflowResult] = []

    def work() -> None:
        results.append(executor.execute_sync(document(), {"doc_id": 1}))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert [result.completed for result in results] == [5] * 8


async def test_the_error_of_execute_sync_inside_an_event_loop_names_the_alternative() -> None:
    with pytest.raises(InputError, match=r"use 'await executor\.execute"):
        WorkflowExecutor().execute_sync(document())


async def test_a_graph_with_problems_is_refused_before_anything_runs() -> None:
    dag = document()
    dag.add_step("again", fail, depends_on=["missing"])

    with pytest.raises(InvalidWorkflowError, match="there is no such node"):
        await WorkflowExecutor().execute(dag)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"max_concurrency": 0}, "expected max_concurrency to be a whole number of at least 1, got 0"),
    ({"rate_limiters": {"api": 10}}, "expected a TokenBucketRateLimiter, got 10"),
]


@pytest.mark.parametrize(("arguments", "expected"), WRONG)
def test_a_wrong_argument_is_refused_with_the_reason(
    arguments: Mapping[str, Any], expected: str
) -> None:
    with pytest.raises(InputError, match=expected):
        WorkflowExecutor(**arguments)


async def test_the_context_may_not_contain_the_key_of_the_outputs() -> None:
    with pytest.raises(InputError, match="'step_outputs' is reserved for outputs of steps"):
        await WorkflowExecutor().execute(document(), {"step_outputs": {}})


async def test_with_a_data_dir_the_execution_is_stored(
    tmp_path: Path,
) -> None:
    result = await WorkflowExecutor(data_dir=tmp_path).execute(document(), {"doc_id": 7})

    engine = await build_engine(Settings(data_dir=tmp_path))
    try:
        (header,) = await engine.client.list_executions(ExecutionFilter())
        view = await engine.client.get(header.execution_id)
    finally:
        await engine.backend.close()
    assert (view.execution_id, view.status) == (result.execution_id, ExecutionState.COMPLETED)
    assert view.input == {"doc_id": 7}
    assert {name: node.output for name, node in view.nodes.items()} == result.outputs


async def test_with_a_data_dir_results_are_converted_to_json(tmp_path: Path) -> None:
    dag = WorkflowDAG().add_step("a", lambda _ctx: (1, 2)).add_step("bad", lambda _ctx: object())
    dag.add_step("b", lambda ctx: ctx["step_outputs"]["a"], depends_on=["a"])

    result = await WorkflowExecutor(data_dir=tmp_path).execute(dag)

    assert result.outputs == {"a": [1, 2], "b": [1, 2]}
    assert "can't be stored as JSON" in (result.steps["bad"].error or "")


async def test_with_a_data_dir_the_context_must_be_json(tmp_path: Path) -> None:
    executor = WorkflowExecutor(data_dir=tmp_path)

    with pytest.raises(PayloadError, match="not JSON"):
        await executor.execute(document(), {"doc_id": object()})
    assert (await executor.execute(document(), {"doc_id": 1})).is_successful


async def test_a_data_dir_that_can_not_be_opened_raises_an_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    executor = WorkflowExecutor(data_dir=file)

    for _ in range(2):
        with pytest.raises(InputError):
            await executor.execute(document(), {"doc_id": 1})


class BrokenClock(RealClock):
    is_broken = False

    def monotonic(self) -> float:
        if self.is_broken:
            raise RuntimeError("the clock is broken")
        return super().monotonic()


async def test_a_broken_engine_raises_an_error() -> None:
    clock = BrokenClock()
    executor = WorkflowExecutor(clock=clock)

    async def break_clock(_ctx: StepContext) -> None:
        clock.is_broken = True
        await asyncio.Event().wait()  # until the engine stops

    with pytest.raises(EngineEndedError) as caught:
        await executor.execute(WorkflowDAG().add_step("a", break_clock))
    assert str(caught.value.__cause__) == "the clock is broken"

    clock.is_broken = False
    assert (await executor.execute(document(), {"doc_id": 1})).is_successful
