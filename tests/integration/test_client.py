"""The client checks arguments before it stores anything, and answers waits and reads."""

import asyncio
from collections.abc import Sequence
from math import nan
from pathlib import Path
from typing import Any

import pytest

from runnel.core import validation
from runnel.core.commands import CancelExecution, Command, SendSignal
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.core.values import INLINE_BYTES_MAX
from runnel.core.workflow import Node, Workflow
from runnel.errors import (
    InputError,
    InvalidWorkflowError,
    NotFoundError,
    PayloadError,
    WrongStateError,
)
from runnel.ports.store import Commit, ExecutionHeader
from tests.core_driver import make_node, make_workflow
from tests.engines import WorkHandler, open_engine, wait_for_end
from tests.integration.client_without_engine import ClientWithoutEngine

SCHEMA = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
WITH_SCHEMA = make_workflow(make_node("a", config={"v": "{{ input.n }}"}), input=SCHEMA)
LARGE = "x" * (INLINE_BYTES_MAX + 1)
UNKNOWN = ExecutionId("nope")


@pytest.fixture
def desk() -> ClientWithoutEngine:
    return ClientWithoutEngine()


def cyclic() -> list[Any]:
    cycle: list[Any] = []
    cycle.append(cycle)
    return cycle


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


# -- workflows ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (object(), "config.v: expected a JSON value, got a Python object"),
        (cyclic(), "nested too deeply"),
        (nested(5_000), "nested too deeply"),
        ("\ud800", "config.v: half of a surrogate pair is not a character"),
        (nan, "config.v: JSON has no number nan"),
    ],
    ids=["object", "cyclic", "deep", "surrogate", "nan"],
)
async def test_a_config_that_is_not_json_is_refused_with_the_reason(
    desk: ClientWithoutEngine, value: Any, sentence: str
) -> None:
    with pytest.raises(InvalidWorkflowError, match=sentence):
        await desk.client.submit(make_workflow(make_node("a", config={"v": value})))


async def test_an_invalid_workflow_is_refused_even_if_a_known_one_encodes_alike(
    desk: ClientWithoutEngine,
) -> None:
    await desk.client.submit(make_workflow(make_node("a", config={"v": None})))

    with pytest.raises(InvalidWorkflowError, match="JSON has no number nan"):
        await desk.client.submit(make_workflow(make_node("a", config={"v": nan})))


@pytest.mark.parametrize("field", ["name", "child", "input"])
async def test_a_workflow_with_half_a_surrogate_pair_is_refused(
    desk: ClientWithoutEngine, field: str
) -> None:
    wrong: dict[str, Workflow] = {
        "name": Workflow(name="\ud800", nodes=(make_node("a"),)),
        "child": make_workflow(
            make_node("a", handler="workflow", child=make_workflow(make_node("\ud800")))
        ),
        "input": make_workflow(make_node("a"), input={"title": "\ud800"}),
    }

    with pytest.raises(InvalidWorkflowError):
        await desk.client.submit(wrong[field])


async def test_a_workflow_is_validated_once_however_often_it_is_submitted(
    desk: ClientWithoutEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    validated: list[str] = []
    real = validation.find_problems

    def counted(workflow: Workflow, **options: Any) -> list[str]:
        validated.append(workflow.name)
        return real(workflow, **options)

    monkeypatch.setattr(validation, "find_problems", counted)
    definition = make_workflow(make_node("a", config={"v": 1}))
    for _ in range(3):
        await desk.client.submit(definition)
        await desk.client.submit(
            make_workflow(Node(id=definition.nodes[0].id, **_fields(definition)))
        )

    assert validated == ["test"]


def _fields(definition: Workflow) -> dict[str, Any]:
    return {"handler": definition.nodes[0].handler, "config": dict(definition.nodes[0].config)}


# -- values ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (cyclic(), "input: the value is nested too deeply, or contains itself"),
        (
            {"v": "\ud800"},
            "input: the text contains half of a surrogate pair, which is not a character",
        ),
        ({"v": nan}, r"input\.v: JSON has no NaN or infinity"),
    ],
    ids=["cyclic", "surrogate", "nan"],
)
@pytest.mark.parametrize(
    "definition", [make_workflow(make_node("a")), WITH_SCHEMA], ids=["any", "schema"]
)
async def test_an_input_that_is_not_json_is_refused_with_the_reason(
    desk: ClientWithoutEngine, definition: Workflow, value: Any, sentence: str
) -> None:
    with pytest.raises(PayloadError, match=sentence):
        await desk.client.submit(definition, value)
    assert await desk.sent() == []


