"""Other code runs on the event loop while a large input or a large schema is checked."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from runnel.app.embedded_engine import EmbeddedEngine
from runnel.errors import InvalidInputError
from runnel.ports.archive import ExecutionFilter
from tests.api import open_api
from tests.core_driver import make_node, make_workflow
from tests.engines import WorkHandler, open_engine, wait_for_end
from tests.waiting import wait_until

NUMBERS = {"type": "array", "items": {"type": "integer", "exclusiveMinimum": -1}}
FLOW = make_workflow(
    make_node("a", config={"n": 1}), input={"type": "object", "properties": {"numbers": NUMBERS}}
)
# The check takes about 0.3 s of processor time.
LARGE = {"numbers": list(range(30_000))}
WRONG = {"numbers": [*range(30_000), -1]}
MANY_SCHEMAS = {"anyOf": [{"type": "string", "minLength": 1}] * 200}


@asynccontextmanager
async def measure_loop() -> AsyncIterator[list[float]]:
    """Collects the duration of each turn of the loop, in seconds."""
    turns: list[float] = []

    async def count_turns() -> None:
        began = time.perf_counter()
        while True:
            await asyncio.sleep(0)
            turns.append(time.perf_counter() - began)
            began += turns[-1]

    counting = asyncio.create_task(count_turns())
    try:
        yield turns
    finally:
        counting.cancel()


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[EmbeddedEngine]:
    async with open_engine("memory", tmp_path, WorkHandler()) as opened:
        yield opened


async def list_ids(engine: EmbeddedEngine) -> list[str]:
    found = await engine.client.list_executions(ExecutionFilter(limit=500))
    return [item.execution_id for item in found]


@pytest.mark.parametrize("is_many", [False, True])
async def test_other_code_runs_while_a_large_input_is_checked(
    engine: EmbeddedEngine, is_many: bool
) -> None:
    async with measure_loop() as turns:
        if is_many:
            (id_,) = await engine.client.submit_many(FLOW, [LARGE])
        else:
            id_ = await engine.client.submit(FLOW, LARGE)

    assert len(turns) >= 10  # one for each switch between threads, every 5 ms
    assert (await wait_for_end(engine, id_)).status == "COMPLETED"


async def test_other_code_runs_while_many_schemas_are_applied_to_a_small_input(
    engine: EmbeddedEngine,
) -> None:
    flow = make_workflow(
        make_node("a"), input={"properties": {"x": {"type": "array", "items": MANY_SCHEMAS}}}
    )
    value: Any = {"x": [1] * 50}

    async with measure_loop() as turns:
        with pytest.raises(InvalidInputError):
            await engine.client.submit(flow, value)

    assert len(turns) >= 10


async def test_a_wrong_large_input_stores_nothing(engine: EmbeddedEngine) -> None:
    with pytest.raises(InvalidInputError, match=r"numbers\[30000\]"):
        await engine.client.submit(FLOW, WRONG)

    assert await list_ids(engine) == []


async def test_a_submit_that_is_cancelled_during_its_check_stores_nothing(
    engine: EmbeddedEngine,
) -> None:
    async with measure_loop() as turns:
        submitting = asyncio.create_task(engine.client.submit(FLOW, LARGE))
        await wait_until(lambda: len(turns) >= 10)
        submitting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await submitting

    id_ = await engine.client.submit(FLOW, LARGE)
    assert await list_ids(engine) == [id_]


async def test_other_code_runs_while_the_schema_of_a_document_is_checked(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    # The quick check of schemas does not know `contains`.
    part = {"contains": {"minLength": 1}}
    document = {
        "name": "large",
        "nodes": [{"id": "a", "handler": "work"}],
        "input": {"type": "object", "properties": {f"p{n}": part for n in range(500)}},
    }
    async with open_api("memory", request, tmp_path) as api, measure_loop() as turns:
        before = len(turns)
        await api.post("/v1/workflows", document)
        assert len(turns) - before >= 10
