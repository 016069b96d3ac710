"""Bulk cancel and rerun by a filter, in steps that a caller may repeat."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import structs

from runnel.app.embedded_engine import EmbeddedEngine
from runnel.client.reruns import RerunSpec
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.core.workflow import Workflow
from runnel.errors import InputError
from runnel.ports.archive import ExecutionFilter
from runnel.views.page import BulkStep
from tests.core_driver import make_node, make_workflow
from tests.engines import WorkHandler, flush_redis, open_engine, wait_for_end

S = ExecutionState
FLOW = make_workflow(make_node("a"), make_node("b", "a"))
OTHER = Workflow(name="other", nodes=(make_node("a"),))
ALL = ExecutionFilter()


@pytest.fixture
def work() -> WorkHandler:
    return WorkHandler()


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def engine(
    request: pytest.FixtureRequest, tmp_path: Path, work: WorkHandler
) -> AsyncIterator[EmbeddedEngine]:
    url = flush_redis(request) if request.param == "redis" else None
    async with open_engine(request.param, tmp_path, work, redis_url=url) as opened:
        yield opened


async def cancel(engine: EmbeddedEngine, filter_: ExecutionFilter, *, limit: int = 500) -> BulkStep:
    return await engine.client.many.cancel_step(filter_, reason="all of them", limit=limit)


async def rerun(
    engine: EmbeddedEngine, filter_: ExecutionFilter, kind: RerunSpec | None = None, **how: object
) -> BulkStep:
    return await engine.client.many.rerun_step(filter_, kind, **how)  # type: ignore[arg-type]  # options of the test


async def run_failing(engine: EmbeddedEngine, work: WorkHandler, count: int) -> list[ExecutionId]:
    """Runs failing executions of FLOW and returns their ids, the oldest first."""
    work.failures["b"] = [ValueError("bad") for _ in range(count)]
    ids = []
    for number in range(count):
        id_ = await engine.client.submit(FLOW, labels={"n": str(number), "half": str(number % 2)})
        await wait_for_end(engine, id_)
        ids.append(id_)
    return ids


async def test_a_bulk_cancel_cancels_all_matching_executions_in_steps(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    gate = work.gate("a")
    ids = [await engine.client.submit(FLOW, labels={"team": "red"}) for _ in range(5)]
    spared = await engine.client.submit(OTHER, labels={"team": "blue"})
    red = ExecutionFilter(labels={"team": "red"})

    first = await cancel(engine, red, limit=3)
    second = await cancel(engine, structs.replace(red, after=first.next), limit=3)
    views = [await wait_for_end(engine, execution_id) for execution_id in ids]
    again = await cancel(engine, red)
    gate.set()

    assert (len(first.ids), len(second.ids), second.next) == (3, 2, None)
    assert {*first.ids, *second.ids} == set(ids)
    assert {view.status for view in views} == {"CANCELLED"}
    assert "all of them" in str(views[0].error)
    assert (list(again.ids), again.next) == ([], None)
    assert (await wait_for_end(engine, spared)).status == "COMPLETED"


async def test_repeated_bulk_reruns_rerun_each_failed_execution_once(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    ids = await run_failing(engine, work, 4)

    first = await rerun(engine, ALL, limit=3)
    at_once = await rerun(engine, ALL, limit=3)
    views = [await wait_for_end(engine, execution_id) for execution_id in first.ids]
    repeated = await rerun(engine, ALL, limit=3)
    remaining = await rerun(engine, structs.replace(ALL, after=first.next), limit=3)
    views += [await wait_for_end(engine, execution_id) for execution_id in remaining.ids]
    after_all = await rerun(engine, ALL)

    assert (len(first.ids), first.known, first.failed) == (3, 0, 0)
    assert {*at_once.ids} <= {*first.ids}
    assert (list(repeated.ids), repeated.known, repeated.next) == ([], 3, first.next)
    assert (len(remaining.ids), remaining.next) == (1, None)
    assert {view.rerun_of for view in views} == set(ids)
    assert {view.status for view in views} == {"COMPLETED"}
    assert work.calls.count("a") == 4
    assert (list(after_all.ids), after_all.known) == ([], 4)


async def test_a_rerun_that_fails_again_is_rerun_by_the_next_call(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    [former] = await run_failing(engine, work, 1)
    work.failures["b"] = [ValueError("still bad")]
    [first] = (await rerun(engine, ALL)).ids
    await wait_for_end(engine, first)

    second = await rerun(engine, ALL)
    view = await wait_for_end(engine, second.ids[0])

    assert (second.known, len(second.ids)) == (1, 1)
    assert (view.rerun_of, view.status) == (first, "COMPLETED")
    assert first != former


async def test_another_rerun_spec_or_another_key_starts_another_rerun(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    await run_failing(engine, work, 2)
    first_half = ExecutionFilter(labels={"half": "1"})

    new = []
    for kind, key in ((None, ""), (RerunSpec(is_whole=True), ""), (None, "again"), (None, "again")):
        step = await rerun(engine, first_half, kind, key=key)
        new.append(len(step.ids))
        for id_ in step.ids:
            assert (await wait_for_end(engine, id_)).status == "COMPLETED"

    assert new == [1, 1, 1, 0]


async def test_an_execution_that_can_not_be_rerun_is_reported_and_the_others_rerun(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    work.failures["a"] = [ValueError("bad")]
    other = await engine.client.submit(OTHER)
    await wait_for_end(engine, other)
    await run_failing(engine, work, 2)

    step = await rerun(engine, ALL, RerunSpec(again=["b"]))

    assert (len(step.ids), step.failed) == (2, 1)
    assert step.failures[0].execution_id == other
    assert "has no node 'b'" in step.failures[0].error
    for execution_id in step.ids:
        await wait_for_end(engine, execution_id)


async def test_contradictory_filters_are_refused(engine: EmbeddedEngine) -> None:
    with pytest.raises(InputError, match="final executions can't be cancelled"):
        await cancel(engine, ExecutionFilter(states=(S.FAILED,)))
    with pytest.raises(InputError, match="only final executions can be rerun"):
        await rerun(engine, ExecutionFilter(states=(S.FAILED, S.RUNNING)))
    with pytest.raises(InputError, match="rerun their roots"):
        await rerun(engine, ExecutionFilter(with_children=True))
