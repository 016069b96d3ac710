"""An execution of a WorkflowDAG in this process: its functions, context and outputs.

The engine stores only the type name of each result. The results themselves stay in this process as
Python objects, and steps get them by reference.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import iscoroutine
from typing import Any

import msgspec

from runnel.app.step_cache import CachedResult, StepResultCache, compute_step_key, get_from_thread
from runnel.authoring.builder import Step
from runnel.authoring.context import Context, StepContext, StepOutputs
from runnel.authoring.signatures import compile_signature
from runnel.core import events as e
from runnel.core.evolve import FROM_CACHE
from runnel.core.execution import Execution, NodeRun
from runnel.core.run_when import SkipReason
from runnel.core.states import ExecutionState, NodeState
from runnel.core.values import Json
from runnel.engine.worker.outputs import encode_result
from runnel.errors import ConditionError, Skip


class LiveExecution:
    """The state of a running execution that the engine does not store.

    `finished` is set when the execution is final, `idle` while no async step runs. With
    `is_durable`, results are encoded as JSON and decoded again, by the annotations of the
    functions; otherwise they are the objects that the functions returned. `cache` keeps the results
    of steps that declare a StepCache.
    """

    def __init__(
        self,
        steps: Mapping[str, Step],
        context: Mapping[str, Any],
        *,
        is_durable: bool,
        cache: StepResultCache,
    ) -> None:
        self.steps = steps
        self.outputs: dict[str, Any] = {}
        self.started_at: dict[str, float] = {}
        self.finished = asyncio.Event()
        self.idle = asyncio.Event()
        self.idle.set()
        self._parents = {step.id: step.depends_on for step in steps.values()}
        self._context = context
        self._is_durable = is_durable
        self._cache = cache
        self._loop = asyncio.get_running_loop()
        self._running = 0
        self._admitted: set[str] = set()
        self._attempts: dict[str, int] = {}
        # A function that has timed out in its thread may return after the next attempt has. So
        # results are kept by attempt until the engine has accepted one.
        self._results_by_attempt: dict[str, dict[int, Any]] = {}

    # -- called by the worker -------------------------------------------------------------------

    async def run(self, task: Context) -> Any:
        """Runs an async step on the event loop."""
        with self._count_running():
            context = self._prepare_context(task)
            step = self.steps[task.node_id]
            key = compute_step_key(step, context)
            if key is not None and (cached := await self._cache.get(key)) is not None:
                return self._keep_cached(task, cached)
            result = await step.fn(context)
            return await self._keep_and_cache(task, key, result)

    def run_in_thread(self, task: Context) -> Any:
        """Runs a sync step in a thread; a coroutine that it returns runs on the event loop."""
        context = self._prepare_context(task)
        step = self.steps[task.node_id]
        key = compute_step_key(step, context)
        if key is not None:
            cached = get_from_thread(self._cache, key, loop=self._loop)
            if cached is not None:
                return self._keep_cached(task, cached)
        result = step.fn(context)
        return (
            self._finish_on_loop(task, key, result)
            if iscoroutine(result) or (key is not None and not task.cancelled)
            else self._keep_result(task, result)
        )

    async def _finish_on_loop(self, task: Context, key: str | None, result: Any) -> Any:
        with self._count_running():
            if iscoroutine(result):
                result = await result
            return await self._keep_and_cache(task, key, result)

    @contextmanager
    def _count_running(self) -> Iterator[None]:
        self._running += 1
        self.idle.clear()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self.idle.set()

    def _prepare_context(self, task: Context) -> StepContext:
        """Raises Skip if the condition is false; a retry does not evaluate it again."""
        step = self.steps[task.node_id]
        for parent in step.depends_on:
            # The engine may start this step before it publishes the parent's NodeCompleted.
            if parent not in self.outputs and parent in task.inputs:
                self._accept_result(parent)
        outputs = StepOutputs(step.id, self._parents, self.outputs)
        context = StepContext(self._context, outputs, task)
        if step.condition is not None and step.id not in self._admitted:
            if not _is_condition_true(step, context):
                raise Skip(SkipReason.CONDITION_FALSE.value)
            self._admitted.add(step.id)
        return context

    def _keep_result(self, task: Context, result: Any) -> Json:
        """Keeps the result of an attempt, and returns the value that the engine stores."""
        stored: Json = {"type": type(result).__qualname__}
        if self._is_durable:
            signature = compile_signature(self.steps[task.node_id].fn)
            data = encode_result(result, signature)
            stored = result = msgspec.json.decode(data)
            if signature is not None and signature.result is not None:
                result = signature.result.decode_json(data, "result")
        if not task.cancelled:
            self._results_by_attempt.setdefault(task.node_id, {})[task.attempt] = result
        return stored

    def _keep_cached(self, task: Context, cached: CachedResult) -> Json:
        task.is_cached = True
        return self._keep_result(task, cached.result)

    async def _keep_and_cache(self, task: Context, key: str | None, result: Any) -> Json:
        stored = self._keep_result(task, result)
        cache = self.steps[task.node_id].cache
        if key is not None and cache is not None and not task.cancelled:
            await self._cache.put(key, result, ttl_s=cache.ttl_s)
        return stored

    # -- called for committed events ------------------------------------------------------------

    def record_start(self, step_id: str, at: float) -> None:
        self.started_at.setdefault(step_id, at)

    def apply_events(self, events: Sequence[e.AnyEvent]) -> None:
        for event in events:
            match event:
                case e.NodeQueued(node=node, attempt=attempt):
                    self._attempts[node] = attempt
                case e.NodeCompleted(node=node):
                    self._accept_result(node)
                case e.NodeFailed(node=node) | e.NodeSkipped(node=node):
                    self._results_by_attempt.pop(node, None)
                case _:
                    continue

    def catch_up(self, execution: Execution) -> None:
        """Accepts results whose events were not published, because a commit's answer was lost."""
        for compiled, run in zip(execution.graph.nodes, execution.nodes, strict=True):
            step_id = compiled.node.id
            if run.state is NodeState.COMPLETED and step_id not in self.outputs:
                self._attempts[step_id] = run.attempt
                self._accept_result(step_id)

    def _accept_result(self, step_id: str) -> None:
        """Makes the result of the current attempt the output; the core refuses other attempts."""
        kept = self._results_by_attempt.pop(step_id, {})
        attempt = self._attempts.get(step_id)
        if attempt in kept:
            self.outputs[step_id] = kept[attempt]


