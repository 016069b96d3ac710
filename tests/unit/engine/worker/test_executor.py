"""Unusual cases of running a call in a thread, in a process or on the loop."""

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from runnel.authoring.calls import FunctionCall, Mode
from runnel.authoring.context import Context
from runnel.engine.clock import RealClock
from runnel.engine.worker.child_process import ChildProcessPool, JobResult
from runnel.engine.worker.config_templates import CompiledConfig
from runnel.engine.worker.executor import Executor
from runnel.engine.worker.node_plan import CallDuration, NodePlan, PreparedCall
from runnel.engine.worker.slots import Slots
from runnel.engine.worker.task_run import RunningCode, TaskRun
from runnel.engine.worker.task_values import TaskInputs
from runnel.engine.worker.threads import ThreadJob, ThreadPool
from runnel.errors import BrokenInvariantError
from tests.unit.engine.worker.worker_harness import WorkerHarness
from tests.waiting import wait_until


class RecordingExecutor:
    """An executor that records which runs were abandoned."""

    def __init__(
        self,
        stage: WorkerHarness,
        *,
        threads: ThreadPool | None = None,
        processes: ChildProcessPool | None = None,
    ) -> None:
        self.abandoned: list[TaskRun] = []
        self.run = TaskRun(stage.task("output"))
        self._values = TaskInputs(self.run.task)
        self._handler = stage.handlers.get("output")
        self._executor = Executor(
            threads or ThreadPool("t"),
            processes or ChildProcessPool(),
            Slots(1),
            stage.clock,
            on_suspend=lambda _run: None,
            on_abandoned=self.abandoned.append,
            on_returned=lambda _run: None,
        )

    async def execute(self, function: Callable[..., Any], mode: Mode) -> bytes:
        plan = NodePlan(self._handler, CompiledConfig(b"{}"))
        call = FunctionCall(function=function, mode=mode)
        context = Context(self.run.task, self._values, lambda _task, _measured: None)
        return await self._executor.run(PreparedCall(self.run, plan, call, context, self._values))


def answer() -> int:
    return 42


async def test_a_thread_that_returned_before_the_cancellation_is_not_abandoned(
    frozen: WorkerHarness,
) -> None:
    class Racing(ThreadPool):
        def add_idle(self) -> None:
            super().add_idle()
            running.cancel()

    threads = Racing("t")
    floor = RecordingExecutor(frozen, threads=threads)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(floor.execute(answer, Mode.THREAD))

    threads.close()
    assert running.cancelled()
    assert floor.abandoned == []


class Silent(ChildProcessPool):
    async def run(self, *_arguments: object) -> JobResult:
        return JobResult()


async def test_a_child_without_a_result_is_a_broken_invariant(frozen: WorkerHarness) -> None:
    floor = RecordingExecutor(frozen, processes=Silent())
    runner = asyncio.current_task()
    assert runner is not None
    floor.run.code = RunningCode(runner)

    with pytest.raises(BrokenInvariantError, match="neither a result nor an error"):
        await floor.execute(answer, Mode.PROCESS)


async def test_code_without_a_slot_is_a_broken_invariant(frozen: WorkerHarness) -> None:
    with pytest.raises(BrokenInvariantError, match="runs without a worker slot"):
        await RecordingExecutor(frozen).execute(answer, Mode.PROCESS)


async def test_a_process_that_can_not_be_started_is_the_error_of_its_task(
    stage: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    config = {"function": f"{__name__}:answer", "mode": "process"}

    failed = await stage.error(stage.task("python", config))

    assert failed.error.type == "FileNotFoundError"
    assert "/nowhere/python" in failed.error.message


async def test_a_thread_that_returns_after_its_loop_has_closed_ends_silently(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go, entered = threading.Event(), threading.Event()
    complaints: list[object] = []
    monkeypatch.setattr(threading, "excepthook", complaints.append)

    def hang() -> None:
        entered.set()
        go.wait(10)

    async def short() -> None:
        ThreadPool("late").start(
            ThreadJob(hang, CallDuration(), RealClock(), on_return=lambda: None)
        )

    def with_a_loop_of_its_own() -> None:
        asyncio.run(short())

    await asyncio.to_thread(with_a_loop_of_its_own)
    await wait_until(entered.is_set)
    [thread] = [candidate for candidate in threading.enumerate() if candidate.name == "late-1"]
    go.set()
    await wait_until(lambda: not thread.is_alive())

    assert complaints == []
