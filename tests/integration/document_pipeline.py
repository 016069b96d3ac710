"""The document pipeline that the tests of WorkflowExecutor run."""

from collections.abc import Callable
from typing import Any

from runnel import RetryPolicy, StepContext, WorkflowDAG, WorkflowExecutor
from runnel.app.live_execution import WorkflowResult
from runnel.core.states import NodeState

AT_ONCE = RetryPolicy(initial_delay=0.0, jitter=False)
COMPLETED, FAILED, SKIPPED = NodeState.COMPLETED, NodeState.FAILED, NodeState.SKIPPED

Function = Callable[[StepContext], Any]


def extract(ctx: StepContext) -> dict[str, Any]:
    return {"doc_id": ctx["doc_id"], "total": 12}


async def save(ctx: StepContext) -> str:
    return f"saved {ctx['step_outputs']['extract']['doc_id']}"


def fail(ctx: StepContext) -> None:
    raise ConnectionError(f"no way to store {ctx['doc_id']}")


def review(ctx: StepContext) -> list[str]:
    return sorted(ctx["step_outputs"])


def document(
    *, metrics_if: Callable[[StepContext], Any] | None = None, **changed: Function
) -> WorkflowDAG:
    functions: dict[str, Function] = {"extract": extract, "create_review": review, **changed}
    dag = WorkflowDAG("document")

    def add(id_: str, *parents: str, condition: Function | None = None) -> None:
        function = functions.get(id_, save)
        dag.add_step(id_, function, parents, condition, max_retries=1)

    add("extract")
    add("save_parquet", "extract")
    add("save_json", "extract")
    add("record_metrics", "extract", condition=metrics_if)
    add("create_review", "save_parquet", "save_json")
    return dag


async def run_document(dag: WorkflowDAG) -> WorkflowResult:
    return await WorkflowExecutor(retry=AT_ONCE).execute(dag, {"doc_id": 7})


def statuses(result: WorkflowResult) -> dict[str, NodeState]:
    return {step.id: step.status for step in result.steps.values()}