def _is_condition_true(step: Step, context: StepContext) -> bool:
    if step.condition is None:
        return True
    try:
        answer = step.condition(context)
        if iscoroutine(answer):
            answer.close()
            raise ConditionError("its condition returned a coroutine, expected true or false")
        return bool(answer)
    except ConditionError:
        raise
    except Exception as error:
        raise ConditionError(f"its condition raised {type(error).__name__}: {error}") from error


# The result of an execution of a WorkflowDAG: per step, and in total.


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """The result of one step.

    `duration` is in seconds, from the start of the first attempt to the end of the last.
    """

    id: str
    status: NodeState
    output: Any = None
    error: str | None = None
    reason: str | None = None
    """Why the step was skipped or cancelled, or `from the cache`."""
    traceback: str | None = None
    duration: float = 0.0
    retries: int = 0
    is_cached: bool = False
    """Whether the output is an earlier result from the step's cache."""
    started_at: float | None = None
    finished_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowResult:
    """The result of an execution.

    `status` is FAILED if any step has failed. `total_duration` is in seconds.
    """

    execution_id: str
    workflow: str
    status: ExecutionState
    steps: Mapping[str, StepResult]
    total_duration: float
    error: str | None = None

    @property
    def outputs(self) -> dict[str, Any]:
        """Returns the outputs of completed steps by id."""
        done = NodeState.COMPLETED
        return {step.id: step.output for step in self.steps.values() if step.status is done}

    @property
    def is_successful(self) -> bool:
        """Returns whether no step failed or was cancelled; steps may have been skipped."""
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


def build_workflow_result(execution: Execution, live: LiveExecution) -> WorkflowResult:
    """Builds the result of a final execution."""
    steps: dict[str, StepResult] = {
        compiled.node.id: _build_step_result(
            compiled.node.id, execution.nodes[compiled.index], live
        )
        for compiled in execution.graph.nodes
    }
    return WorkflowResult(
        execution_id=execution.id,
        workflow=execution.graph.workflow.name,
        status=execution.state,
        steps=steps,
        total_duration=_compute_duration(execution.started_at, execution.finished_at),
        error=None if execution.error is None else str(execution.error),
    )


def _build_step_result(step_id: str, run: NodeRun, live: LiveExecution) -> StepResult:
    is_failed = run.state is NodeState.FAILED
    started_at = live.started_at.get(step_id)
    finished_at = run.finished_at
    return StepResult(
        id=step_id,
        status=run.state,
        output=live.outputs.get(step_id) if run.state is NodeState.COMPLETED else None,
        error=_describe_error(run),
        reason=run.reason or None,
        traceback=run.error.traceback if is_failed and run.error else None,
        duration=_compute_duration(started_at, finished_at),
        # The failure that ended the step was not retried.
        retries=max(0, run.failures - is_failed),
        is_cached=run.state is NodeState.COMPLETED and run.reason == FROM_CACHE,
        started_at=started_at,
        finished_at=finished_at,
    )


def _compute_duration(started_at: float | None, finished_at: float | None) -> float:
    if started_at is None or finished_at is None:
        return 0.0
    return max(0.0, finished_at - started_at)


def _describe_error(run: NodeRun) -> str | None:
    if run.state is NodeState.FAILED:
        return str(run.error)
    return run.reason if run.skip is SkipReason.DEPENDENCY_FAILED else None
