"""One run and the ways to end it."""

import pytest

from runnel.authoring.context import Context
from runnel.engine.worker.task_run import RunningCode, StopReason, TaskRun
from runnel.engine.worker.task_values import TaskInputs
from runnel.errors import SoftTimeoutError
from tests.unit.engine.worker.worker_harness import WorkerHarness


class Recorder(RunningCode):
    """Code that only records how it was interrupted."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def raise_soft_timeout(self, error: SoftTimeoutError) -> None:
        self.heard.append("softened")

    def cancel(self) -> None:
        self.heard.append("cancelled")

    def kill(self) -> None:
        self.heard.append("killed")


@pytest.fixture
def run(frozen: WorkerHarness) -> TaskRun:
    return TaskRun(frozen.task("output", soft_timeout_s=1.0))


def test_a_run_without_code_can_be_stopped(run: TaskRun) -> None:
    run.raise_soft_timeout()
    run.stop(StopReason.TIMEOUT, kill_at=5.0)
    run.kill()

    assert run.stop_reason is StopReason.TIMEOUT
    assert run.next_check() == float("inf")


def test_code_and_context_are_notified_of_each_interruption(run: TaskRun) -> None:
    code = run.code = Recorder()
    context = run.context = Context(run.task, TaskInputs(run.task), lambda _task, _measured: None)

    run.raise_soft_timeout()
    run.stop(StopReason.DROPPED, kill_at=5.0)
    run.stop(StopReason.TIMEOUT, kill_at=9.0)
    run.kill()

    assert code.heard == ["softened", "cancelled", "killed"]
    assert (context.soft_timeout, context.cancelled) == (True, True)
    assert run.stop_reason is StopReason.DROPPED


def test_a_finished_run_is_not_interrupted(run: TaskRun) -> None:
    code = run.code = Recorder()
    run.is_finished = True

    run.stop(StopReason.SHUTDOWN, kill_at=5.0)
    run.kill()

    assert code.heard == []
    assert run.stop_reason is None
