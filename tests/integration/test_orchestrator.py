"""The owner of a partition with undecidable commands, missing blobs and large decisions."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runnel.app.embedded_engine import ClockAndIds, EmbeddedEngine, run_engine
from runnel.backends.blob_files import FileBlobs
from runnel.backends.memory import MemoryBackend
from runnel.core.commands import Command, CreateExecution, TaskCompleted
from runnel.core.decide import create as real_create
from runnel.core.decide import decide as real_decide
from runnel.core.ids import ExecutionId
from runnel.core.workflow import encode_workflow, hash_workflow
from runnel.engine import blob_cache
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.engine.orchestrator import partition_owner as owner
from runnel.errors import StoreError
from runnel.handlers import create_builtin_registry
from runnel.ports.store import CommitLimits
from runnel.settings.model import Settings
from tests.core_driver import make_node, make_workflow
from tests.engines import (
    WorkHandler,
    build_registry,
    get_node_states,
    open_engine,
    run_to_end,
    wait_for_end,
    watch_completion,
)


def fail_once_for(kind: type) -> Callable[..., Any]:
    raised: list[Command] = []

    def decide(execution: Any, agenda: Any, command: Command, inputs: Any) -> Any:
        if isinstance(command, kind) and not raised:
            raised.append(command)
            raise RuntimeError("a bug")
        return real_decide(execution, agenda, command, inputs)

    return decide


@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis"])
async def test_an_undecidable_command_fails_only_its_own_execution(
    kind: str, redis_url: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, "decide", fail_once_for(TaskCompleted))
    async with open_engine(kind, tmp_path, WorkHandler(), redis_url=redis_url) as engine:
        poisoned = await run_to_end(engine, make_workflow(make_node("a"), make_node("b", "a")))
        other = await run_to_end(engine, make_workflow(make_node("a"), make_node("b", "a")))
        letters = await engine.backend.archive.list_dead_letters()

    assert poisoned.status == "FAILED"
    assert "this is a bug of Runnel" in (poisoned.error or "")
    assert other.status == "COMPLETED"
    assert [letter.handler for letter in letters] == ["TaskCompleted"]
    assert "RuntimeError: a bug" in (letters[0].error.traceback or "")


async def test_an_unreadable_message_becomes_a_dead_letter(tmp_path: Path) -> None:
    async with open_engine("sqlite", tmp_path, WorkHandler()) as engine:
        await run_to_end(engine, make_workflow(make_node("a")))
    with sqlite3.connect(tmp_path / "runnel.db") as db:
        db.execute("INSERT INTO messages (partition, body) VALUES (0, ?)", (b"\x00 nonsense",))
    db.close()

    async with open_engine("sqlite", tmp_path, WorkHandler(), adopts=True) as engine:
        view = await run_to_end(engine, make_workflow(make_node("a")))
        letters = await engine.backend.archive.list_dead_letters()

    assert view.status == "COMPLETED"
    assert [letter.error.type for letter in letters] == ["UnreadableMessage"]


async def test_a_missing_blob_fails_the_execution_that_needs_it(tmp_path: Path) -> None:
    work = WorkHandler()
    gate = work.gate("slow")
    definition = make_workflow(
        make_node("big", config={"text": "x" * 300_000}),
        make_node("slow"),
        make_node("look", "big", "slow", condition="big.text | length > 1"),
    )
    async with open_engine("sqlite", tmp_path, work) as engine:
        big_is_done = watch_completion(engine, "big")
        execution_id = await engine.client.submit(definition)
        await work.entered["slow"].wait()
        await big_is_done.wait()
        await engine.backend.blobs.delete(execution_id)
        gate.set()
        header = await engine.client.wait_for_end(execution_id, timeout_s=10)

    assert header.state == "FAILED"
    assert "no blob" in (header.error or "")


async def test_a_temporarily_unreadable_blob_fails_no_execution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = WorkHandler()
    gate = work.gate("each")
    mapped = make_node("each", "list", for_each="list.items")
    definition = make_workflow(make_node("list", config={"items": ["x" * 100_000] * 4}), mapped)
    async with open_engine("sqlite", tmp_path, work) as engine:
        execution_id = await engine.client.submit(definition)
        await work.entered["each"].wait()

    gate.set()
    monkeypatch.setattr(FileBlobs, "get", fail_once(FileBlobs.get))
    async with open_engine("sqlite", tmp_path, work, adopts=True) as engine:
        header = await engine.client.wait_for_end(execution_id, timeout_s=10)

    assert header.state == "COMPLETED"


@pytest.mark.parametrize("writes", [10, 50])
async def test_a_decision_larger_than_a_commit_is_split_without_loss(writes: int) -> None:
    world = ClockAndIds(RealClock(), RandomIdGenerator())
    limits = CommitLimits(commands=8, writes=writes, size_bytes=40_000)
    backend = MemoryBackend(world.clock, world.ids, limits=limits)
    engine = EmbeddedEngine(
        backend,
        build_registry(WorkHandler()),
        world,
        Settings(worker_concurrency=16, shutdown_timeout_s=0.1),
    )
    fan = [make_node(f"n{i}", "a") for i in range(200)]

    async with run_engine(engine):
        view = await run_to_end(
            engine, make_workflow(make_node("a"), *fan, make_node("z", *[n.id for n in fan]))
        )

    assert view.status == "COMPLETED"
    assert set(get_node_states(view).values()) == {"COMPLETED"}


async def test_idle_executions_are_evicted_from_memory_and_loaded_again(tmp_path: Path) -> None:
    work = WorkHandler()
    wait = make_node("ok", "a", handler="wait_for_signal", config={"signal": "go"})
    async with open_engine("sqlite", tmp_path, work, cached_executions_max=5) as engine:
        ids = [await engine.client.submit(make_workflow(make_node("a"), wait)) for _ in range(40)]
        for execution_id in ids:
            await engine.client.signal(execution_id, "go", execution_id)
        views = [await wait_for_end(engine, execution_id) for execution_id in ids]

    assert [view.output for view in views] == ids


def test_the_built_in_handlers_are_registered() -> None:
    assert {"input", "output", "data_processor", "python"} <= set(create_builtin_registry().names())


async def _bystander_completes(engine: EmbeddedEngine) -> bool:
    return (await run_to_end(engine, make_workflow(make_node("a")))).status == "COMPLETED"


@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis"])
async def test_a_config_too_large_to_store_fails_only_its_own_execution(
    kind: str, redis_url: str | None, tmp_path: Path
) -> None:
    large = make_workflow(make_node("a", config={"text": "x" * 1_200_000}))
    hash_ = hash_workflow(large)
    async with open_engine(kind, tmp_path, WorkHandler(), redis_url=redis_url) as engine:
        await engine.backend.archive.put_definition("l", hash_, encode_workflow(large))
        command = CreateExecution(
            execution_id=ExecutionId("large"),
            workflow="l",
            definition=hash_,
            version=1,
            created_at=1.0,
        )
        await engine.backend.mailbox.send([command])
        header = await engine.client.wait_for_end(ExecutionId("large"), timeout_s=10)

        assert header.state == "FAILED"
        assert "the config of node 'a' has 1,200," in (header.error or "")
        assert (await engine.client.get(ExecutionId("large"))).status == "FAILED"
        assert await _bystander_completes(engine)


async def test_an_unloadable_execution_does_not_stop_others_from_resuming(
    tmp_path: Path,
) -> None:
    work = WorkHandler()
    work.gate("each")
    mapped = make_node("each", "list", for_each="list.items")
    definition = make_workflow(make_node("list", config={"items": ["x" * 100_000] * 4}), mapped)
    async with open_engine("sqlite", tmp_path, work) as engine:
        broken = await engine.client.submit(definition)
        await work.entered["each"].wait()
        wait = make_node("ok", handler="wait_for_signal", config={"signal": "go"})
        other = await engine.client.submit(make_workflow(wait))
        await engine.backend.blobs.delete(broken)

    async with open_engine("sqlite", tmp_path, work, adopts=True) as engine:
        await engine.client.signal(other, "go")
        ended = await engine.client.wait_for_end(broken, timeout_s=10)

        assert (await engine.client.wait_for_end(other, timeout_s=10)).state == "COMPLETED"
        assert ended.state == "FAILED"
        assert "no blob" in (ended.error or "")


async def test_outputs_larger_than_the_blob_cache_do_not_cause_an_endless_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_cache, "CACHE_BYTES_MAX", 1_000_000)
    big = [make_node(f"n{i}", config={"text": "{{ input.text }}"}) for i in range(3)]
    async with open_engine("sqlite", tmp_path, WorkHandler()) as engine:
        view = await run_to_end(engine, make_workflow(*big), {"text": "x" * 600_000})

    assert view.status == "COMPLETED"
    assert sorted(view.output) == ["n0", "n1", "n2"]


async def test_too_many_large_outputs_at_once_fail_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_cache, "CACHE_BYTES_MAX", 1_000_000)
    monkeypatch.setattr(blob_cache, "CACHED_BLOBS_MIN", 1)
    big = [make_node(f"n{i}", config={"text": "{{ input.text }}"}) for i in range(3)]
    async with open_engine("sqlite", tmp_path, WorkHandler()) as engine:
        view = await run_to_end(engine, make_workflow(*big), {"text": "x" * 600_000})

    assert view.status == "FAILED"
    assert "more large outputs at once" in (view.error or "")


async def test_failed_store_calls_are_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_engine("sqlite", tmp_path, WorkHandler(), lease_s=0.3) as engine:
        store = engine.backend.store
        failing = ["renew", "release", "acquire"]
        for name in failing:
            monkeypatch.setattr(store, name, fail_once(getattr(store, name)))
        monkeypatch.setattr(store, "commit", fail_once(store.commit))

        view = await run_to_end(engine, make_workflow(make_node("a")))

    assert view.status == "COMPLETED"


def fail_once(method: Callable[..., Any]) -> Callable[..., Any]:
    failures = [1]

    async def call(*arguments: Any, **named: Any) -> Any:
        if failures:
            failures.pop()
            raise StoreError("the database is locked")
        return await method(*arguments, **named)

    return call


async def test_a_child_that_can_not_be_created_fails_its_parents_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create(command: CreateExecution, *rest: Any) -> Any:
        if command.parent is not None:
            raise RuntimeError("a bug")
        return real_create(command, *rest)

    monkeypatch.setattr(owner, "create", create)
    parent = make_node("sub", handler="workflow", child=make_workflow(make_node("c")))
    async with open_engine("sqlite", tmp_path, WorkHandler()) as engine:
        view = await run_to_end(engine, make_workflow(parent))

        assert view.status == "FAILED"
        assert "child execution" in (view.nodes["sub"].error or "")
        assert await _bystander_completes(engine)
