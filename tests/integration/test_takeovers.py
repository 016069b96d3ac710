"""Lost and recovered partitions: every execution ends, and every waiter is released."""

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


def fail_at(number: int, commit: Callable[[Lease, Commit], Any]) -> Callable[..., Any]:
    """Returns a commit function whose `number`-th call (from 1) raises before it writes."""
    calls = 0

    async def call(lease: Lease, batch: Commit) -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            raise StoreError("the database is locked")
        await commit(lease, batch)

    return call


@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis"])
async def test_many_large_outputs_in_one_batch_do_not_cause_an_endless_loop(
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


async def test_all_waiters_for_a_concurrency_key_survive_a_restart(tmp_path: Path) -> None:
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


async def test_a_wait_ends_when_another_process_has_ended_the_execution(tmp_path: Path) -> None:
    async with open_engine("sqlite", tmp_path, WorkHandler(), adopts=True, lease_s=0.3) as first:
        async with open_engine("sqlite", tmp_path, WorkHandler(), lease_s=0.3) as second:
            execution_id = await second.client.submit(make_workflow(make_node("a"), WAIT))
            with pytest.raises(TimeoutError):
                await first.client.wait_for_end(execution_id, timeout_s=0.05)
            await second.client.signal(execution_id, "go")
            await second.client.wait_for_end(execution_id, timeout_s=20)

        assert (await first.client.wait_for_end(execution_id, timeout_s=20)).state == "COMPLETED"


async def test_a_damaged_history_fails_only_its_own_execution(tmp_path: Path) -> None:
    work = WorkHandler()
    async with open_engine("sqlite", tmp_path, work) as engine:
        damaged = await engine.client.submit(make_workflow(WAIT))
        undamaged = await engine.client.submit(make_workflow(WAIT))
    with sqlite3.connect(tmp_path / "runnel.db") as db:
        db.execute("UPDATE history SET entry = ? WHERE aggregate_id = ?", (b"garbage", damaged))
    db.close()

    async with open_engine("sqlite", tmp_path, work, adopts=True) as engine:
        await engine.client.signal(undamaged, "go")

        assert (await engine.client.wait_for_end(undamaged, timeout_s=20)).state == "COMPLETED"
        assert (await engine.client.wait_for_end(damaged, timeout_s=20)).state == "FAILED"


async def test_a_partition_with_an_unusable_lock_does_not_block_the_others(
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


async def test_a_history_of_a_later_version_is_not_changed(tmp_path: Path) -> None:
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
async def test_a_creation_split_into_several_commits_completes_after_a_failure(
    number: int, tmp_path: Path
) -> None:
    skipped = [make_node(f"a_node_with_a_rather_long_name_{i}", "a") for i in range(20_000)]
    definition = make_workflow(
        make_node("a", condition="input.go"), *skipped, make_node("z", config={"z": 1})
    )
    async with open_engine("sqlite", tmp_path, WorkHandler(), lease_s=0.3) as engine:
        store = engine.backend.store
        store.commit = fail_at(number, store.commit)  # type: ignore[method-assign]

        view = await run_to_end(engine, definition, {"go": False})

    assert view.status == "COMPLETED"
    assert view.nodes["z"].output == {"z": 1}


async def test_a_concurrency_key_is_released_after_a_failed_commit(
    tmp_path: Path,
) -> None:
    work = WorkHandler()
    gate = work.gate("held")
    async with open_engine("sqlite", tmp_path, work, lease_s=0.3) as first:
        held = await first.client.submit(make_workflow(make_node("held", concurrency_key="k")))
        await work.entered["held"].wait()
        store = first.backend.store
        store.commit = fail_at(1, store.commit)  # type: ignore[method-assign]
        gate.set()

        assert (await first.client.wait_for_end(held, timeout_s=20)).state == "COMPLETED"
        again = await run_to_end(first, make_workflow(make_node("next", concurrency_key="k")))

    assert again.status == "COMPLETED"
