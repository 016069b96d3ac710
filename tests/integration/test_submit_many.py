"""`submit_many` starts the executions of many inputs at once, on every backend."""

import asyncio
from typing import Any

import pytest

from runnel.app.embedded_engine import EmbeddedEngine
from runnel.client.batch import Batch, BatchFeeder, BatchOptions, BatchOutcome, build_batch
from runnel.client.idempotency import derive_execution_id
from runnel.client.submissions import INPUTS_MAX
from runnel.core.values import INLINE_BYTES_MAX
from runnel.errors import InputError, InvalidInputError, KeyReusedError, PayloadError
from runnel.ports.archive import ExecutionFilter
from tests.core_driver import make_node, make_workflow
from tests.engines import WorkHandler, wait_for_end
from tests.integration.test_scenarios import engine, work

__all__ = ["engine", "work"]

SCHEMA = {
    "type": "object",
    "required": ["n"],
    "properties": {"n": {"type": "integer"}, "unit": {"type": "string", "default": "EUR"}},
}
ONE = make_workflow(
    make_node("a", config={"n": "{{ input.n }}", "unit": "{{ input.unit }}"}), input=SCHEMA
)
LARGE = "x" * (INLINE_BYTES_MAX + 1)


async def count_executions(engine: EmbeddedEngine) -> int:
    return len(list(await engine.client.list_executions(ExecutionFilter(limit=500))))


async def test_each_input_becomes_an_execution_in_the_order_of_the_inputs(
    engine: EmbeddedEngine,
) -> None:
    inputs = [{"n": n, "unit": LARGE} if n == 2 else {"n": n} for n in range(20)]

    ids = await engine.client.submit_many(ONE, inputs, labels={"team": "red"})

    views = [await wait_for_end(engine, id_) for id_ in ids]
    assert [view.output["n"] for view in views] == list(range(20))
    assert [len(view.output["unit"]) for view in views[:4]] == [3, 3, len(LARGE), 3]
    assert {view.labels["team"] for view in views} == {"red"}


async def test_a_repeated_call_with_the_same_keys_starts_nothing_twice(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    inputs = [{"n": n} for n in range(10)]
    keys = [f"order {n}" for n in range(10)]

    first, second = await asyncio.gather(
        engine.client.submit_many(ONE, inputs, idempotency_keys=keys),
        engine.client.submit_many(ONE, inputs, idempotency_keys=keys),
    )
    for id_ in first:
        await wait_for_end(engine, id_)
    more = await engine.client.submit_many(
        ONE, [*inputs, {"n": 10}], idempotency_keys=[*keys, "order 10"]
    )
    await wait_for_end(engine, more[-1])

    assert first == second == more[:-1] == [derive_execution_id(ONE.name, key) for key in keys]
    assert work.calls == ["a"] * 11


async def test_wrong_inputs_are_all_named_and_nothing_is_stored(engine: EmbeddedEngine) -> None:
    inputs = [{"n": 1}, {"n": "two"}, {}, {"n": 4}]

    with pytest.raises(InvalidInputError) as caught:
        await engine.client.submit_many(ONE, inputs)

    assert caught.value.problems == (
        "inputs[1].n: expected a whole number, got 'two'",
        "inputs[2]: the field 'n' is missing",
    )
    assert "the inputs do not fit workflow" in str(caught.value)
    assert await count_executions(engine) == 0


async def test_a_key_of_another_input_is_refused_and_nothing_is_stored(
    engine: EmbeddedEngine,
) -> None:
    await engine.client.submit(ONE, {"n": 1}, idempotency_key="b")

    with pytest.raises(KeyReusedError, match=r"'b' belongs to execution .* another input"):
        await engine.client.submit_many(ONE, [{"n": 1}, {"n": 2}], idempotency_keys=["a", "b"])

    assert await count_executions(engine) == 1


@pytest.mark.parametrize(
    ("inputs", "keys", "sentence"),
    [
        ([], None, "inputs: expected 1 to 1,000 inputs, got 0"),
        ([{"n": 1}] * (INPUTS_MAX + 1), None, "expected 1 to 1,000 inputs, got 1,001"),
        ([{"n": 1}], [], "expected one key for each of 1 inputs, got 0"),
        ([{"n": 1}] * 2, ["k", "k"], "'k' is given 2 times; each input needs its own key"),
        ([{"n": 1}, {"n": float("nan")}], None, r"inputs\[1\].n: JSON has no NaN or infinity"),
        ([{"n": 1}], ["x" * 501], "the idempotency key: expected 1 to 500 characters"),
        ([{"n": 1, "unit": "x" * 40_000_000}] * 2, None, "submit fewer inputs at once"),
    ],
)
async def test_a_wrong_call_is_refused(
    engine: EmbeddedEngine, inputs: list[Any], keys: list[str] | None, sentence: str
) -> None:
    with pytest.raises((InputError, PayloadError), match=sentence):
        await engine.client.submit_many(ONE, inputs, idempotency_keys=keys)

    assert await count_executions(engine) == 0


def make_batch(inputs: list[Any], **given: Any) -> Batch:
    options = BatchOptions(name="may", **given)
    return build_batch(ONE, inputs, options, labels={}, default_name="")


async def run_batch(engine: EmbeddedEngine, batch: Batch) -> list[BatchOutcome]:
    feeder = BatchFeeder(batch, engine.client, engine.clock, event_bus=engine.event_bus)
    return [outcome async for outcome in feeder.run(asyncio.Event())]


async def test_a_batch_continues_by_name_and_reruns_failures_only_when_asked(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    work.failures["a"] = [ValueError("no")]
    inputs = [{"n": n, "id": f"A-{n}"} for n in range(6)]

    first = await run_batch(engine, make_batch(inputs[:1], in_flight=1, id_field="id"))
    second = await run_batch(engine, make_batch(inputs, in_flight=2, id_field="id"))
    third = await run_batch(engine, make_batch(inputs, id_field="id", retry_failed=True))

    assert [outcome.summary.status for outcome in first] == ["FAILED"]
    assert sum(outcome.is_from_earlier_run for outcome in second) == 1
    assert sorted(outcome.item.number for outcome in second) == list(range(6))
    assert all(outcome.is_completed for outcome in third)
    assert sum(outcome.is_from_earlier_run for outcome in third) == 5
    assert work.running_most <= 4


async def test_a_batch_limits_the_executions_in_flight(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    batch = make_batch([{"n": n} for n in range(12)], in_flight=2)

    outcomes = await run_batch(engine, batch)

    assert len(outcomes) == 12
    assert work.running_most <= 2


async def test_other_code_runs_while_large_inputs_are_checked(engine: EmbeddedEngine) -> None:
    items = {"type": "array", "items": {"type": "integer", "minimum": 0}}
    flow = make_workflow(make_node("a"), input={"type": "object", "properties": {"x": items}})
    inputs: list[Any] = [{"x": [*range(1_000), "wrong"]} for _ in range(20)]
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count_turns())
    try:
        with pytest.raises(InvalidInputError):
            await engine.client.submit_many(flow, inputs)
    finally:
        counting.cancel()

    assert turns >= 6  # each check takes about 15 ms, and others run after 10 ms
