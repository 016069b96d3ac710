"""Checks the types of the clients: mypy checks this file like all others.

mypy rejects an unneeded ignore. So each ignore here proves that mypy finds that mistake.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import assert_type

from runnel import Client, SyncClient, WorkflowDAG, task, workflow
from runnel.core.ids import ExecutionId
from runnel.ports.archive import ExecutionFilter
from runnel.views.dead_letter import DeadLetterView
from runnel.views.execution import ExecutionSummary, ExecutionView, HistoryEvent
from runnel.views.operations import QueueView, WorkerView
from runnel.views.page import BulkStep
from runnel.views.token import TokenView
from runnel.views.trigger import ScheduleView, WebhookView
from runnel.views.workflow import WorkflowDocument


@task
def add(a: int, b: int) -> int:
    return a + b


@workflow
def total(a: int, b: int = 1) -> int:
    return add(a, b)


async def asynchronous() -> None:
    async with Client("http://localhost:8080", token="rnl_x_y", timeout_s=5, retries=0) as client:
        assert_type(await client.submit("report", {"year": 2026}, version=2), ExecutionId)
        assert_type(await client.run(total, {"a": 1}, timeout_s=10), ExecutionView)
        assert_type(await client.run(Path("flow.yaml")), ExecutionView)
        assert_type(await client.submit(WorkflowDAG("w"), labels={"team": "red"}), ExecutionId)
        assert_type(await client.history("01x"), list[HistoryEvent])
        assert_type(client.follow("01x"), AsyncIterator[HistoryEvent])
        assert_type((await client.node("01x", "parse")).attempts[0].worker, str)
        async for summary in client.executions(states=["failed"], workflow="report"):
            assert_type(summary, ExecutionSummary)
        assert_type(await client.schedules.pause("nightly"), ScheduleView)
        assert_type(await client.webhooks.get("report"), WebhookView)
        assert_type(await client.operations.queues(), list[QueueView])
        async for letter in client.dead_letters.list(queue="python"):
            assert_type(letter, DeadLetterView)
        async for step in client.many.cancel(ExecutionFilter(workflow="report")):
            assert_type(step, BulkStep)
        await client.submit(7)  # type: ignore[arg-type]
        await client.wait("01x", timeout="soon")  # type: ignore[call-arg]


def synchronous() -> None:
    with SyncClient() as client:
        assert_type(client.submit("report", {"year": 2026}, version=2), ExecutionId)
        assert_type(client.run(total, {"a": 1}, timeout_s=10), ExecutionView)
        assert_type(client.executions(workflow="report"), Iterator[ExecutionSummary])
        assert_type(client.follow("01x"), Iterator[HistoryEvent])
        assert_type(client.signal("01x", "approve", {"by": "ada"}), None)
        assert_type(client.schedules.pause("nightly"), ScheduleView)
        assert_type(client.operations.workers(), list[WorkerView])
        assert_type(client.library.get("report"), WorkflowDocument)
        assert_type(client.tokens.list(), Sequence[TokenView])
        assert_type(client.dead_letters.list(queue="python"), Iterator[DeadLetterView])
        assert_type(client.many.rerun(ExecutionFilter(), key="again"), Iterator[BulkStep])
        client.submit(7)  # type: ignore[arg-type]
        client.wait("01x", timeout="soon")  # type: ignore[call-arg]
