"""Reruns of finished executions, on every backend: settled nodes do not run again."""

import asyncio
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from runnel.app.embedded_engine import EmbeddedEngine
from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.backends.redis.mailbox import RedisMailbox
from runnel.backends.sqlite.backend import SqliteBackend
from runnel.client import reruns
from runnel.client.reruns import PART_BYTES_MAX, RerunSpec
from runnel.core.commands import Command
from runnel.core.ids import ExecutionId
from runnel.core.retry import RetryPolicy
from runnel.core.states import ExecutionState
from runnel.core.workflow import Workflow
from runnel.errors import InputError, NotFoundError, StoreError, WrongStateError
from runnel.ports.archive import ExecutionFilter
from tests.core_driver import make_node, make_workflow
from tests.engines import DEADLINE_S, WorkHandler, open_engine, run_to_end, wait_for_end
from tests.integration.test_scenarios import engine, work
from tests.redis_postgres import open_archived_engine

__all__ = ["engine", "work"]

ONCE = RetryPolicy(max_retries=0)
LARGE = "l" * 300_000
PIPELINE = make_workflow(
    make_node("fetch", handler="input"),
    make_node("parse", "fetch", config={"text": "{{ fetch.text }}"}),
    make_node("store", "parse", config={"size": "{{ parse.text | length }}"}, retry=ONCE),
    make_node("tell", "store"),
)


async def run_failing(
    engine: EmbeddedEngine,
    work: WorkHandler,
    definition: Workflow = PIPELINE,
    *,
    text: str = "some",
) -> ExecutionId:
    work.failures["store"] = [ValueError("the disk is full")]
    execution_id = await engine.client.submit(definition, {"text": text}, labels={"team": "x"})
    assert (await wait_for_end(engine, execution_id)).status == "FAILED"
    work.calls.clear()
    return execution_id


@pytest.mark.parametrize("text", ["some", LARGE], ids=["small", "large"])
async def test_a_rerun_runs_the_failed_node_and_its_descendants(
    engine: EmbeddedEngine, work: WorkHandler, text: str
) -> None:
    former = await run_failing(engine, work, text=text)

    again = await engine.client.rerun(former)

    view = await wait_for_end(engine, again)
    assert (view.status, view.output) == ("COMPLETED", {"store": {"size": len(text)}})
    assert work.calls == ["store", "tell"]
    assert (view.rerun_of, view.labels["team"]) == (former, "x")
    assert view.nodes["parse"].reason == f"taken over from {former}"
    assert (await engine.client.get(former)).status == "FAILED"
    listed = await engine.client.list_executions(ExecutionFilter(limit=1))
    assert [header.rerun_of for header in listed] == [former]


