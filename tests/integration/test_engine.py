"""`runnel.Engine` in an asynchronous program, on a data directory."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import runnel
from runnel.app.async_engine import AsyncEngine
from runnel.app.run_arguments import RunOptions
from runnel.app.run_context import find_open_engine
from runnel.backends.sqlite.store import SqliteStore
from runnel.client.protocol import Client
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.errors import (
    EngineEndedError,
    InputError,
    InvalidInputError,
    NotFoundError,
    PayloadError,
    WorkflowFailedError,
)
from runnel.settings import read_settings
from tests.integration import engine_flows as flows
from tests.waiting import wait_for_value, wait_until


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REDIS_URL", raising=False)
    monkeypatch.setenv("RUNNEL_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


async def wait_for_state(engine: AsyncEngine, execution_id: str, state: ExecutionState) -> None:
    async def read() -> bool | None:
        return True if (await engine.get(execution_id)).status is state else None

    await wait_for_value(read, every_s=0.01, deadline_s=10)


# Calls.


async def test_a_run_returns_the_result_in_the_annotated_type() -> None:
    async with runnel.Engine() as engine:
        page = await engine.run(flows.page, "a/b")
        number = await engine.run(flows.doubled, number=4)

    assert page == flows.Page("a/b", 2)
    assert number == 8


async def test_a_submitted_execution_runs_in_the_background() -> None:
    async with runnel.Engine() as engine:
        execution = await engine.submit(flows.page, "a/b")

        assert await engine.result(execution) == flows.Page("a/b", 2)


async def test_a_later_engine_gives_the_result_the_type_of_the_given_workflow() -> None:
    async with runnel.Engine() as engine:
        execution = await engine.submit(flows.page, "a/b")
        await engine.wait(execution)

    async with runnel.Engine() as engine:
        plain = await engine.result(execution)
        typed = await engine.result(execution, flows.page)
    async with runnel.Engine(apps=[flows.__name__]) as engine:
        known = await engine.result(execution)

    assert plain == {"url": "a/b", "words": 2}
    assert typed == known == flows.Page("a/b", 2)


async def test_a_signal_lets_an_execution_continue(tmp_path: Path) -> None:
    async with runnel.Engine() as engine:
        execution = await engine.submit(flows.approved, str(tmp_path / "notes"))
        await engine.signal(execution, "approve", {"by": "ada"})

        assert await engine.result(execution) == {"by": "ada", "said": "after"}


async def test_an_execution_is_cancelled_read_listed_followed_and_rerun() -> None:
    async with runnel.Engine() as engine:
        execution = await engine.submit(flows.waiting)
        await wait_for_state(engine, execution, ExecutionState.RUNNING)
        await engine.cancel(execution, reason="no longer needed")
        view = await engine.wait(execution)
        events = [event.event async for event in engine.follow(execution)]
        listed = [summary.execution_id async for summary in engine.executions(states=["cancelled"])]
        page = await engine.list_executions()
        again = await engine.rerun(execution)
        await engine.cancel(again)

    assert view.status is ExecutionState.CANCELLED
    assert view.error is not None
    assert "no longer needed" in view.error
    assert events[-1] == "ExecutionFinished"
    assert listed == [execution] == [summary.execution_id for summary in page]


async def test_many_inputs_are_submitted_and_run() -> None:
    inputs = [{"number": number} for number in range(5)]
    async with runnel.Engine() as engine:
        ids = await engine.submit_many(flows.doubled, inputs)
        submitted = [await engine.result(execution) for execution in ids]
        run = {
            result.index: result.output async for result in engine.run_many(flows.doubled, inputs)
        }

    assert submitted == [0, 2, 4, 6, 8]
    assert run == dict(enumerate(submitted))


async def test_a_workflow_without_a_function_takes_one_input_and_options() -> None:
    dag = runnel.WorkflowDAG("plain")
    dag.add_node("a", "output", {"x": "{{ input.x }}"})
    async with runnel.Engine() as engine:
        output = await engine.run(dag, {"x": 3}, labels={"team": "a"}, idempotency_key="monday")
        again = await engine.submit(dag, {"x": 3}, idempotency_key="monday")
        view = await engine.get(again)

    assert output == {"x": 3}
    assert view.labels["team"] == "a"
    assert view.status is ExecutionState.COMPLETED


async def test_an_engine_implements_the_protocol_of_clients() -> None:
    async with runnel.Engine() as engine:
        client: Client = engine
        execution = await client.submit(flows.doubled.to_workflow(), {"number": 2})
        view = await client.wait(execution)
        stored = await client.library.get("doubled")

    assert view.output == 4
    assert stored.name == "doubled"


async def test_a_schedule_of_an_engine_fires() -> None:
    async with runnel.Engine(schedules=True) as engine:
        await engine.store(flows.doubled)
        schedule = runnel.Schedule(
            id="often", workflow="doubled", interval_s=1, input={"number": 21}
        )
        await engine.schedules.add(schedule)

        async def find() -> ExecutionId | None:
            ids = [summary.execution_id async for summary in engine.executions(workflow="doubled")]
            return ids[0] if ids else None

        execution = await wait_for_value(find, every_s=0.05, deadline_s=10)
        assert await engine.result(execution) == 42


# Wrong use.


async def test_a_failed_execution_raises_its_error() -> None:
    async with runnel.Engine() as engine:
        with pytest.raises(WorkflowFailedError, match="LookupError: no such page") as caught:
            await engine.run(flows.failing)
        with pytest.raises(WorkflowFailedError):
            await engine.result(caught.value.execution_id)


async def test_an_engine_that_is_not_open_says_so() -> None:
    engine = runnel.Engine()
    with pytest.raises(InputError, match=r"is not open: use it inside 'async with runnel\.Engine"):
        await engine.run(flows.doubled, 1)
    async with engine:
        with pytest.raises(InputError, match="is open already"):
            await engine.__aenter__()
    with pytest.raises(InputError, match="this engine is closed"):
        await engine.submit(flows.doubled, 1)


async def test_an_engine_can_be_opened_again() -> None:
    engine = runnel.Engine()
    for number in (1, 2):
        async with engine:
            assert await engine.run(flows.doubled, number) == 2 * number


async def test_another_event_loop_is_refused() -> None:
    async with runnel.Engine() as engine:
        with pytest.raises(InputError, match="belongs to another event loop"):
            await asyncio.to_thread(asyncio.run, engine.run(flows.doubled, 1))


async def test_an_unknown_execution_and_wrong_inputs_are_refused() -> None:
    async with runnel.Engine() as engine:
        for call in (
            engine.result("x"),
            engine.get("x"),
            engine.signal("x", "a"),
            engine.wait("x"),
        ):
            with pytest.raises(NotFoundError, match="execution 'x'"):
                await call
        with pytest.raises(InvalidInputError, match="expected a whole number"):
            await engine.run(flows.doubled, "many")  # type: ignore[call-overload]
        with pytest.raises(PayloadError, match="the value is not JSON"):
            await engine.submit(flows.doubled, object())  # type: ignore[call-overload]
        with pytest.raises(InputError, match="expected a @workflow"):
            await engine.run(flows.double)  # type: ignore[call-overload]
        with pytest.raises(InputError, match=r"write runnel\.Engine\(concurrency=\.\.\.\)"):
            await engine.run(flows.doubled.run_options(concurrency=1), 1)
        with pytest.raises(TimeoutError):
            await engine.result(await engine.submit(flows.waiting), timeout_s=0.05)


def test_wrong_arguments_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="name two stores"):
        runnel.Engine(data_dir="a", redis_url="redis://localhost")
    with pytest.raises(InputError, match=r"such as \['report'\]"):
        runnel.Engine(apps="report")
    with pytest.raises(InputError, match="concurrency: expected at least 1"):
        runnel.Engine(concurrency=0)
    with pytest.raises(InputError, match="apps: "), runnel.Engine(apps=["no_such_module"]):
        pass
    with pytest.raises(InputError, match="runs_tasks=False"), runnel.Engine(runs_tasks=False):
        pass
    monkeypatch.setenv("RUNNEL_SERVER", "http://localhost:1")
    with pytest.raises(InputError, match=r"use runnel\.Client"), runnel.Engine():
        pass


# The end of an engine.


async def test_running_tasks_end_before_the_engine_closes(tmp_path: Path) -> None:
    notes, gate = tmp_path / "notes", tmp_path / "gate"
    async with runnel.Engine() as engine:
        await engine.submit(flows.held, str(notes), str(gate))
        await wait_until(notes.exists)
        asyncio.get_running_loop().call_later(0.2, gate.touch)

    assert notes.read_text() == f"begun {os.getpid()}\nended {os.getpid()}\n"


async def test_the_next_engine_resumes_what_was_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKER_GRACEFUL_SHUTDOWN_TIMEOUT", "0")
    notes, gate = tmp_path / "notes", tmp_path / "gate"
    async with runnel.Engine() as engine:
        execution = await engine.submit(flows.held, str(notes), str(gate))
        await wait_until(notes.exists)
    gate.touch()

    async with runnel.Engine() as engine:
        assert await engine.result(execution) == os.getpid()


async def test_a_cancelled_block_does_not_wait_for_tasks(tmp_path: Path) -> None:
    notes = tmp_path / "notes"

    async def serve() -> None:
        async with runnel.Engine() as engine:
            await engine.run(flows.held, str(notes), str(tmp_path / "never"))

    loop = asyncio.get_running_loop()
    serving = asyncio.create_task(serve())
    await wait_until(notes.exists)
    began = loop.time()
    serving.cancel()
    await asyncio.wait([serving])

    assert serving.cancelled()
    assert loop.time() - began < 10, "a task may take 30 s to end by itself"


async def test_a_cancelled_call_leaves_the_engine_and_its_execution_running(tmp_path: Path) -> None:
    notes, gate = tmp_path / "notes", tmp_path / "gate"
    async with runnel.Engine() as engine:
        flow = flows.held.run_options(key="one")
        call = asyncio.create_task(engine.run(flow, str(notes), str(gate)))
        await wait_until(notes.exists)
        call.cancel()
        await asyncio.wait([call])
        gate.touch()

        assert await engine.run(flow, str(notes), str(gate)) == os.getpid()
    assert notes.read_text().count("begun") == 1


async def test_an_engine_that_fails_raises_in_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug in the orchestrator ends it. No caller may wait for an engine that does not run."""
    has_failed = asyncio.Event()
    list_partitions = SqliteStore.partitions_with_work

    async def break_down(self: SqliteStore) -> Sequence[int]:
        if has_failed.is_set():
            raise ZeroDivisionError("a bug")
        return await list_partitions(self)

    monkeypatch.setattr(SqliteStore, "partitions_with_work", break_down)
    monkeypatch.setenv("ORCHESTRATOR_LEASE_TIMEOUT", "0.6")
    waits: list[asyncio.Task[Any]] = []

    async def use_engine() -> None:
        async with runnel.Engine() as engine:
            execution = await engine.submit(flows.waiting)
            waits[:] = [
                asyncio.create_task(engine.result(execution)),
                asyncio.create_task(engine.wait(execution)),
                asyncio.create_task(engine.run(flows.waiting)),
                asyncio.create_task(runnel.run(flows.waiting)),
                asyncio.create_task(follow_to_end(engine, execution)),
            ]
            await wait_for_state(engine, execution, ExecutionState.RUNNING)
            has_failed.set()
            await asyncio.wait(waits, timeout=20)
            for submit in (engine.submit, runnel.submit):
                with pytest.raises(EngineEndedError, match="a bug"):
                    await submit(flows.waiting)

    with pytest.raises(EngineEndedError, match="a bug") as caught:
        await use_engine()

    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert [type(wait.exception()) for wait in waits] == [EngineEndedError] * 5


