"""WorkflowExecutor runs the document pipeline: failures, conditions, retries and objects."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from runnel import RetryPolicy, Skip, StepContext, WorkflowDAG, WorkflowExecutor
from runnel.core.states import ExecutionState, NodeState
from runnel.testing.clock import FakeClock
from tests.integration.document_pipeline import (
    AT_ONCE,
    COMPLETED,
    FAILED,
    SKIPPED,
    document,
    fail,
    run_document,
    save,
    statuses,
)


def not_awaited(ctx: StepContext) -> Any:
    """Returns a coroutine, like a lambda around an async function."""
    return save(ctx)


async def test_the_document_pipeline_completes_and_each_step_sees_its_ancestors() -> None:
    result = await run_document(document())

    assert result.status is ExecutionState.COMPLETED
    assert result.is_successful
    assert (result.completed, result.failed, result.skipped, result.cancelled) == (5, 0, 0, 0)
    assert (result.completed_count, result.failed_count, result.skipped_count) == (5, 0, 0)
    assert result.outputs["extract"] == {"doc_id": 7, "total": 12}
    assert result.outputs["save_json"] == "saved 7"
    assert result.outputs["create_review"] == ["extract", "save_json", "save_parquet"]
    assert all(0 <= step.duration <= result.total_duration for step in result.steps.values())


async def test_when_save_json_fails_only_the_review_is_skipped() -> None:
    result = await run_document(document(save_json=fail))

    assert statuses(result) == {
        "extract": COMPLETED,
        "save_parquet": COMPLETED,
        "save_json": FAILED,
        "record_metrics": COMPLETED,
        "create_review": SKIPPED,
    }
    failed, skipped = result.steps["save_json"], result.steps["create_review"]
    assert result.status is ExecutionState.FAILED
    assert failed.error == "ConnectionError: no way to store 7"
    assert (failed.retries, failed.output) == (1, None)
    assert failed.traceback is not None
    assert "in fail" in failed.traceback
    assert skipped.error == "dependency failed"
    assert "save_json" not in result.outputs


async def test_when_extract_fails_all_its_descendants_are_skipped() -> None:
    result = await run_document(document(extract=fail))

    assert (result.completed, result.failed, result.skipped) == (0, 1, 4)
    assert {step.error for step in result.steps.values()} == {
        "ConnectionError: no way to store 7",
        "dependency failed",
    }


async def test_when_record_metrics_fails_all_other_steps_complete() -> None:
    result = await run_document(document(record_metrics=fail))

    assert (result.completed, result.failed, result.skipped) == (4, 1, 0)
    assert result.outputs["create_review"] == ["extract", "save_json", "save_parquet"]


async def test_a_false_condition_skips_its_step_without_a_failure() -> None:
    without_metrics = document(metrics_if=lambda ctx: ctx["step_outputs"].get("extract") is None)

    result = await run_document(without_metrics)

    metrics = result.steps["record_metrics"]
    assert result.status is ExecutionState.COMPLETED
    assert (metrics.status, metrics.reason, metrics.error) == (SKIPPED, "condition is false", None)


async def test_a_condition_is_not_evaluated_again_for_a_retry() -> None:
    evaluations: list[int] = []
    attempts: list[int] = []

    def evaluate(ctx: StepContext) -> bool:
        evaluations.append(ctx.task.attempt)
        return True

    def fail_once(ctx: StepContext) -> None:
        attempts.append(ctx.task.attempt)
        if len(attempts) == 1:
            raise ConnectionError

    dag = WorkflowDAG().add_step("a", fail_once, condition=evaluate)
    result = await WorkflowExecutor(retry=AT_ONCE).execute(dag)

    assert result.is_successful
    assert (evaluations, attempts) == ([1], [1, 2])


CONDITIONS: list[tuple[Callable[[StepContext], Any], str]] = [
    (lambda ctx: ctx["nothing"], "ConditionError: its condition raised KeyError: 'nothing'"),
    (
        not_awaited,
        "ConditionError: its condition returned a coroutine, expected true or fals",
    ),
]


@pytest.mark.parametrize(("condition", "expected"), CONDITIONS)
async def test_a_condition_that_raises_fails_its_step_at_once(
    condition: Callable[[StepContext], Any], expected: str
) -> None:
    result = await run_document(document(metrics_if=condition))

    metrics = result.steps["record_metrics"]
    assert (metrics.status, metrics.retries) == (FAILED, 0)
    assert (metrics.error or "").startswith(expected)
    assert result.completed == 4


async def test_a_step_can_skip_itself() -> None:
    def nothing_to_do(ctx: StepContext) -> None:
        raise Skip(f"document {ctx['doc_id']} is empty")

    result = await run_document(document(record_metrics=nothing_to_do))

    assert result.steps["record_metrics"].reason == "document 7 is empty"
    assert (result.completed, result.skipped) == (4, 1)


async def test_fail_fast_ends_the_execution_at_the_first_failure() -> None:
    is_stopped = asyncio.Event()
    has_begun = asyncio.Event()

    async def for_ever(_ctx: StepContext) -> None:
        has_begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            is_stopped.set()

    async def wrong(_ctx: StepContext) -> None:
        await has_begun.wait()
        raise ValueError("wrong")

    dag = WorkflowDAG(on_failure="fail_fast").add_step("long", for_ever).add_step("bad", wrong)
    result = await WorkflowExecutor().execute(dag)

    assert statuses(result) == {"long": NodeState.CANCELLED, "bad": FAILED}
    assert is_stopped.is_set()


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_step_that_fails_twice_completes_with_its_third_attempt(is_async: bool) -> None:
    attempts: list[int] = []

    def flaky(ctx: StepContext) -> str:
        attempts.append(ctx.task.attempt)
        if len(attempts) < 3:
            raise ConnectionError("refused")
        return "done"

    async def flaky_async(ctx: StepContext) -> str:
        return flaky(ctx)

    dag = WorkflowDAG().add_step("a", flaky_async if is_async else flaky)
    result = await WorkflowExecutor(retry=AT_ONCE).execute(dag)

    assert (result.outputs, result.steps["a"].retries) == ({"a": "done"}, 2)
    assert attempts == [1, 2, 3]


async def test_a_step_fails_after_its_last_retry() -> None:
    result = await WorkflowExecutor(retry=AT_ONCE).execute(
        WorkflowDAG().add_step("a", fail, max_retries=2), {"doc_id": 1}
    )

    assert (result.steps["a"].status, result.steps["a"].retries) == (FAILED, 2)
    assert result.error == "NodeFailed: node 'a' failed: ConnectionError: no way to store 1"


async def test_a_programming_error_is_retried_only_if_the_policy_allows_it() -> None:
    def wrong(_ctx: StepContext) -> None:
        raise ValueError("wrong")

    dag = WorkflowDAG().add_step("a", wrong, retry=AT_ONCE)
    all_errors = RetryPolicy(initial_delay=0.0, jitter=False, retry_on=("Exception",))
    dag.add_step("b", wrong, retry=all_errors, max_retries=1)
    result = await WorkflowExecutor().execute(dag)

    assert [step.retries for step in result.steps.values()] == [0, 1]


async def test_a_step_is_retried_after_a_timeout() -> None:
    attempts: list[int] = []

    async def slow_at_first(ctx: StepContext) -> str:
        attempts.append(ctx.task.attempt)
        if len(attempts) == 1:
            await asyncio.Event().wait()
        return "in time"

    dag = WorkflowDAG().add_step("a", slow_at_first, timeout_seconds=0.05)
    result = await WorkflowExecutor(retry=AT_ONCE).execute(dag)

    assert (result.outputs, result.steps["a"].retries) == ({"a": "in time"}, 1)


async def test_a_late_result_of_a_timed_out_function_is_ignored() -> None:
    may_return, has_returned = threading.Event(), threading.Event()
    results: list[object] = [object(), object()]

    def hangs_at_first(ctx: StepContext) -> object:
        if ctx.task.attempt > 1:
            return results[1]
        may_return.wait(10)
        has_returned.set()
        return results[0]

    def below(ctx: StepContext) -> object:
        may_return.set()
        has_returned.wait(10)
        return ctx["step_outputs"]["a"]

    dag = WorkflowDAG().add_step("a", hangs_at_first, timeout_seconds=0.05)
    dag.add_step("b", below, depends_on=["a"])
    result = await WorkflowExecutor(retry=AT_ONCE).execute(dag)

    assert result.outputs["a"] is results[1]
    assert result.outputs["b"] is results[1]


async def test_any_object_is_passed_between_steps_by_reference() -> None:
    frame = {"lock": threading.Lock(), "rows": {1, 2}}

    async def take(ctx: StepContext) -> object:
        return ctx.step_outputs["a"]

    dag = WorkflowDAG().add_step("a", lambda _ctx: frame)
    dag.add_step("b", take, depends_on=["a"])
    dag.add_step("c", lambda ctx: (ctx["step_outputs"]["a"], ctx["table"]), depends_on=["b"])
    result = await WorkflowExecutor().execute(dag, {"table": frame})

    assert result.outputs["a"] is frame
    assert result.outputs["b"] is frame
    assert result.outputs["c"][0] is frame
    assert result.outputs["c"][1] is frame


async def test_a_lambda_around_an_async_function_is_awaited() -> None:
    result = await run_document(document(record_metrics=not_awaited))

    assert result.outputs["record_metrics"] == "saved 7"


async def test_a_step_changes_only_its_own_copy_of_the_context() -> None:
    def meddle(ctx: StepContext) -> None:
        ctx["doc_id"] = 0

    dag = WorkflowDAG().add_step("a", meddle)
    dag.add_step("b", lambda ctx: ctx["doc_id"], depends_on=["a"])
    result = await WorkflowExecutor().execute(dag, {"doc_id": 7})

    assert result.outputs["b"] == 7


async def test_the_delay_doubles_with_each_retry() -> None:
    clock = FakeClock()
    times: list[float] = []

    async def refuse(_ctx: StepContext) -> None:
        times.append(clock.monotonic())
        raise ConnectionError

    dag = WorkflowDAG().add_step("a", refuse, retry_delay=10.0)
    executor = WorkflowExecutor(retry=RetryPolicy(jitter=False), clock=clock)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(executor.execute(dag))
        await clock.advance(10 + 20 + 40 + 1)

    assert [round(at, 3) for at in times] == [0.0, 10.0, 30.0, 70.0]
    assert running.result().steps["a"].retries == 3