async def test_a_completed_execution_is_rerun_completely_or_from_a_node(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    first = await run_to_end(engine, PIPELINE, {"text": "some"})
    former = ExecutionId(first.execution_id)
    work.calls.clear()

    whole_rerun = await wait_for_end(engine, await engine.client.rerun(former))
    calls, work.calls = work.calls, []
    part = await wait_for_end(engine, await engine.client.rerun(former, RerunSpec(again=["store"])))

    assert (calls, work.calls) == (["parse", "store", "tell"], ["store", "tell"])
    assert first.output == whole_rerun.output == part.output


async def test_a_rerun_with_another_input_runs_all_nodes_by_default(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    former = await run_failing(engine, work)

    whole_rerun = await wait_for_end(
        engine, await engine.client.rerun(former, input={"text": "longer text"})
    )
    calls, work.calls = work.calls, []
    part = await wait_for_end(
        engine,
        await engine.client.rerun(former, RerunSpec(is_whole=False), input={"text": "longer text"}),
    )

    assert (calls, work.calls) == (["parse", "store", "tell"], ["store", "tell"])
    assert (whole_rerun.output, part.output) == ({"store": {"size": 11}}, {"store": {"size": 4}})


async def test_a_rerun_with_the_newest_version_runs_the_changed_nodes(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    former = await run_failing(engine, work)
    changed = make_workflow(
        *PIPELINE.nodes[:2],
        make_node(
            "store", "parse", config={"twice": "{{ parse.text }}{{ parse.text }}"}, retry=ONCE
        ),
        make_node("tell", "store"),
    )
    await run_to_end(engine, changed, {"text": "other"})
    work.calls.clear()

    view = await wait_for_end(engine, await engine.client.rerun(former, RerunSpec(is_newest=True)))

    assert (view.version, view.output) == (2, {"store": {"twice": "somesome"}})
    assert work.calls == ["store", "tell"]


async def test_a_config_is_replaced_for_this_rerun_only(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    former = await run_failing(engine, work)
    edited = RerunSpec(configs={"store": {"text": "{{ fetch.text }}!"}})

    again = await engine.client.rerun(former, edited)

    view = await wait_for_end(engine, again)
    assert (view.version, view.output) == (1, {"store": {"text": "some!"}})
    whole_rerun = await wait_for_end(engine, await engine.client.rerun(again))
    assert whole_rerun.output == {"store": {"size": 4}}


async def test_a_rerun_of_a_rerun_reuses_the_results_of_both(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    former = await run_failing(engine, work, text=LARGE)
    work.failures["tell"] = [ValueError("no listener")]
    second = await engine.client.rerun(former, RerunSpec(again=["store"]))
    assert (await wait_for_end(engine, second)).status == "FAILED"
    work.calls.clear()

    view = await wait_for_end(engine, await engine.client.rerun(second))

    assert (view.status, work.calls) == ("COMPLETED", ["tell"])


async def test_only_items_that_did_not_complete_run_again(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    definition = make_workflow(
        make_node("list", handler="input"),
        make_node("each", "list", for_each="list.items", config={"n": "{{ item }}"}, retry=ONCE),
        max_concurrency=1,
    )
    work.failures["each"] = [*[None] * 12, ValueError("no")]
    execution_id = await engine.client.submit(definition, {"items": list(range(20))})
    assert (await wait_for_end(engine, execution_id)).status == "FAILED"
    work.calls.clear()

    view = await wait_for_end(engine, await engine.client.rerun(execution_id))

    assert view.output == [{"n": number} for number in range(20)]
    assert len(work.calls) == 20 - 12


async def test_the_results_of_large_graphs_are_reused_in_parts(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    count = 40
    texts = [
        make_node(f"n{number}", config={"text": str(number % 10) * (PART_BYTES_MAX // 20)})
        for number in range(count)
    ]
    last = make_node("last", *(node.id for node in texts), config={"ok": True}, retry=ONCE)
    work.failures["last"] = [ValueError("no")]
    former = await engine.client.submit(make_workflow(*texts, last))
    assert (await wait_for_end(engine, former)).status == "FAILED"
    work.calls.clear()

    again = await engine.client.rerun(former)

    assert (await wait_for_end(engine, again)).status == "COMPLETED"
    assert work.calls == ["last"]
    events = [entry.event for entry in await engine.client.history(again)]
    assert events.count("NodesTaken") > 2


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (RerunSpec(again=["stor"]), r"has no node 'stor' \(did you mean 'store'\?\)"),
        (RerunSpec(configs={"nope": {}}), "has no node 'nope'; there are: 'fetch'"),
        (RerunSpec(configs={"store": 3}), "node 'store': expected a config"),
        (
            RerunSpec(configs={"store": {"x": "{{ tell.y }}"}}),
            "config refers to 'tell.y'",
        ),
    ],
)
async def test_an_invalid_rerun_is_refused(tmp_path: Path, spec: RerunSpec, problem: str) -> None:
    work = WorkHandler()
    async with open_engine("memory", tmp_path, work) as engine:
        former = await run_failing(engine, work)

        with pytest.raises(InputError, match=problem):
            await engine.client.rerun(former, spec)


async def test_only_finished_roots_can_be_rerun(tmp_path: Path) -> None:
    work = WorkHandler()
    child = make_workflow(make_node("x", retry=ONCE))
    parent = make_workflow(make_node("w", handler="workflow", child=child))
    async with open_engine("memory", tmp_path, work) as engine:
        gate = work.gate("x")
        running = await engine.client.submit(parent)
        await work.entered["x"].wait()

        with pytest.raises(WrongStateError, match="is RUNNING, but only a final execution"):
            await engine.client.rerun(running)
        gate.set()
        await wait_for_end(engine, running)
        child_id = ExecutionId(f"{running}.w.1")
        with pytest.raises(WrongStateError, match=f"rerun its parent {running}"):
            await engine.client.rerun(child_id)
        with pytest.raises(NotFoundError):
            await engine.client.rerun(ExecutionId("none"))


async def test_a_rerun_does_not_depend_on_the_former_execution(tmp_path: Path) -> None:
    work = WorkHandler()
    async with open_engine("sqlite", tmp_path, work) as engine:
        former = await run_failing(engine, work, text=LARGE)
        gate = work.gate("store")
        again = await engine.client.rerun(former)
        await work.entered["store"].wait()
        assert isinstance(engine.backend, SqliteBackend)

        deleted = await engine.backend.retention.delete_finished(
            ExecutionState.FAILED, before=engine.clock.now() + 60, limit=9
        )
        gate.set()

        view = await wait_for_end(engine, again)
        assert (deleted, view.status) == (1, "COMPLETED")
        assert await engine.client.values.output(again, "parse") == {"text": LARGE}
        assert view.input == {"text": LARGE}


async def test_a_rerun_copies_archived_values_to_redis_for_the_workers(
    shared_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    work = WorkHandler()
    async with open_archived_engine(shared_redis, shared_postgres, work, keep_s=0.1) as archived:
        former = await run_failing(archived.engine, work, text=LARGE)
        async with asyncio.timeout(DEADLINE_S):
            while await archived.backend.redis.archive.get_header(former) is not None:
                await archived.backend.ledger.cursor(0)
        gate = work.gate("store")

        again = await archived.client.rerun(former)

        await work.entered["store"].wait()
        execution = await archived.client.load(again)
        values = [execution.input, execution.nodes[0].output, execution.nodes[1].output]
        keys = [value.blob for value in values if value is not None and value.blob is not None]
        contents = [await archived.backend.hot_blobs.get(key) for key in keys]
        gate.set()
        assert (await wait_for_end(archived.engine, again)).status == "COMPLETED"
    assert len(contents) == 3
    assert all(len(content) > len(LARGE) for content in contents)


async def test_a_rerun_starts_only_after_it_has_received_all_reused_results(
    shared_redis: RedisServer, shared_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis is unreachable while the second of three messages is sent."""
    monkeypatch.setattr(reruns, "PART_BLOB_BYTES_MAX", len(LARGE))
    work = WorkHandler()
    async with open_archived_engine(shared_redis, shared_postgres, work, resend_s=0.2) as archived:
        former = await run_failing(archived.engine, work, text=LARGE)
        deliver, sent = RedisMailbox.deliver, count(1)

        async def deliver_all_but_one(
            self: RedisMailbox, commands: Sequence[Command], **how: Any
        ) -> bool:
            if next(sent) == 2:
                raise StoreError("Redis: connection lost")
            return await deliver(self, commands, **how)

        monkeypatch.setattr(RedisMailbox, "deliver", deliver_all_but_one)

        again = await archived.client.rerun(former)

        assert (await wait_for_end(archived.engine, again)).status == "COMPLETED"
        assert next(sent) == 4
        assert work.calls == ["store", "tell"]