async def follow_to_end(engine: AsyncEngine, execution: str) -> None:
    async for _ in engine.follow(execution):
        pass


async def test_an_engine_whose_worker_was_drained_raises() -> None:
    async def use_engine() -> None:
        async with runnel.Engine() as engine:
            execution = await engine.submit(flows.waiting)
            workers = await wait_for_value(
                lambda: list_workers(engine), every_s=0.05, deadline_s=10
            )
            await engine.operations.drain(workers[0])
            await engine.result(execution)

    with pytest.raises(EngineEndedError, match="its worker was drained"):
        await use_engine()


async def list_workers(engine: AsyncEngine) -> list[str] | None:
    return [worker.worker for worker in await engine.operations.workers()] or None


# Several engines on one data directory.


async def test_a_living_engine_resumes_the_executions_of_one_that_ended(
    tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It then gives the partition up, so that restarts do not add partitions."""
    monkeypatch.setenv("ORCHESTRATOR_LEASE_TIMEOUT", "0.5")
    async with runnel.Engine() as living:
        for number in range(4):
            notes = tmp_path / str(number)
            async with runnel.Engine() as other:
                execution = await other.submit(flows.approved, str(notes))
                await wait_until(notes.exists)
            await living.signal(execution, "approve", {"by": "ada"})
            assert await living.result(execution) == {"by": "ada", "said": "after"}
            given_up = partial(is_given_up, living, execution)
            await wait_for_value(given_up, every_s=0.02, deadline_s=10)

    assert len(list(data_dir.glob("p*.lock"))) == 2


async def is_given_up(engine: AsyncEngine, execution_id: ExecutionId) -> bool | None:
    partition = await engine.operations.partition_of(execution_id)
    return True if partition.owner is None else None


# The functions `runnel.run`, `submit` and `run_many` beside an open engine.


async def test_module_functions_use_the_open_engine(data_dir: Path) -> None:
    async with runnel.Engine() as engine:
        number = await runnel.run(flows.doubled, 3)
        execution = await runnel.submit(flows.doubled, 4)
        submitted = await engine.result(execution)
        many = [result.output async for result in runnel.run_many(flows.doubled, [{"number": 5}])]
        in_threads = await asyncio.gather(
            *(asyncio.to_thread(flows.doubled.run, number) for number in range(5))
        )
        stored = await asyncio.to_thread(flows.doubled.submit, 6)
        from_thread = await engine.result(stored)

    assert [number, submitted, many, from_thread] == [6, 8, [10], 12]
    assert in_threads == [0, 2, 4, 6, 8]
    assert len(list(data_dir.glob("p*.lock"))) == 1, "another engine was opened"


async def test_module_functions_use_the_engine_of_another_event_loop(data_dir: Path) -> None:
    async def run_elsewhere() -> list[Any]:
        many = runnel.run_many(flows.doubled, [{"number": 7}])
        async with aclosing(many) as results:
            outputs = [result.output async for result in results]
        return [await runnel.run(flows.doubled, 3), *outputs]

    async with runnel.Engine():
        assert await asyncio.to_thread(lambda: asyncio.run(run_elsewhere())) == [6, 14]
    assert len(list(data_dir.glob("p*.lock"))) == 1, "another engine was opened"


async def test_a_call_that_names_no_store_uses_the_open_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RUNNEL_DATA_DIR")
    async with runnel.Engine(data_dir=tmp_path / "mine") as engine:
        execution = await runnel.submit(flows.doubled, 4)
        assert await engine.result(execution) == 8

    assert not (tmp_path / ".runnel").exists()


async def test_a_call_for_another_store_does_not_use_the_open_engine(tmp_path: Path) -> None:
    other = flows.doubled.run_options(data_dir=tmp_path / "other")
    async with runnel.Engine() as engine:
        assert await runnel.run(other, 4) == 8
        assert [summary async for summary in engine.executions()] == []
    assert find_open_engine(read_settings(), RunOptions()) is None


async def test_tasks_run_and_submit_executions_in_the_engine(data_dir: Path) -> None:
    async with runnel.Engine(concurrency=1) as engine:
        assert await engine.run(flows.runs_inside, 5) == 10
        execution = await engine.run(flows.submits_inside, 6)
        assert await engine.result(execution) == 12
    assert len(list(data_dir.glob("p*.lock"))) == 1, "another engine was opened"


async def test_the_timeout_of_a_task_ends_its_wait_for_an_execution() -> None:
    async with runnel.Engine(concurrency=1) as engine:
        with pytest.raises(WorkflowFailedError, match="TaskTimeoutError"):
            await engine.run(flows.waits_inside)
        assert await engine.run(flows.doubled, 5) == 10
