"""`runnel.run_many`: a batch from Python, on the embedded engine and on servers."""

import asyncio
from contextlib import aclosing
from datetime import date
from pathlib import Path

import pytest

import runnel
from runnel import BatchResult
from runnel.app.stores import open_store_session
from runnel.authoring.functions import SOURCE_LABEL
from runnel.client.batch import BATCH_LABEL
from runnel.errors import InputError, InvalidInputError
from runnel.ports.archive import ExecutionFilter
from runnel.settings import read_settings
from runnel.views.execution import ExecutionSummary
from tests.integration import batch_flows as flows


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REDIS_URL", raising=False)
    monkeypatch.setenv("RUNNEL_DATA_DIR", str(tmp_path / "data"))
    flows.calls.clear()
    flows.refused.clear()
    return tmp_path / "data"


async def list_summaries() -> list[ExecutionSummary]:
    async with open_store_session(read_settings()) as session:
        return list(await session.client.list_executions(ExecutionFilter()))


async def test_each_input_has_a_result_when_its_execution_has_ended() -> None:
    flows.refused.add(2)

    results = {
        result.index: result
        async for result in runnel.run_many(
            flows.doubled, [{"n": n} for n in range(5)], labels={"team": "red"}
        )
    }

    assert sorted(results) == [0, 1, 2, 3, 4]
    assert [results[n].output for n in (0, 1, 3, 4)] == [0, 2, 6, 8]
    failed = results[2]
    assert (failed.input, failed.status, failed.output) == ({"n": 2}, "FAILED", None)
    assert "2 is refused" in (failed.error or "")
    summary = next(
        item for item in await list_summaries() if item.execution_id == failed.execution_id
    )
    assert (summary.labels["team"], SOURCE_LABEL in summary.labels) == ("red", True)
    assert BATCH_LABEL in summary.labels


async def collect(numbers: list[int], **given: object) -> list[BatchResult]:
    inputs = [{"n": number} for number in numbers]
    return [
        result
        async for result in runnel.run_many(flows.doubled, inputs, name="may", **given)  # type: ignore[arg-type]  # options of one test
    ]


async def test_a_batch_continues_by_its_name() -> None:
    flows.refused.add(1)
    await collect([0, 1])
    flows.refused.clear()

    unchanged = await collect([0, 1, 2])
    retried = await collect([0, 1, 2], retry_failed=True)

    assert {result.input["n"]: result.is_from_earlier_run for result in unchanged} == {
        0: True,
        1: True,
        2: False,
    }
    assert {result.input["n"]: result.output for result in retried} == {0: 0, 1: 2, 2: 4}
    assert sorted(flows.calls) == [0, 1, 1, 2]


async def test_an_input_is_identified_by_a_field() -> None:
    inputs = [{"n": 1, "order": {"number": 7}}, {"n": 2, "order": {"number": 8}}]
    batch = [item async for item in runnel.run_many(flows.ordered, inputs, id_field="order.number")]

    assert {item.key: item.output for item in batch} == {"7": 2, "8": 4}


async def test_a_batch_stopped_early_continues_with_the_next_call() -> None:
    async with aclosing(
        runnel.run_many(flows.doubled, [{"n": n} for n in range(50)], name="may", in_flight=2)
    ) as results:
        async for _ in results:
            break
    begun = len(flows.calls)

    rest = await collect(list(range(50)))

    assert begun < 10
    assert len(rest) == 50
    assert all(result.status == "COMPLETED" for result in rest)


async def test_concurrent_batches_and_runs_share_one_engine(data_dir: Path) -> None:
    first, second, one = await asyncio.gather(
        collect([1, 2, 3]), collect([4, 5]), runnel.run(flows.doubled, 6)
    )

    assert (len(first), len(second), one) == (3, 2, 12)
    assert len(list(data_dir.glob("p*.lock"))) == 1


async def test_a_task_can_run_a_batch_while_all_slots_are_taken() -> None:
    inputs = [{"numbers": [n, n + 1]} for n in range(0, 8, 2)]

    totals = [
        item.output
        async for item in runnel.run_many(flows.summed.run_options(concurrency=2), inputs)
    ]

    assert sorted(totals) == [2, 10, 18, 26]


async def test_all_inputs_are_checked_before_the_first_one_runs(data_dir: Path) -> None:
    with pytest.raises(InvalidInputError) as caught:
        await collect([1, "two"])  # type: ignore[list-item]  # the wrong input

    assert caught.value.problems == ("inputs[1].n: expected a whole number, got 'two'",)
    assert (flows.calls, data_dir.exists()) == ([], False)


async def test_a_changed_input_of_a_known_id_is_refused() -> None:
    [_ async for _ in runnel.run_many(flows.doubled, [{"n": 1}], name="b", id_field="n")]

    with pytest.raises(
        InputError, match=r"inputs\[0\]: execution k.* give this batch another name"
    ):
        [
            _
            async for _ in runnel.run_many(
                flows.ordered_copy, [{"n": 1, "more": 2}], name="b", id_field="n"
            )
        ]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"in_flight": 0}, "in_flight: expected at least 1, got 0"),
        ({"name": ""}, "name: expected 1 to 200 characters"),
        ({"id_field": "a..b"}, "id_field: expected a name such as id"),
        ({"id_field": "m"}, r"inputs\[0\]: expected m to be a text or a whole number, got null"),
    ],
)
async def test_a_wrong_option_is_refused(given: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        [_ async for _ in runnel.run_many(flows.doubled, [{"n": 1}], **given)]  # type: ignore[arg-type]  # a wrong option


async def test_an_empty_list_has_no_results() -> None:
    assert [_ async for _ in runnel.run_many(flows.doubled, [])] == []


async def test_inputs_are_converted_by_the_annotations_of_the_workflow() -> None:
    number = flows.Positive(n=3, words={"a", "b", "c", "d"})
    inputs = [{"number": number, "day": date(2026, 1, 2)}]

    results = [result async for result in runnel.run_many(flows.doubled_model, inputs)]

    assert [result.output for result in results] == [2032]
    assert results[0].input == {
        "number": {"n": 3, "words": ["a", "b", "c", "d"]},
        "day": "2026-01-02",
    }


async def test_the_validators_of_all_inputs_run_before_the_first_execution() -> None:
    good = {"number": {"n": 1}, "day": "2026-01-02"}
    inputs = [good, {**good, "number": {"n": 101}}, {**good, "day": 3}]

    with pytest.raises(InvalidInputError) as caught:
        async for _ in runnel.run_many(flows.doubled_model, inputs):
            pass

    assert [problem.partition(":")[0] for problem in caught.value.problems] == [
        "inputs[1].number.n",
        "inputs[2].day",
    ]
    assert flows.calls == []


async def test_other_code_runs_while_many_inputs_are_checked() -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count_turns())
    inputs = [*({"n": number} for number in range(5_000)), {"n": "wrong"}]
    try:
        with pytest.raises(InvalidInputError):
            async for _ in runnel.run_many(flows.doubled, inputs):
                pass
    finally:
        counting.cancel()

    assert turns >= 10  # the check takes about 0.1 s
