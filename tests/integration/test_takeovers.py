"""Partitions that are lost and come back: nothing waits for ever, nobody waits for nothing."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runnel.errors import StoreError
from runnel.ports.store import Commit, Lease
from tests.core_driver import make_node, make_workflow
from tests.engines import WorkHandler, open_engine, run_to_end, wait_for_end

LARGE = "x" * 300_000
WAIT = make_node("ok", handler="wait_for_signal", config={"signal": "go"})


def failing_at(number: int, commit: Callable[[Lease, Commit], Any]) -> Callable[..., Any]:
    """The same commit, but the `number`-th call (from 1) raises before it writes."""
    calls = 0

    async def call(lease: Lease, commit_: Commit) -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            raise StoreError("the database is locked")
        await commit(lease, commit_)

    return call


@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis"])
async def test_many_large_outputs_in_one_batch_are_no_endless_loop(
    kind: str, redis_url: str | None, tmp_path: Path
) -> None:
    sources = [make_node(f"s{i}", config={"text": "{{ input.text }}"}) for i in range(120)]
    checks = [make_node(f"c{i}", f"s{i}", condition=f"s{i}.text | length > 1") for i in range(120)]
    definition = make_workflow(*sources, *checks, output="done")

    async with open_engine(
        kind, tmp_path, WorkHandler(), concurrency=64, redis_url=redis_url
    ) as engine:
        view = await run_to_end(engine, definition, {"text": LARGE})

    assert view.status == "COMPLETED"


async def test_all_who_wait_for_a_key_are_remembered_by_a_restart(tmp_path: Path) -> None:
    work = WorkHandler()
    gate = work.gate("a")
    keyed = make_workflow(make_node("a", concurrency_key="k"))
    async with open_engine("sqlite", tmp_path, work) as engine:
        ids = [await engine.client.submit(keyed) for _ in range(150)]
        await work.entered["a"].wait()

    gate.set()
    async with open_engine("sqlite", tmp_path, work, adopts=True) as engine:
        views = [await wait_for_end(engine, execution_id) for execution_id in ids]

    assert {view.status for view in views} == {"COMPLETED"}
    assert work.running_most == 1


async def test_waiting_ends_when_somebody_else_ended_the_execution(tmp_path: Path) -> None:
    async with open_engine("sqlite", tmp_path, WorkHandler(), adopts=True, lease_s=0.3) as first:
        async with open_engine("sqlite", tmp_path, WorkHandler(), lease_s=0.3) as second:
            execution_id = await second.client.submit(make_workflow(make_node("a"), WAIT))
            with pytest.raises(TimeoutError):
                await first.client.wait_for_end(execution_id, timeout_s=0.05)
            await second.client.signal(execution_id, "go")
            await second.client.wait_for_end(execution_id, timeout_s=20)

        assert (await first.client.wait_for_end(execution_id, timeout_s=20)).state == "COMPLETED"


async def test_a_damaged_history_ends_its_execution_and_no_other(tmp_path: Path) -> None:
    work = WorkHandler()
    async with open_engine("sqlite", tmp_path, work) as engine:
        damaged = await engine.client.submit(make_workflow(WAIT))
        innocent = await engine.client.submit(make_workflow(WAIT))
    with sqlite3.connect(tmp_path / "runnel.db") as db:
        db.execute("UPDATE history SET entry = ? WHERE aggregate_id = ?", (b"garbage", damaged))
    db.close()

    async with open_engine("sqlite", tmp_path, work, adopts=True) as engine:
        await engine.client.signal(innocent, "go")

        assert (await engine.client.wait_for_end(innocent, timeout_s=20)).state == "COMPLETED"
        assert (await engine.client.wait_for_end(damaged, timeout_s=20)).state == "FAILED"


async def test_a_partition_whose_lock_can_not_be_opened_keeps_no_engine_from_the_others(
    tmp_path: Path,
) -> None:
    async with (
        open_engine("sqlite", tmp_path, WorkHandler()) as first,
        open_engine("sqlite", tmp_path, WorkHandler()) as second,
    ):
        await first.client.submit(make_workflow(WAIT))
        within_reach = await second.client.submit(make_workflow(WAIT))
    (tmp_path / "p0.lock").unlink()
    (tmp_path / "p0.lock").mkdir()

    async with open_engine("sqlite", tmp_path, WorkHandler(), adopts=True) as engine:
        await engine.client.signal(within_reach, "go")

        assert (await engine.client.wait_for_end(within_reach, timeout_s=20)).state == "COMPLETED"


async def test_a_history_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    work = WorkHandler()
    async with open_engine("sqlite", tmp_path, work) as engine:
        later = await engine.client.submit(make_workflow(WAIT))
    with sqlite3.connect(tmp_path / "runnel.db") as db:
        newer = (b"[9,1.0,[]]", later)
        db.execute("UPDATE history SET entry = ? WHERE aggregate_id = ?", newer)
    db.close()

    async with open_engine("sqlite", tmp_path, work, adopts=True) as engine:
        assert (await run_to_end(engine, make_workflow(make_node("a")))).status == "COMPLETED"
        header = await engine.backend.archive.get_header(later)

    assert header is not None
    assert header.state == "RUNNING"


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_a_creation_cut_into_several_commits_is_completed_after_a_failure(
    number: int, tmp_path: Path
) -> None:
    skipped = [make_node(f"a_node_with_a_rather_long_name_{i}", "a") for i in range(20_000)]
    definition = make_workflow(
        make_node("a", condition="input.go"), *skipped, make_node("z", config={"z": 1})
    )
    async with open_engine("sqlite", tmp_path, WorkHandler(), lease_s=0.3) as engine:
        store = engine.backend.store
        store.commit = failing_at(number, store.commit)  # type: ignore[method-assign]

        view = await run_to_end(engine, definition, {"go": False})

    assert view.status == "COMPLETED"
    assert view.nodes["z"].output == {"z": 1}


async def test_a_key_is_free_again_after_its_partition_went_to_another_process(
    tmp_path: Path,
) -> None:
    work = WorkHandler()
    gate = work.gate("held")
    async with open_engine("sqlite", tmp_path, work, lease_s=0.3) as first:
        held = await first.client.submit(make_workflow(make_node("held", concurrency_key="k")))
        await work.entered["held"].wait()
        store = first.backend.store
        store.commit = failing_at(1, store.commit)  # type: ignore[method-assign]
        gate.set()

        assert (await first.client.wait_for_end(held, timeout_s=20)).state == "COMPLETED"
        again = await run_to_end(first, make_workflow(make_node("next", concurrency_key="k")))

    assert again.status == "COMPLETED"