async def test_a_payload_that_is_not_json_is_refused(desk: ClientWithoutEngine) -> None:
    execution_id = await desk.client.submit(make_workflow(make_node("a")))

    with pytest.raises(PayloadError, match=r"payload\.v: JSON has no NaN"):
        await desk.client.signal(execution_id, "go", {"v": nan})


async def test_large_payloads_of_one_signal_sent_twice_do_not_overwrite_each_other(
    desk: ClientWithoutEngine,
) -> None:
    wait = make_node("a", handler="wait_for_signal", config={"signal": "go"})
    execution_id = await desk.client.submit(make_workflow(wait))

    for letter in "xy":
        await desk.client.signal(execution_id, "go", letter + LARGE, signal_id="same")

    signals = [command for command in await desk.sent() if isinstance(command, SendSignal)]
    stored = [await desk.backend.blobs.get(signal.payload.blob or "") for signal in signals]
    assert [data[1:2] for data in stored] == [b"x", b"y"]


# -- bounds ------------------------------------------------------------------------------------


async def test_labels_out_of_bounds_are_refused_before_anything_is_stored(
    desk: ClientWithoutEngine,
) -> None:
    with pytest.raises(PayloadError, match="label 'k': expected 0 to 1,000 characters, got 1,001"):
        await desk.client.submit(make_workflow(make_node("a")), labels={"k": "v" * 1_001})
    assert await desk.sent() == []


@pytest.mark.parametrize("priority", [-101, 101, 1.5, True])
async def test_a_priority_out_of_bounds_is_refused(
    desk: ClientWithoutEngine, priority: int
) -> None:
    with pytest.raises(PayloadError, match="priority: expected a whole number from -100 to 100"):
        await desk.client.submit(make_workflow(make_node("a")), priority=priority)
    assert await desk.sent() == []


async def test_labels_within_bounds_are_kept(desk: ClientWithoutEngine) -> None:
    labels = {f"k{i}": "v" * 1_000 for i in range(63)} | {"runnel.source": "/" * 4_096}

    execution_id = await desk.client.submit(make_workflow(make_node("a")), labels=labels)

    assert (await desk.client.get(execution_id)).labels == labels


@pytest.mark.parametrize("name", ["", "n" * 501])
async def test_the_name_of_a_signal_has_a_length_limit(
    desk: ClientWithoutEngine, name: str
) -> None:
    execution_id = await desk.client.submit(make_workflow(make_node("a")))

    with pytest.raises(PayloadError, match="the name of a signal: expected 1 to 500 characters"):
        await desk.client.signal(execution_id, name)


async def test_the_id_of_a_signal_has_a_length_limit(desk: ClientWithoutEngine) -> None:
    execution_id = await desk.client.submit(make_workflow(make_node("a")))

    with pytest.raises(PayloadError, match="signal_id: expected 1 to 500 characters"):
        await desk.client.signal(execution_id, "go", signal_id="i" * 501)


async def test_a_long_reason_to_cancel_is_cut(desk: ClientWithoutEngine) -> None:
    execution_id = await desk.client.submit(make_workflow(make_node("a")))

    await desk.client.cancel(execution_id, reason="y" * 1_500_000)

    assert _cancels(await desk.sent()) == [("y" * 1_999 + "…", False)]


async def test_a_cancel_can_be_forced(desk: ClientWithoutEngine) -> None:
    execution_id = await desk.client.submit(make_workflow(make_node("a")))

    await desk.client.cancel(execution_id, is_forced=True)

    assert _cancels(await desk.sent()) == [("cancelled by request", True)]


