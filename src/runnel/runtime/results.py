"""What an execution of a WorkflowDAG came to: per step, and in total."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runnel.core.execution import Execution, NodeRun
from runnel.core.run_when import SkipReason
from runnel.core.states import ExecutionState, NodeState
from runnel.runtime.live import LiveExecution


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """`duration` is in seconds, from the start of the first attempt to the end of the last."""

    id: str
    status: NodeState
    output: Any = None
    error: str | None = None
    reason: str | None = None
    """Why it was skipped or cancelled."""
    traceback: str | None = None
    duration: float = 0.0
    retries: int = 0
    started_at: float | None = None
    finished_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowResult:
    """`status` is FAILED as soon as one step has failed; `total_duration` is in seconds."""

    execution_id: str
    workflow: str
    status: ExecutionState
    steps: Mapping[str, StepResult]
    total_duration: float
    error: str | None = None

    @property
    def outputs(self) -> dict[str, Any]:
        """The output of each completed step."""
        done = NodeState.COMPLETED
        return {step.id: step.output for step in self.steps.values() if step.status is done}

    @property
    def is_successful(self) -> bool:
        """No step failed, and nothing was cancelled; steps may have been skipped."""
        return self.status is ExecutionState.COMPLETED

    @property
    def completed(self) -> int:
        return self._count(NodeState.COMPLETED)

    @property
    def failed(self) -> int:
        return self._count(NodeState.FAILED)

    @property
    def skipped(self) -> int:
        return self._count(NodeState.SKIPPED)

    @property
    def cancelled(self) -> int:
        return self._count(NodeState.CANCELLED)

    completed_count = completed
    failed_count = failed
    skipped_count = skipped
    cancelled_count = cancelled

    def _count(self, status: NodeState) -> int:
        return sum(step.status is status for step in self.steps.values())


def result_of(execution: Execution, live: LiveExecution) -> WorkflowResult:
    """Of a final execution."""
    steps: dict[str, StepResult] = {
        compiled.node.id: _step_result(compiled.node.id, execution.nodes[compiled.index], live)
        for compiled in execution.graph.nodes
    }
    return WorkflowResult(
        execution_id=execution.id,
        workflow=execution.graph.workflow.name,
        status=execution.state,
        steps=steps,
        total_duration=_seconds(execution.started_at, execution.finished_at),
        error=None if execution.error is None else str(execution.error),
    )


def _step_result(step_id: str, run: NodeRun, live: LiveExecution) -> StepResult:
    is_failed = run.state is NodeState.FAILED
    started_at = live.started_at.get(step_id)
    finished_at = run.finished_at
    return StepResult(
        id=step_id,
        status=run.state,
        output=live.outputs.get(step_id) if run.state is NodeState.COMPLETED else None,
        error=_error(run),
        reason=run.reason or None,
        traceback=run.error.traceback if is_failed and run.error else None,
        duration=_seconds(started_at, finished_at),
        # The failure that ended the step was not retried.
        retries=max(0, run.failures - is_failed),
        started_at=started_at,
        finished_at=finished_at,
    )


def _seconds(started_at: float | None, finished_at: float | None) -> float:
    if started_at is None or finished_at is None:
        return 0.0
    return max(0.0, finished_at - started_at)


def _error(run: NodeRun) -> str | None:
    if run.state is NodeState.FAILED:
        return str(run.error)
    return run.reason if run.skip is SkipReason.DEPENDENCY_FAILED else None
