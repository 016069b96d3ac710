"""A document pipeline in one process: parallel steps, a retry, a skipped step and a join.

Its steps are plain functions, so the execution is not stored. documents.py is durable.

    $ python examples/document_pipeline.py
    layer 0: extract
    layer 1: save_parquet, save_json, record_metrics, ask_a_person
    layer 2: create_review
    …
    COMPLETED  save_json       … s  1 retries  invoice-7.json
    …
    SKIPPED    ask_a_person    … s  0 retries  condition is false
    COMPLETED  create_review   … s  0 retries  ['invoice-7.parquet', 'invoice-7.json']
    COMPLETED in … s: 5 completed, 0 failed, 1 skipped
"""

import asyncio
from typing import Any

from runnel import RetryPolicy, StepContext, TokenBucketRateLimiter, WorkflowDAG, WorkflowExecutor

CONFIDENCE_MIN = 0.8


async def extract(ctx: StepContext) -> dict[str, Any]:
    """A real step would call a language model here."""
    await asyncio.sleep(0.1)
    return {"id": ctx["doc_id"], "items": [3, 4, 5], "confidence": 0.93}


def save_parquet(ctx: StepContext) -> str:
    return f"{ctx['step_outputs']['extract']['id']}.parquet"


async def save_json(ctx: StepContext) -> str:
    if ctx.task.attempt == 1:
        raise ConnectionError("the store is not reachable")
    return f"{ctx['step_outputs']['extract']['id']}.json"


def record_metrics(ctx: StepContext) -> int:
    return sum(ctx["step_outputs"]["extract"]["items"])


def ask_a_person(ctx: StepContext) -> str:
    return f"please check {ctx['doc_id']}"


def create_review(ctx: StepContext) -> list[str]:
    outputs = ctx["step_outputs"]
    return [outputs["save_parquet"], outputs["save_json"]]


def has_low_confidence(ctx: StepContext) -> bool:
    return bool(ctx["step_outputs"]["extract"]["confidence"] < CONFIDENCE_MIN)


def build() -> WorkflowDAG:
    dag = WorkflowDAG("document")
    dag.add_step("extract", extract, resource_tag="model")
    dag.add_step("save_parquet", save_parquet, depends_on=["extract"])
    dag.add_step("save_json", save_json, depends_on=["extract"])
    dag.add_step("record_metrics", record_metrics, depends_on=["extract"])
    dag.add_step("ask_a_person", ask_a_person, depends_on=["extract"], condition=has_low_confidence)
    dag.add_step("create_review", create_review, depends_on=["save_parquet", "save_json"])
    return dag


def main() -> None:
    dag = build()
    for number, layer in enumerate(dag.get_execution_layers()):
        print(f"layer {number}: {', '.join(layer)}")
    executor = WorkflowExecutor(
        max_concurrency=4,
        rate_limiters={"model": TokenBucketRateLimiter(rate_per_second=10, burst=1)},
        retry=RetryPolicy(initial_delay=0.2),
    )
    result = executor.execute_sync(dag, {"doc_id": "invoice-7"})
    for step in result.steps.values():
        shown = step.output if step.error is None and step.reason is None else step.reason
        print(
            f"{step.status:<10} {step.id:<15} {step.duration:6.3f} s  "
            f"{step.retries} retries  {shown}"
        )
    print(
        f"{result.status} in {result.total_duration:.3f} s: {result.completed} completed, "
        f"{result.failed} failed, {result.skipped} skipped"
    )


if __name__ == "__main__":
    main()
