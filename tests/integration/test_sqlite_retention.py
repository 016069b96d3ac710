"""Executions of an embedded engine are deleted with all their data."""

from pathlib import Path

import pytest
from msgspec import structs

from runnel.backends.sqlite.backend import SqliteBackend
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.engine.clock import RealClock
from runnel.errors import StoreError
from runnel.ports.archive import ExecutionFilter
from runnel.ports.store import Commit, ExecutionHeader, HistoryRecord
from runnel.testing.clock import FakeClock, FakeIds
from runnel.testing.conformance.suite import make_dead_letter, make_header, make_message
from tests.core_driver import make_node, make_workflow
from tests.engines import WorkHandler, open_engine, wait_for_end

S = ExecutionState
CHILD = make_workflow(make_node("x", config={"text": "l" * 300_000}))
PARENT = make_workflow(make_node("a"), make_node("w", "a", handler="workflow", child=CHILD))


async def test_a_tree_is_deleted_with_its_history_and_its_blobs(tmp_path: Path) -> None:
    async with open_engine("sqlite", tmp_path, WorkHandler()) as engine:
        backend = engine.backend
        ids = [await engine.client.submit(PARENT) for _ in range(3)]
        for execution_id in ids:
            await wait_for_end(engine, execution_id)
        now = engine.clock.now()
        assert isinstance(backend, SqliteBackend)

        early = await backend.retention.delete_finished(S.COMPLETED, before=now - 60, limit=9)
        deleted = await backend.retention.delete_finished(S.COMPLETED, before=now + 60, limit=2)

        remaining = await backend.archive.list_headers(ExecutionFilter(with_children=True))
        assert (early, deleted) == (0, 2)
        assert [header.execution_id.partition(".")[0] for header in remaining] == [ids[2], ids[2]]
        assert not await backend.archive.load(ids[0])
        assert await backend.archive.load(ids[2])
    assert len(list((tmp_path / "blobs").rglob("*.blob"))) == 1


async def test_a_root_with_a_running_child_is_kept_and_dead_letters_are_deleted_with_their_root(
    tmp_path: Path,
) -> None:
    backend = await SqliteBackend.open(tmp_path, clock=FakeClock(), ids=FakeIds())
    partition = await backend.claim_home_partition("one")
    lease = await backend.store.acquire(partition, "one")
    done = [
        ended("x1"),
        ended("x2"),
        make_header("x2.a.1", parent="x2"),
    ]
    await backend.store.commit(
        lease,
        Commit(
            sequence=1,
            headers=done,
            histories=[HistoryRecord(aggregate_id="x1", entry=b"[]")],
            dead_letters=[make_dead_letter("a")],
        ),
    )

    deleted = await backend.retention.delete_finished(S.FAILED, before=100.0, limit=9)

    assert deleted == 1
    assert await backend.archive.get_header(ExecutionId("x1")) is None
    assert await backend.archive.get_header(ExecutionId("x2")) is not None
    assert list(await backend.archive.list_dead_letters()) == []
    await backend.close()


def ended(id_: str) -> ExecutionHeader:
    return structs.replace(make_header(id_, state=S.FAILED), finished_at=5.0)


async def test_old_orphaned_blobs_are_deleted(tmp_path: Path) -> None:
    backend = await SqliteBackend.open(tmp_path, clock=RealClock(), ids=FakeIds())
    lease = await backend.store.acquire(await backend.claim_home_partition("one"), "one")
    await backend.store.commit(lease, Commit(sequence=1, headers=[make_header("x1")]))
    for key in ("x1/a", "x1.child.1/a", "x2/a", "x2.child.1/a", "x10/a"):
        await backend.blobs.put(key, b"large")
    [folder, *_] = (tmp_path / "blobs").iterdir()
    (folder / ".half.new").write_bytes(b"lar")

    counts = [
        await backend.retention.delete_orphaned_blobs(idle_s=idle_s) for idle_s in (3_600, -60, -60)
    ]

    assert counts == [0, 3, 0]
    assert len([path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]) == 2
    await backend.close()


async def test_a_command_that_was_not_stored_leaves_no_blob(tmp_path: Path) -> None:
    backend = await SqliteBackend.open(tmp_path, clock=FakeClock(), ids=FakeIds())
    await backend.close()

    with pytest.raises(StoreError, match="closed"):
        await backend.mailbox.send([make_message("a")], blobs={"x1/input/a": b"large"})

    assert not list((tmp_path / "blobs").rglob("*.blob"))
