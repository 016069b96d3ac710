"""Fairness of a worker's slots, on SQLite and Redis: the waits that a backlog causes are bounded.

The bounds count the tasks that start meanwhile, because times depend on the machine.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from runnel.app.embedded_engine import EmbeddedEngine
from runnel.authoring.context import Context
from runnel.core.ids import ExecutionId
from runnel.core.retry import RetryPolicy
from runnel.core.values import Json
from runnel.core.workflow import RateLimit, Workflow
from runnel.engine.clock import RealClock
from tests.core_driver import make_node, make_workflow
from tests.engines import WorkHandler, flush_redis, open_engine, wait_for_end
from tests.waiting import wait_for_value, wait_until

SLOTS = 4
DOCUMENTS = 40
ITEMS = 200
LIMITS = {"service": RateLimit(rate_per_second=40, burst=1)}
ONCE = RetryPolicy(max_retries=0)


class PacedWork(WorkHandler):
    """The handler `work`, whose code takes 10 ms."""

    async def __call__(self, config: Json, ctx: Context) -> Json:
        output = await super().__call__(config, ctx)
        await RealClock().sleep(0.01)
        return output


@pytest.fixture
def work() -> WorkHandler:
    return PacedWork()


@pytest.fixture(params=["sqlite", "redis"])
async def engine(
    request: pytest.FixtureRequest, tmp_path: Path, work: WorkHandler
) -> AsyncIterator[EmbeddedEngine]:
    url = flush_redis(request) if request.param == "redis" else None
    async with open_engine(
        request.param, tmp_path, work, concurrency=SLOTS, redis_url=url
    ) as engine:
        yield engine


def make_named(name: str, workflow: Workflow) -> Workflow:
    return Workflow(name=name, nodes=workflow.nodes, rate_limits=workflow.rate_limits)


async def until_started(work: WorkHandler, node_id: str, count: int = 1) -> None:
    await wait_until(lambda: work.calls.count(node_id) >= count, deadline_s=30)


def count_before(calls: list[str], counted: str, first: str) -> int:
    """Returns how many tasks of the node `counted` started before the first of the node `first`."""
    return calls[: calls.index(first)].count(counted)


async def test_the_first_documents_are_saved_while_others_wait_for_a_rate_token(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    extract = make_node("extract", resource_tag="service", retry=ONCE)
    pipeline = make_workflow(extract, make_node("save", "extract"), rate_limits=LIMITS)

    ids = [await engine.client.submit(pipeline) for _ in range(DOCUMENTS)]
    await asyncio.gather(*(wait_for_end(engine, execution_id) for execution_id in ids))

    unsaved = [
        work.calls[:at].count("extract") - work.calls[:at].count("save")
        for at in range(len(work.calls))
    ]
    assert work.calls.count("save") == DOCUMENTS
    assert count_before(work.calls, "extract", "save") <= 2 * SLOTS
    assert max(unsaved) <= 3 * SLOTS


async def test_a_rate_limited_backlog_does_not_delay_another_queue(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    limited = make_node("limited", resource_tag="service", queue="limited")
    backlog = make_named("backlog", make_workflow(limited, rate_limits=LIMITS))
    for _ in range(DOCUMENTS):
        await engine.client.submit(backlog)
    await until_started(work, "limited", 3)

    await engine.client.submit(make_named("small", make_workflow(make_node("small"))))
    started = len(work.calls)
    await until_started(work, "small")

    assert count_before(work.calls, "limited", "small") - started <= 2 * SLOTS


async def test_a_large_map_does_not_delay_another_workflow_of_its_queue(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    large = make_named("large", make_workflow(make_node("each", for_each="input.items")))
    await engine.client.submit(large, {"items": list(range(ITEMS))})
    await until_started(work, "each", SLOTS)

    await engine.client.submit(make_named("small", make_workflow(make_node("small"))))
    started = len(work.calls)
    await until_started(work, "small")

    assert count_before(work.calls, "each", "small") - started <= ITEMS / 4


async def hold_all_slots(engine: EmbeddedEngine, work: WorkHandler) -> Callable[[], None]:
    """Occupies every slot; returns a function that frees the slots."""
    gate = work.gate("hold")
    holder = make_named("holder", make_workflow(make_node("hold")))
    for _ in range(SLOTS):
        await engine.client.submit(holder)
    await until_started(work, "hold", SLOTS)
    return gate.set


async def until_queued(engine: EmbeddedEngine, count: int) -> None:
    async def poll() -> bool | None:
        depths = [record.depth for record in await engine.backend.tasks.queues()]
        return sum(depths) == count or None

    await wait_for_value(poll, every_s=0.01, deadline_s=30)


async def test_a_higher_priority_starts_before_executions_that_wait_longer(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    free_slots = await hold_all_slots(engine, work)
    usual = make_named("usual", make_workflow(make_node("usual")))
    for _ in range(3 * SLOTS):
        await engine.client.submit(usual)
    urgent = make_named("usual", make_workflow(make_node("urgent")))
    urgent_id = await engine.client.submit(urgent, priority=10)
    await until_queued(engine, 3 * SLOTS + 1)

    free_slots()
    view = await wait_for_end(engine, urgent_id)

    assert view.priority == 10
    assert count_before(work.calls, "usual", "urgent") < SLOTS


async def test_a_rerun_and_a_child_have_the_priority_of_their_execution(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    child = make_named("child", make_workflow(make_node("inner")))
    call = make_node("call", handler="workflow", child=child)
    parent = Workflow(name="parent", nodes=(call,), priority=7)

    first = await engine.client.submit(parent)
    given = await engine.client.submit(parent, priority=-3)
    views = [await wait_for_end(engine, execution_id) for execution_id in (first, given)]
    rerun = await wait_for_end(engine, await engine.client.rerun(given))
    children = [
        await engine.client.get(ExecutionId(f"{execution_id}.call.1"))
        for execution_id in (first, given)
    ]

    assert [view.priority for view in views] == [7, -3]
    assert rerun.priority == -3
    assert [view.priority for view in children] == [7, -3]
