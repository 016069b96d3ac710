"""Executions of an embedded engine are deleted with all that belongs to them."""

from pathlib import Path

import pytest
from msgspec import structs

from runnel.backends.sqlite.backend import SqliteBackend
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.engine.clock import RealClock
from runnel.errors import StoreError
from runnel.ports.archive import ExecutionFilter
from runnel.ports.store import Commit, Header, History
from runnel.testing.clock import FakeClock, FakeIds
from runnel.testing.conformance.suite import header, letter, message
from tests.driver import node, workflow
from tests.engines import Work, end_of, open_engine

S = ExecutionState
CHILD = workflow(node("x", config={"text": "l" * 300_000}))
PARENT = workflow(node("a"), node("w", "a", handler="workflow", child=CHILD))


async def test_a_tree_is_deleted_with_its_history_and_its_blobs(tmp_path: Path) -> None:
    async with open_engine("sqlite", tmp_path, Work()) as engine:
        backend = engine.backend
        ids = [await engine.client.submit(PARENT) for _ in range(3)]
        for each in ids:
            await end_of(engine, each)
        now = engine.clock.now()
        assert isinstance(backend, SqliteBackend)

        early = await backend.retention.delete_finished(S.COMPLETED, before=now - 60, limit=9)
        deleted = await backend.retention.delete_finished(S.COMPLETED, before=now + 60, limit=2)

        left = await backend.archive.list_headers(ExecutionFilter(with_children=True))
        assert (early, deleted) == (0, 2)
        assert [each.execution_id.partition(".")[0] for each in left] == [ids[2], ids[2]]
        assert not await backend.archive.load(ids[0])
        assert await backend.archive.load(ids[2])
    assert len(list((tmp_path / "blobs").rglob("*.blob"))) == 1


async def test_what_has_a_running_child_is_kept_and_dead_letters_go_with_the_rest(
    tmp_path: Path,
) -> None:
    backend = await SqliteBackend.open(tmp_path, clock=FakeClock(), ids=FakeIds())
    partition = await backend.claim_home("one")
    lease = await backend.store.acquire(partition, "one")
    done = [
        ended("x1"),
        ended("x2"),
        header("x2.a.1", parent="x2"),
    ]
    await backend.store.commit(
        lease,
        Commit(
            sequence=1,
            headers=done,
            histories=[History(aggregate_id="x1", entry=b"[]")],
            dead_letters=[letter("a")],
        ),
    )

    deleted = await backend.retention.delete_finished(S.FAILED, before=100.0, limit=9)

    assert deleted == 1
    assert await backend.archive.get_header(ExecutionId("x1")) is None
    assert await backend.archive.get_header(ExecutionId("x2")) is not None
    assert list(await backend.archive.list_dead_letters()) == []
    await backend.close()


def ended(id_: str) -> Header:
    return structs.replace(header(id_, state=S.FAILED), finished_at=5.0)


async def test_blobs_of_no_execution_are_deleted_once_they_are_old(tmp_path: Path) -> None:
    backend = await SqliteBackend.open(tmp_path, clock=RealClock(), ids=FakeIds())
    lease = await backend.store.acquire(await backend.claim_home("one"), "one")
    await backend.store.commit(lease, Commit(sequence=1, headers=[header("x1")]))
    for key in ("x1/a", "x1.child.1/a", "x2/a", "x2.child.1/a", "x10/a"):
        await backend.blobs.put(key, b"large")
    [folder, *_] = (tmp_path / "blobs").iterdir()
    (folder / ".half.new").write_bytes(b"lar")

    counts = [await backend.retention.delete_ownerless(idle_s=each) for each in (3_600, -60, -60)]

    assert counts == [0, 3, 0]
    assert len([each for each in (tmp_path / "blobs").rglob("*") if each.is_file()]) == 2
    await backend.close()


async def test_a_command_that_is_not_stored_leaves_no_blob(tmp_path: Path) -> None:
    backend = await SqliteBackend.open(tmp_path, clock=FakeClock(), ids=FakeIds())
    await backend.close()

    with pytest.raises(StoreError, match="closed"):
        await backend.mailbox.send([message("a")], blobs={"x1/input/a": b"large"})

    assert not list((tmp_path / "blobs").rglob("*.blob"))
