"""One trigger starts a held execution, with the submitted input or with its own."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from runnel.app.embedded_engine import EmbeddedEngine
from runnel.client.idempotency import START_TIMEOUT_S
from runnel.client.store_client import PICKUP_TIMEOUT_S, StoreClient
from runnel.core.ids import ExecutionId
from runnel.core.values import INLINE_BYTES_MAX
from runnel.errors import InvalidInputError, KeyReusedError, WrongStateError
from tests.core_driver import make_node, make_workflow
from tests.engines import WorkHandler, open_engine, wait_for_end
from tests.integration.client_without_engine import ClientWithoutEngine

SCHEMA = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
WITH_SCHEMA = make_workflow(make_node("a", config={"v": "{{ input.n }}"}), input=SCHEMA)
LARGE = "x" * (INLINE_BYTES_MAX + 1)


@pytest.fixture
def desk() -> ClientWithoutEngine:
    return ClientWithoutEngine()


@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis"])
@pytest.mark.parametrize("value", [{"n": "bad"}, {"n": "bad", "m": LARGE}], ids=["inline", "blob"])
async def test_a_trigger_validates_the_submitted_input(
    kind: str, redis_url: str | None, value: Any, tmp_path: Path
) -> None:
    async with open_engine(kind, tmp_path, WorkHandler(), redis_url=redis_url) as engine:
        execution_id = await engine.client.hold(WITH_SCHEMA, value)

        with pytest.raises(InvalidInputError, match=r"input\.n: expected a whole number, got "):
            await engine.client.trigger(execution_id)

        await engine.client.trigger(execution_id, {"n": 1})
        view = await wait_for_end(engine, execution_id)
    assert view.nodes["a"].output == {"v": 1}


@pytest.mark.parametrize("extra", ["", LARGE], ids=["inline", "blob"])
async def test_a_trigger_starts_with_the_submitted_input(extra: str, tmp_path: Path) -> None:
    async with open_engine("sqlite", tmp_path, WorkHandler()) as engine:
        value = {"n": 3, "extra": extra}
        execution_id = await engine.client.hold(WITH_SCHEMA, value)

        await engine.client.trigger(execution_id)

        assert (await wait_for_end(engine, execution_id)).nodes["a"].output == {"v": 3}


async def test_a_trigger_needs_an_input_while_the_submitted_one_is_unreadable(
    desk: ClientWithoutEngine,
) -> None:
    execution_id = await desk.client.hold(WITH_SCHEMA, {"n": "one"})

    async with asyncio.TaskGroup() as group:
        triggering = group.create_task(_trigger_refused(desk.client, execution_id))
        await desk.clock.advance(2 * PICKUP_TIMEOUT_S)

    assert "no process has created it yet" in triggering.result()
    async with asyncio.TaskGroup() as group:
        group.create_task(desk.client.trigger(execution_id, {"n": 1}))
        await desk.clock.advance(2 * START_TIMEOUT_S)
    assert len(await desk.sent()) == 2


async def test_a_submitted_input_that_fits_needs_no_process_to_be_triggered(
    desk: ClientWithoutEngine,
) -> None:
    execution_id = await desk.client.hold(WITH_SCHEMA, {"n": 1})

    async with asyncio.TaskGroup() as group:
        group.create_task(desk.client.trigger(execution_id))
        await desk.clock.advance(2 * START_TIMEOUT_S)

    assert len(await desk.sent()) == 2


async def _trigger_refused(client: StoreClient, execution_id: ExecutionId) -> str:
    with pytest.raises(WrongStateError) as caught:
        await client.trigger(execution_id)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis"])
async def test_one_of_two_concurrent_triggers_is_refused(
    kind: str, redis_url: str | None, tmp_path: Path
) -> None:
    definition = make_workflow(make_node("a", config={"who": "{{ input.who }}"}))
    async with open_engine(kind, tmp_path, WorkHandler(), redis_url=redis_url) as engine:
        execution_id = await engine.client.hold(definition)

        refused = await asyncio.gather(*(_trigger(engine, execution_id, key) for key in "12"))

        view = await wait_for_end(engine, execution_id)
        keys = [start.fields["input"]["blob"] for start in await _list_starts(engine, execution_id)]
    assert view.nodes["a"].output == {"who": view.input["who"]}
    assert [key.startswith(f"{execution_id}/input/") for key in keys] == [True]
    assert refused.count("") == 1
    assert refused.index("") == "12".index(view.input["who"])
    assert "only a PENDING execution can be triggered" in "".join(refused)


async def _trigger(engine: EmbeddedEngine, execution_id: ExecutionId, key: str) -> str:
    """Triggers the execution and returns the reason of a refusal, or an empty text."""
    try:
        await engine.client.trigger(execution_id, {"who": key, "fill": LARGE})
    except WrongStateError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis"])
async def test_triggers_with_the_same_key_start_the_execution_once(
    kind: str, redis_url: str | None, tmp_path: Path
) -> None:
    async with open_engine(kind, tmp_path, WorkHandler(), redis_url=redis_url) as engine:
        client = engine.client
        execution_id = await client.hold(make_workflow(make_node("a")))
        first = {"n": 1, "m": 2}
        again = [client.trigger(execution_id, first, idempotency_key="k") for _ in range(3)]

        await asyncio.gather(*again)
        await wait_for_end(engine, execution_id)
        await client.trigger(execution_id, {"m": 2, "n": 1}, idempotency_key="k")

        starts = await _list_starts(engine, execution_id)
        with pytest.raises(WrongStateError, match="only a PENDING execution"):
            await client.trigger(execution_id, {"n": 1}, idempotency_key="other")
        with pytest.raises(KeyReusedError, match="another input"):
            await client.trigger(execution_id, {"n": 2}, idempotency_key="k")
    assert len(starts) == 1


async def _list_starts(engine: EmbeddedEngine, execution_id: ExecutionId) -> list[Any]:
    history = await engine.client.history(execution_id)
    return [entry for entry in history if entry.event == "ExecutionStarted"]
