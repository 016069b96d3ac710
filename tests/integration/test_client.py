"""What callers give is checked before it is stored, and what they ask for is answered."""

import asyncio
from collections.abc import Sequence
from math import nan
from pathlib import Path
from typing import Any

import pytest

from runnel.backends.memory import MemoryBackend
from runnel.client import TAKEN_UP_S, Client, Ending
from runnel.core import validation
from runnel.core.commands import CancelExecution, Command, SendSignal
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.core.values import INLINE_BYTES_MAX
from runnel.core.workflow import Node, Workflow
from runnel.errors import (
    InputError,
    InvalidInputError,
    InvalidWorkflowError,
    KeyReusedError,
    NotFoundError,
    PayloadError,
    WrongStateError,
)
from runnel.ports.store import Commit, Header
from runnel.runtime.engine import Engine
from runnel.testing.clock import FakeClock, FakeIds
from runnel.triggering import STARTED_S
from tests.driver import node, workflow
from tests.engines import Work, end_of, open_engine

SCHEMA = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
WITH_SCHEMA = workflow(node("a", config={"v": "{{ input.n }}"}), input=SCHEMA)
LARGE = "x" * (INLINE_BYTES_MAX + 1)
UNKNOWN = ExecutionId("nope")


class Desk:
    """A client of a store that nobody runs: what it leaves there can be looked at."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.backend = MemoryBackend(self.clock, FakeIds("store"))
        self.client = Client(
            self.backend, self.clock, FakeIds(), ending_of=lambda _execution_id: Ending()
        )

    async def sent(self) -> list[Command | None]:
        lease = await self.backend.store.acquire(0, "test")
        entries = await self.backend.store.read_inbox(lease, limit=100, wait_s=0)
        await self.backend.store.release(lease)
        return [entry.command for entry in entries]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def cyclic() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def nested(depth: int) -> Any:
    found: Any = 1
    for _ in range(depth):
        found = [found]
    return found


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
async def test_a_config_that_is_not_json_is_refused_with_a_sentence(
    desk: Desk, value: Any, sentence: str
) -> None:
    with pytest.raises(InvalidWorkflowError, match=sentence):
        await desk.client.submit(workflow(node("a", config={"v": value})))


async def test_a_workflow_is_not_taken_for_a_known_one_that_is_stored_alike(desk: Desk) -> None:
    await desk.client.submit(workflow(node("a", config={"v": None})))

    with pytest.raises(InvalidWorkflowError, match="JSON has no number nan"):
        await desk.client.submit(workflow(node("a", config={"v": nan})))


@pytest.mark.parametrize("field", ["name", "child", "input"])
async def test_a_workflow_that_is_not_text_anywhere_is_refused_with_a_sentence(
    desk: Desk, field: str
) -> None:
    wrong: dict[str, Workflow] = {
        "name": Workflow(name="\ud800", nodes=(node("a"),)),
        "child": workflow(node("a", handler="workflow", child=workflow(node("\ud800")))),
        "input": workflow(node("a"), input={"title": "\ud800"}),
    }

    with pytest.raises(InvalidWorkflowError):
        await desk.client.submit(wrong[field])


async def test_a_workflow_is_validated_once_however_often_it_is_submitted(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    validated: list[str] = []
    real = validation.find_problems

    def counted(wanted: Workflow, **options: Any) -> list[str]:
        validated.append(wanted.name)
        return real(wanted, **options)

    monkeypatch.setattr(validation, "find_problems", counted)
    definition = workflow(node("a", config={"v": 1}))
    for _ in range(3):
        await desk.client.submit(definition)
        await desk.client.submit(workflow(Node(id=definition.nodes[0].id, **_fields(definition))))

    assert validated == ["test"]


def _fields(definition: Workflow) -> dict[str, Any]:
    return {"handler": definition.nodes[0].handler, "config": dict(definition.nodes[0].config)}


# -- values ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (cyclic(), "input: it is nested too deeply, or holds itself"),
        ({"v": "\ud800"}, "input: half of a surrogate pair is not a character"),
        ({"v": nan}, r"input\.v: JSON has no NaN and no infinity"),
    ],
    ids=["cyclic", "surrogate", "nan"],
)
@pytest.mark.parametrize("definition", [workflow(node("a")), WITH_SCHEMA], ids=["any", "schema"])
async def test_an_input_that_is_not_json_is_refused_with_a_sentence(
    desk: Desk, definition: Workflow, value: Any, sentence: str
) -> None:
    with pytest.raises(PayloadError, match=sentence):
        await desk.client.submit(definition, value)
    assert await desk.sent() == []


async def test_a_payload_that_is_not_json_is_refused(desk: Desk) -> None:
    execution_id = await desk.client.submit(workflow(node("a")))

    with pytest.raises(PayloadError, match=r"payload\.v: JSON has no NaN"):
        await desk.client.signal(execution_id, "go", {"v": nan})


async def test_large_payloads_of_one_signal_sent_twice_do_not_overwrite_each_other(
    desk: Desk,
) -> None:
    wait = node("a", handler="wait_for_signal", config={"signal": "go"})
    execution_id = await desk.client.submit(workflow(wait))

    for letter in "xy":
        await desk.client.signal(execution_id, "go", letter + LARGE, signal_id="same")

    signals = [each for each in await desk.sent() if isinstance(each, SendSignal)]
    stored = [await desk.backend.blobs.get(each.payload.blob or "") for each in signals]
    assert [data[1:2] for data in stored] == [b"x", b"y"]


# -- bounds ------------------------------------------------------------------------------------


async def test_labels_out_of_bounds_are_refused_before_anything_is_stored(desk: Desk) -> None:
    with pytest.raises(PayloadError, match="label 'k': expected 0 to 1,000 characters, got 1,001"):
        await desk.client.submit(workflow(node("a")), labels={"k": "v" * 1_001})
    assert await desk.sent() == []


async def test_labels_within_bounds_are_kept(desk: Desk) -> None:
    labels = {f"k{i}": "v" * 1_000 for i in range(63)} | {"runnel.source": "/" * 4_096}

    execution_id = await desk.client.submit(workflow(node("a")), labels=labels)

    assert (await desk.client.get(execution_id)).labels == labels


@pytest.mark.parametrize("name", ["", "n" * 501])
async def test_the_name_of_a_signal_has_bounds(desk: Desk, name: str) -> None:
    execution_id = await desk.client.submit(workflow(node("a")))

    with pytest.raises(PayloadError, match="the name of a signal: expected 1 to 500 characters"):
        await desk.client.signal(execution_id, name)


async def test_the_id_of_a_signal_has_bounds(desk: Desk) -> None:
    execution_id = await desk.client.submit(workflow(node("a")))

    with pytest.raises(PayloadError, match="signal_id: expected 1 to 500 characters"):
        await desk.client.signal(execution_id, "go", signal_id="i" * 501)


async def test_a_long_reason_to_cancel_is_cut(desk: Desk) -> None:
    execution_id = await desk.client.submit(workflow(node("a")))

    await desk.client.cancel(execution_id, reason="y" * 1_500_000)

    assert _cancels(await desk.sent()) == [("y" * 1_999 + "…", False)]


async def test_a_cancel_can_be_forced(desk: Desk) -> None:
    execution_id = await desk.client.submit(workflow(node("a")))

    await desk.client.cancel(execution_id, is_forced=True)

    assert _cancels(await desk.sent()) == [("cancelled by request", True)]


def _cancels(sent: Sequence[Command | None]) -> list[tuple[str, bool]]:
    return [(each.reason, each.is_forced) for each in sent if isinstance(each, CancelExecution)]


# -- trigger -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis"])
@pytest.mark.parametrize("value", [{"n": "bad"}, {"n": "bad", "m": LARGE}], ids=["inline", "blob"])
async def test_a_trigger_checks_the_input_that_was_submitted(
    kind: str, redis_url: str | None, value: Any, tmp_path: Path
) -> None:
    async with open_engine(kind, tmp_path, Work(), redis_url=redis_url) as engine:
        execution_id = await engine.client.submit(WITH_SCHEMA, value, is_held=True)

        with pytest.raises(InvalidInputError, match=r"input\.n: .* is not of type 'integer'"):
            await engine.client.trigger(execution_id)

        await engine.client.trigger(execution_id, {"n": 1})
        view = await end_of(engine, execution_id)
    assert view.nodes["a"].output == {"v": 1}


@pytest.mark.parametrize("extra", ["", LARGE], ids=["inline", "blob"])
async def test_a_trigger_starts_with_the_input_that_was_submitted(
    extra: str, tmp_path: Path
) -> None:
    async with open_engine("sqlite", tmp_path, Work()) as engine:
        value = {"n": 3, "extra": extra}
        execution_id = await engine.client.submit(WITH_SCHEMA, value, is_held=True)

        await engine.client.trigger(execution_id)

        assert (await end_of(engine, execution_id)).nodes["a"].output == {"v": 3}


async def test_a_trigger_needs_the_input_when_the_submitted_one_can_not_be_read_yet(
    desk: Desk,
) -> None:
    execution_id = await desk.client.submit(WITH_SCHEMA, {"n": 1}, is_held=True)

    async with asyncio.TaskGroup() as group:
        triggering = group.create_task(_refusal(desk.client, execution_id))
        await desk.clock.advance(2 * TAKEN_UP_S)

    assert "no process has taken it up" in triggering.result()
    async with asyncio.TaskGroup() as group:
        group.create_task(desk.client.trigger(execution_id, {"n": 1}))
        await desk.clock.advance(2 * STARTED_S)
    assert len(await desk.sent()) == 2


async def _refusal(client: Client, execution_id: ExecutionId) -> str:
    with pytest.raises(WrongStateError) as caught:
        await client.trigger(execution_id)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis"])
async def test_of_two_triggers_at_once_one_is_refused(
    kind: str, redis_url: str | None, tmp_path: Path
) -> None:
    definition = workflow(node("a", config={"who": "{{ input.who }}"}))
    async with open_engine(kind, tmp_path, Work(), redis_url=redis_url) as engine:
        execution_id = await engine.client.submit(definition, is_held=True)

        refused = await asyncio.gather(*(_triggered(engine, execution_id, who) for who in "12"))

        view = await end_of(engine, execution_id)
        keys = [each.fields["input"]["blob"] for each in await _starts(engine, execution_id)]
    assert view.nodes["a"].output == {"who": view.input["who"]}
    assert [key.startswith(f"{execution_id}/input/") for key in keys] == [True]
    assert refused.count("") == 1
    assert refused.index("") == "12".index(view.input["who"])
    assert "only a PENDING one can be triggered" in "".join(refused)


async def _triggered(engine: Engine, execution_id: ExecutionId, who: str) -> str:
    """Why it was refused; empty when it was not."""
    try:
        await engine.client.trigger(execution_id, {"who": who, "fill": LARGE})
    except WrongStateError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis"])
async def test_a_trigger_with_the_same_key_is_the_same_trigger(
    kind: str, redis_url: str | None, tmp_path: Path
) -> None:
    async with open_engine(kind, tmp_path, Work(), redis_url=redis_url) as engine:
        client = engine.client
        execution_id = await client.submit(workflow(node("a")), is_held=True)
        again = [client.trigger(execution_id, {"n": 1}, idempotency_key="k") for _ in range(3)]

        await asyncio.gather(*again)
        await end_of(engine, execution_id)
        await client.trigger(execution_id, {"n": 1}, idempotency_key="k")

        starts = await _starts(engine, execution_id)
        with pytest.raises(WrongStateError, match="only a PENDING one"):
            await client.trigger(execution_id, {"n": 1}, idempotency_key="other")
        with pytest.raises(KeyReusedError, match="another input"):
            await client.trigger(execution_id, {"n": 2}, idempotency_key="k")
    assert len(starts) == 1


async def _starts(engine: Engine, execution_id: ExecutionId) -> list[Any]:
    history = await engine.client.history(execution_id)
    return [each for each in history if each.event == "ExecutionStarted"]


# -- wait and get ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("call", ["find", "get", "history", "wait", "trigger", "cancel", "signal"])
async def test_an_id_that_is_not_text_names_no_execution(
    kind: str, call: str, tmp_path: Path
) -> None:
    rest = ["go"] if call == "signal" else []
    async with open_engine(kind, tmp_path, Work()) as engine:
        with pytest.raises(NotFoundError, match=r"no execution '\\ud800'"):
            await getattr(engine.client, call)("\ud800", *rest)


@pytest.mark.parametrize("timeout_s", [None, 5.0])
async def test_waiting_for_an_unknown_execution_is_refused_at_once(
    desk: Desk, timeout_s: float | None
) -> None:
    with pytest.raises(NotFoundError, match="no execution 'nope'"):
        await desk.client.wait(UNKNOWN, timeout_s=timeout_s)


async def test_waiting_for_an_unknown_execution_is_refused_by_a_running_engine(
    tmp_path: Path,
) -> None:
    async with open_engine("memory", tmp_path, Work()) as engine:
        with pytest.raises(NotFoundError, match="no execution 'nope'"):
            await engine.client.wait(UNKNOWN)


async def test_waiting_for_what_another_process_will_run_goes_on(desk: Desk) -> None:
    execution_id = await desk.client.submit(workflow(node("a")))

    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(desk.client.wait(execution_id))
        await desk.clock.advance(1)
        await _fail(desk, execution_id)
        await desk.clock.advance(10)

    assert waiting.result().state is ExecutionState.FAILED


async def test_an_execution_that_could_not_be_made_is_shown_as_failed(desk: Desk) -> None:
    execution_id = await desk.client.submit(workflow(node("a")), is_held=True)

    await _fail(desk, execution_id)

    view = await desk.client.get(execution_id)
    assert (view.status, view.error) == ("FAILED", "StoreError: it broke: badly")
    assert (view.started_at, view.finished_at) == (11.0, 12.0)
    with pytest.raises(WrongStateError, match="is FAILED, only a PENDING one"):
        await desk.client.trigger(execution_id)


async def _fail(desk: Desk, execution_id: ExecutionId) -> None:
    """As an orchestrator ends one whose creation it could not decide: a header, no history."""
    found = await desk.backend.archive.get_header(execution_id)
    if found is None:
        raise AssertionError("no header")
    header = Header(
        execution_id=execution_id,
        workflow=found.workflow,
        version=found.version,
        definition=found.definition,
        state=ExecutionState.FAILED,
        created_at=found.created_at,
        started_at=11.0,
        finished_at=12.0,
        error="StoreError: it broke: badly",
    )
    lease = await desk.backend.store.acquire(0, "test")
    await desk.backend.store.commit(lease, Commit(sequence=lease.sequence + 1, headers=[header]))
    await desk.backend.store.release(lease)


async def test_a_signal_that_no_node_waits_for_is_refused(tmp_path: Path) -> None:
    wait = node("ok", handler="wait_for_signal", config={"signal": "approve"})
    any_name = node("any", handler="wait_for_signal", config={"signal": "{{ input.name }}"})
    async with open_engine("sqlite", tmp_path, Work()) as engine:
        execution_id = await engine.client.submit(workflow(wait))
        with pytest.raises(InputError, match="did you mean 'approve'"):
            await engine.client.signal(execution_id, "aprove")

        deaf = await engine.client.submit(
            workflow(node("nap", handler="sleep", config={"seconds": 9}))
        )
        with pytest.raises(InputError, match="has no node that waits for a signal"):
            await engine.client.signal(deaf, "approve")

        other = await engine.client.submit(workflow(any_name), {"name": "x"})
        await engine.client.signal(other, "x")
        assert (await end_of(engine, other)).status == "COMPLETED"
