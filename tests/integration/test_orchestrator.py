"""The owner of a partition when something is wrong: poison, missing blobs, large decisions."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runnel.backends.memory import MemoryBackend
from runnel.core.commands import Command, TaskCompleted
from runnel.core.decide import decide as real_decide
from runnel.engine.orchestrator import owner
from runnel.handlers import builtin_registry
from runnel.ports.store import CommitLimits
from runnel.runtime.clock import RealClock, RealIds
from runnel.runtime.engine import Engine, World, running
from runnel.settings import Settings
from tests.driver import node, workflow
from tests.engines import Work, completion_of, end_of, open_engine, registry, run_to_end, states


def raising_once_for(kind: type) -> Callable[..., Any]:
    raised: list[Command] = []

    def decide(execution: Any, command: Command, moment: Any) -> Any:
        if isinstance(command, kind) and not raised:
            raised.append(command)
            raise RuntimeError("a bug")
        return real_decide(execution, command, moment)

    return decide


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_command_that_can_not_be_decided_ends_its_execution_and_no_other(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, "decide", raising_once_for(TaskCompleted))
    async with open_engine(kind, tmp_path, Work()) as engine:
        poisoned = await run_to_end(engine, workflow(node("a"), node("b", "a")))
        other = await run_to_end(engine, workflow(node("a"), node("b", "a")))
        letters = await engine.backend.archive.list_dead_letters()

    assert poisoned.status == "FAILED"
    assert "this is a bug of Runnel" in (poisoned.error or "")
    assert other.status == "COMPLETED"
    assert [letter.handler for letter in letters] == ["TaskCompleted"]
    assert "RuntimeError: a bug" in (letters[0].error.traceback or "")


async def test_a_message_that_can_not_be_read_is_set_aside(tmp_path: Path) -> None:
    async with open_engine("sqlite", tmp_path, Work()) as engine:
        await run_to_end(engine, workflow(node("a")))
    with sqlite3.connect(tmp_path / "runnel.db") as db:
        db.execute("INSERT INTO messages (partition, body) VALUES (0, ?)", (b"\x00 nonsense",))
    db.close()

    async with open_engine("sqlite", tmp_path, Work(), adopts=True) as engine:
        view = await run_to_end(engine, workflow(node("a")))
        letters = await engine.backend.archive.list_dead_letters()

    assert view.status == "COMPLETED"
    assert [letter.error.type for letter in letters] == ["UnreadableMessage"]


async def test_a_blob_that_is_gone_fails_the_execution_that_needs_it(tmp_path: Path) -> None:
    work = Work()
    gate = work.gate("slow")
    definition = workflow(
        node("big", config={"text": "x" * 300_000}),
        node("slow"),
        node("look", "big", "slow", condition="big.text | length > 1"),
    )
    async with open_engine("sqlite", tmp_path, work) as engine:
        big_is_done = completion_of(engine, "big")
        execution_id = await engine.client.submit(definition)
        await work.entered["slow"].wait()
        await big_is_done.wait()
        await engine.backend.blobs.delete(execution_id)
        gate.set()
        header = await engine.client.wait(execution_id, timeout_s=10)

    assert header.state == "FAILED"
    assert "no blob" in (header.error or "")


@pytest.mark.parametrize("writes", [10, 50])
async def test_a_decision_larger_than_a_commit_is_cut_and_nothing_is_lost(writes: int) -> None:
    world = World(RealClock(), RealIds())
    limits = CommitLimits(commands=8, writes=writes, size_bytes=4_000)
    backend = MemoryBackend(world.clock, world.ids, limits=limits)
    engine = Engine(
        backend, registry(Work()), world, Settings(worker_concurrency=16, shutdown_timeout_s=0.1)
    )
    fan = [node(f"n{i}", "a") for i in range(200)]

    async with running(engine):
        view = await run_to_end(engine, workflow(node("a"), *fan, node("z", *[n.id for n in fan])))

    assert view.status == "COMPLETED"
    assert set(states(view).values()) == {"COMPLETED"}


async def test_idle_executions_leave_the_memory_and_come_back(tmp_path: Path) -> None:
    work = Work()
    wait = node("ok", "a", handler="wait_for_signal", config={"signal": "go"})
    async with open_engine("sqlite", tmp_path, work, cached_executions_max=5) as engine:
        ids = [await engine.client.submit(workflow(node("a"), wait)) for _ in range(40)]
        for execution_id in ids:
            await engine.client.signal(execution_id, "go", execution_id)
        views = [await end_of(engine, execution_id) for execution_id in ids]

    assert [view.output for view in views] == ids


def test_the_built_in_handlers_are_registered() -> None:
    assert {"input", "output", "data_processor", "python"} <= set(builtin_registry().names())
