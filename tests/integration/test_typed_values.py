"""Values of annotated types: as parameter, result, input of a workflow and its result."""

import asyncio
import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

import runnel
from runnel import WorkflowDAG, WorkflowExecutor, WorkflowFailedError
from runnel.app.stores import open_store_session
from runnel.errors import InputError, InvalidInputError, PayloadError
from runnel.ports.archive import ExecutionFilter
from runnel.settings import read_settings
from tests.api import open_api
from tests.engines import WorkHandler, flush_redis, open_engine, run_to_end
from tests.integration import typed_flows as flows
from tests.unit.authoring import typed_flow


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REDIS_URL", raising=False)
    monkeypatch.setenv("RUNNEL_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


async def load_stored_inputs() -> list[Any]:
    if not read_settings().data_dir.exists():
        return []
    async with open_store_session(read_settings()) as session:
        found = await session.client.list_executions(ExecutionFilter())
        executions = [await session.client.load(summary.execution_id) for summary in found]
        return [execution.input.decode() for execution in executions]


@pytest.mark.parametrize("mode", flows.MODES)
async def test_every_type_arrives_as_annotated(mode: str) -> None:
    workflows = flows.FLOWS[mode]

    results = await asyncio.gather(
        *(runnel.run(workflows[name], value) for name, (_, value, _) in flows.SAMPLES.items())
    )

    for name, result in zip(flows.SAMPLES, results, strict=True):
        expected = flows.SAMPLES[name][1]
        assert (name, result) == (name, expected)
        assert type(result) is type(expected), name


@pytest.mark.parametrize("name", [name for name, sample in flows.SAMPLES.items() if sample[2]])
async def test_a_value_is_stored_as_json(name: str) -> None:
    _, value, stored = flows.SAMPLES[name]

    await runnel.run(flows.FLOWS["loop"][name], value)

    (found,) = await load_stored_inputs()
    assert found == {"value": stored}


async def test_a_body_reads_parts_of_typed_results() -> None:
    result = await runnel.run(flows.summarize, dt.date(2026, 1, 1))

    assert result == flows.Summary(
        total=Decimal("3.10"),
        prices=[Decimal("2.20"), Decimal(4)],
        described=(2026, "18.11.2026 OPEN", flows.ID),
        archived=["nothing", "2026-11-18T13:43:01.000007+00:00", "own"],
        day=flows.DAY,
        event_id=flows.ID,
    )


async def test_code_that_a_type_checker_accepts_runs() -> None:
    period = typed_flow.Period(dt.date(2026, 1, 1), dt.date(2026, 2, 1))

    result = await runnel.run(typed_flow.billing, period)

    assert result == (typed_flow.Invoice(period.start, Decimal(1), []), {0})


async def test_a_result_that_does_not_fit_its_annotation_fails_its_task() -> None:
    with pytest.raises(
        WorkflowFailedError, match=r"annotation: result\.lines\[0\]: the field 'price' is missing"
    ):
        await runnel.run(flows.broken, 1)


async def test_a_result_that_cannot_be_stored_is_refused_with_its_path() -> None:
    with pytest.raises(WorkflowFailedError, match=r"result\.lines\[0\]\.lock: it holds a builtins"):
        await runnel.run(flows.unstorable)


async def test_a_parent_that_failed_is_none_for_a_typed_parameter() -> None:
    with pytest.raises(WorkflowFailedError) as caught:
        await runnel.run(flows.cleaned, 1)

    async with open_store_session(read_settings()) as session:
        execution = await session.client.load(caught.value.execution_id)  # type: ignore[arg-type]
    by_name = dict(zip((n.node.id for n in execution.graph.nodes), execution.nodes, strict=True))
    output = by_name["clean_up"].output  # type: ignore[index]
    assert output is not None
    assert output.decode() == "None"


async def test_an_item_that_was_skipped_is_none_in_a_typed_list() -> None:
    assert await runnel.run(flows.odd_names, [1, 2, 3]) == ["1", None, "3"]


WRONG_INPUTS = [
    ("date", "2026-02-30", "input.value: expected a text in the format 'date', got '2026-02-30'"),
    ("date", 3, "input.value: expected a text, got 3"),
    ("datetime", "yesterday", "input.value: expected a text in the format 'date-time'"),
    ("uuid", "7", "input.value: expected a text in the format 'uuid', got '7'"),
    ("decimal", "1,5", "input.value: expected a text in the format 'decimal', got '1,5'"),
    ("bytes", "!", "input.value: expected a text encoded as 'base64', got '!'"),
    ("timedelta", "1 day", "input.value: expected a text in the format 'duration', got '1 day'"),
    ("enum", "lost", "input.value: expected one of 'open', 'paid', got 'lost'"),
    ("list", [{"number": 1, "day": "x", "lines": []}], "input.value[0].day: expected a text in"),
    ("dict", {"b": "x"}, "input.value.b: expected a text in the format 'date', got 'x'"),
    ("dataclass", {"number": "1", "day": "2026-01-01", "lines": []}, "input.value.number: "),
    ("named_tuple", [1], "input.value: expected a list of at least 2 items"),
    ("int_keys", {"x": "a"}, "input.value: expected a text that matches '^(0|-?"),
    ("model", {"full_name": "A", "born": "2026-01-01"}, "input.value.full_name: expected a text"),
    ("path", 3, "input.value: expected a text, got 3"),
    ("set", ["a", "a"], "input.value: "),
    ("literal", "b", "input.value: expected one of 1, 'a', got 'b'"),
]


@pytest.mark.parametrize(("name", "value", "problem"), WRONG_INPUTS)
async def test_a_wrong_input_is_refused_with_its_path_and_nothing_is_stored(
    name: str, value: Any, problem: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        await runnel.run(flows.FLOWS["loop"][name], value)

    assert problem in str(caught.value)
    assert caught.value.problems
    assert await load_stored_inputs() == []


async def test_an_argument_that_cannot_be_stored_is_refused_with_its_path() -> None:
    invoice = flows.Invoice(1, flows.DAY, [flows.Line("a", object())])  # type: ignore[arg-type]

    with pytest.raises(PayloadError, match=r"input\.value\.lines\[0\]\.price: the value can't be"):
        await runnel.submit(flows.FLOWS["loop"]["dataclass"], invoice)
    assert await load_stored_inputs() == []


async def test_equal_sets_are_the_same_input_for_a_key() -> None:
    flow = flows.FLOWS["loop"]["set"].run_options(key="k")

    first = await runnel.submit(flow, {"a", "b", "c"})
    second = await runnel.submit(flow, {"c", "b", "a"})

    assert first == second


def extract(ctx: Any) -> flows.Invoice:
    return flows.INVOICE


async def extract_async(ctx: Any) -> list[flows.Point]:
    return [flows.Point(1, flows.DAY)]


@pytest.mark.parametrize("is_durable", [False, True])
async def test_steps_of_a_dag_get_results_in_the_annotated_types(
    tmp_path: Path, is_durable: bool
) -> None:
    seen: list[Any] = []
    dag = WorkflowDAG("typed")
    dag.add_step("extract", extract)
    dag.add_step("points", extract_async)
    dag.add_step(
        "save",
        lambda ctx: seen.extend(dict(ctx.step_outputs).values()),
        depends_on=["extract", "points"],
    )

    result = await WorkflowExecutor(data_dir=tmp_path / "dag" if is_durable else None).execute(dag)

    assert [step.error for step in result.steps.values()] == [None, None, None]
    assert seen == [flows.INVOICE, [flows.Point(1, flows.DAY)]]
    assert result.steps["extract"].output == flows.INVOICE


async def test_a_python_handler_in_a_document_converts_its_args() -> None:
    dag = WorkflowDAG("doc")
    function = f"{flows.__name__}:locate"
    dag.add_node("point", "python", {"function": function, "args": {"day": "2026-11-18"}})
    dag.add_node("again", "python", {"function": function, "args": {"day": "{{ point[1] }}"}})

    assert await runnel.run(dag) == [2026, "2026-11-18"]


async def test_a_wrong_argument_in_a_document_fails_with_its_path() -> None:
    dag = WorkflowDAG("doc")
    config = {"function": f"{flows.__name__}:locate", "args": {"day": "2026-11-31"}}
    dag.add_node("point", "python", config)

    with pytest.raises(WorkflowFailedError, match="does not fit locate: day: invalid RFC3339"):
        await runnel.run(dag)


def test_a_result_of_older_code_is_reported_with_its_path() -> None:
    with pytest.raises(PayloadError, match=r"its result does not fit.*result: the field 'number'"):
        flows.broken.decode_result(msgspec.json.encode({}))


def test_a_workflow_in_a_typed_program_refuses_wrong_arguments_at_once() -> None:
    with pytest.raises(InputError, match="does not accept this input"):
        flows.summarize.bind((), {})


async def test_every_type_arrives_as_annotated_on_redis(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = flush_redis(request)
    async with open_engine("redis", tmp_path, WorkHandler(), redis_url=url) as engine:

        async def run(name: str) -> Any:
            flow = flows.FLOWS["thread"][name]
            given = flow.bind((flows.SAMPLES[name][1],), {})
            view = await run_to_end(engine, flow.to_workflow(), given)
            return view.status, flow.decode_result(msgspec.json.encode(view.output))

        results = await asyncio.gather(*map(run, flows.SAMPLES))

    expected = [("COMPLETED", value) for _, value, _ in flows.SAMPLES.values()]
    assert results == expected


@pytest.mark.parametrize(
    ("name", "value", "path"),
    [
        ("date", "2026-02-30", "$.input.value"),
        ("naive", "today", "$.input.value"),
        ("dataclass", {"number": 1, "day": "soon", "lines": []}, "$.input.value.day"),
        ("dict", {"k": "2026-13-01"}, "$.input.value.k"),
        ("model", {"full_name": "Ada", "born": "x"}, "$.input.value.born"),
        ("struct", {"eventId": "x"}, "$.input.value.eventId"),
    ],
)
async def test_a_wrong_input_is_refused_over_http_and_nothing_is_stored(
    name: str, value: Any, path: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    nodes = [{"id": "one", "handler": "output", "config": {"x": 1}}]
    schema = flows.FLOWS["loop"][name].to_workflow().input
    async with open_api("sqlite", request, tmp_path / "api") as api:
        await api.post("/v1/workflows", {"name": "typed", "input": schema, "nodes": nodes})

        answer = await api.http.post("/v1/workflows/typed/run", json={"input": {"value": value}})

        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")
        assert [problem["path"] for problem in answer.json()["errors"]] == [path]
        assert (await api.get("/v1/executions"))["items"] == []