def _cancels(sent: Sequence[Command | None]) -> list[tuple[str, bool]]:
    return [
        (command.reason, command.is_forced)
        for command in sent
        if isinstance(command, CancelExecution)
    ]


# -- wait and get ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("call", ["find", "get", "history", "wait", "trigger", "cancel", "signal"])
async def test_an_id_with_half_a_surrogate_pair_is_not_found(
    kind: str, call: str, tmp_path: Path
) -> None:
    arguments = ["go"] if call == "signal" else []
    async with open_engine(kind, tmp_path, WorkHandler()) as engine:
        with pytest.raises(NotFoundError, match=r"no execution '\\ud800'"):
            await getattr(engine.client, call)("\ud800", *arguments)


@pytest.mark.parametrize("timeout_s", [None, 5.0])
async def test_waiting_for_an_unknown_execution_is_refused_at_once(
    desk: ClientWithoutEngine, timeout_s: float | None
) -> None:
    with pytest.raises(NotFoundError, match="no execution 'nope'"):
        await desk.client.wait_for_end(UNKNOWN, timeout_s=timeout_s)


async def test_waiting_for_an_unknown_execution_is_refused_by_a_running_engine(
    tmp_path: Path,
) -> None:
    async with open_engine("memory", tmp_path, WorkHandler()) as engine:
        with pytest.raises(NotFoundError, match="no execution 'nope'"):
            await engine.client.wait_for_end(UNKNOWN)


async def test_a_client_can_wait_for_an_execution_of_another_process(
    desk: ClientWithoutEngine,
) -> None:
    execution_id = await desk.client.submit(make_workflow(make_node("a")))

    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(desk.client.wait_for_end(execution_id))
        await desk.clock.advance(1)
        await _fail(desk, execution_id)
        await desk.clock.advance(10)

    assert waiting.result().state is ExecutionState.FAILED


async def test_an_execution_that_could_not_be_created_is_shown_as_failed(
    desk: ClientWithoutEngine,
) -> None:
    execution_id = await desk.client.hold(make_workflow(make_node("a")))

    await _fail(desk, execution_id)

    view = await desk.client.get(execution_id)
    assert (view.status, view.error) == ("FAILED", "StoreError: it broke: badly")
    assert (view.started_at, view.finished_at) == (11.0, 12.0)
    with pytest.raises(WrongStateError, match="is FAILED; only a PENDING execution"):
        await desk.client.trigger(execution_id)


async def _fail(desk: ClientWithoutEngine, execution_id: ExecutionId) -> None:
    """Stores what an orchestrator stores if it can't create an execution: a header, no history."""
    pending = await desk.backend.archive.get_header(execution_id)
    if pending is None:
        raise AssertionError("no header")
    header = ExecutionHeader(
        execution_id=execution_id,
        workflow=pending.workflow,
        version=pending.version,
        definition=pending.definition,
        state=ExecutionState.FAILED,
        created_at=pending.created_at,
        started_at=11.0,
        finished_at=12.0,
        error="StoreError: it broke: badly",
    )
    lease = await desk.backend.store.acquire(0, "test")
    await desk.backend.store.commit(lease, Commit(sequence=lease.sequence + 1, headers=[header]))
    await desk.backend.store.release(lease)


async def test_a_signal_that_no_node_waits_for_is_refused(tmp_path: Path) -> None:
    wait = make_node("ok", handler="wait_for_signal", config={"signal": "approve"})
    any_name = make_node("any", handler="wait_for_signal", config={"signal": "{{ input.name }}"})
    async with open_engine("sqlite", tmp_path, WorkHandler()) as engine:
        execution_id = await engine.client.submit(make_workflow(wait))
        with pytest.raises(InputError, match="did you mean 'approve'"):
            await engine.client.signal(execution_id, "aprove")

        deaf = await engine.client.submit(
            make_workflow(make_node("nap", handler="sleep", config={"seconds": 9}))
        )
        with pytest.raises(InputError, match="has no node that waits for a signal"):
            await engine.client.signal(deaf, "approve")

        other = await engine.client.submit(make_workflow(any_name), {"name": "x"})
        await engine.client.signal(other, "x")
        assert (await wait_for_end(engine, other)).status == "COMPLETED"
