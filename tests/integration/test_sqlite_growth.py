"""The cost of a statement on SQLite does not grow with the executions that it does not concern."""

import re
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runnel.backends.sqlite.archive import CHUNK_ROWS
from runnel.backends.sqlite.backend import SqliteBackend
from runnel.backends.sqlite.database import SCHEMA_VERSION, SQL, load_schema
from runnel.backends.sqlite.retention import ENTRIES_PER_STATEMENT, TRANSACTION_S
from runnel.client.execution_lists import iter_headers
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.engine.clock import RealClock
from runnel.ports.archive import ExecutionFilter
from runnel.testing.clock import FakeClock, FakeIds

S = ExecutionState
SIZES = (1_000, 4_000)
# Tables with a row per partition, a row at all, or few rows; and counts that stop at a limit.
READ_WHOLE = {
    "list_partitions",
    "has_work",
    "count_in_state",
    "count_of_workflow",
    "last_message",
    "delete_full_buckets",
    "get_page_counts",
    "last_feed_entry",
}


def test_every_statement_finds_its_rows_by_an_index() -> None:
    db = sqlite3.connect(":memory:")
    for statement in load_schema():
        db.execute(statement)

    plans = {name: explain(db, statement) for name, statement in SQL.items()}

    db.close()
    assert {name for name, plan in plans.items() if "SCAN" in plan} == READ_WHOLE
    assert "dead_letters_by_execution (<expr>=?)" in plans["delete_letters"]
    assert "executions_finished (state=? AND finished_at<?)" in plans["list_finished"]
    assert "child USING PRIMARY KEY" in plans["list_finished"]


def explain(db: sqlite3.Connection, statement: str) -> str:
    names = dict.fromkeys(re.findall(r":([a-z_]+)", statement), "x")
    numbers = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    values = ["x"] * max([*numbers, 0 if numbers else statement.count("?")])
    rows = db.execute(f"EXPLAIN QUERY PLAN {statement}", names or values).fetchall()
    return "\n".join(row[3] for row in rows)


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[SqliteBackend]:
    opened = await SqliteBackend.open(tmp_path, clock=RealClock(), ids=FakeIds())
    yield opened
    await opened.close()


def fill(
    folder: Path,
    count: int,
    *,
    prefix: str = "x",
    state: ExecutionState = S.COMPLETED,
    entries: int = 1,
    letters: bool = False,
) -> None:
    """Stores executions of the workflow `w` that ended in the year 1970."""
    db = sqlite3.connect(folder / "runnel.db")
    ids = [f"{prefix}{number:06}" for number in range(count)]
    ended = None if state is S.RUNNING else 5.0
    db.executemany(
        "INSERT INTO executions VALUES (?, 0, 'w', 1, 'h', ?, 1, 1, ?, NULL, '{}', NULL, NULL)",
        [(id_, state.value, ended) for id_ in ids],
    )
    db.executemany(
        "INSERT INTO history VALUES (?, ?, 0, 0, ?)",
        [(id_, entry, b"e" * 500) for id_ in ids for entry in range(entries)],
    )
    if letters:
        bodies = [f'{{"token":["{id_}","n",-1,1]}}'.encode() for id_ in ids]
        db.executemany("INSERT INTO dead_letters (rejected_at, body) VALUES (1, ?)", zip(bodies))
    db.commit()
    db.close()


class StepCounter:
    """Counts the steps of SQLite's virtual machine, in thousands."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> int:
        self.count += 1
        return 0


@contextmanager
def count_steps(*connections: sqlite3.Connection) -> Iterator[StepCounter]:
    counter = StepCounter()
    for connection in connections:
        connection.set_progress_handler(counter, 100)
    yield counter
    for connection in connections:
        connection.set_progress_handler(None, 0)


def get_connections(backend: SqliteBackend) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    return backend._writer._db, backend._reader._db


async def test_the_cost_of_a_deletion_does_not_grow_with_what_is_kept(
    backend: SqliteBackend, tmp_path: Path
) -> None:
    steps = []
    for size in SIZES:
        fill(tmp_path, size, prefix=f"kept{size}", state=S.FAILED, letters=True)
        fill(tmp_path, size, prefix=f"waiting{size}", state=S.RUNNING)
        fill(tmp_path, 100, prefix=f"old{size}", letters=True)

        with count_steps(*get_connections(backend)) as counter:
            deleted = await backend.retention.delete_finished(S.COMPLETED, before=1e9, limit=100)

        assert deleted == 100
        steps.append(counter.count)

    assert steps[1] <= 1.3 * steps[0]


FILTERS = {
    "workflow": ExecutionFilter(workflow="none"),
    "workflow and state": ExecutionFilter(workflow="none", states=(S.COMPLETED,)),
    "rare state": ExecutionFilter(workflow="w", states=(S.FAILED,)),
    "rerun": ExecutionFilter(rerun_of=ExecutionId("none")),
}


@pytest.mark.parametrize("criteria", FILTERS.values(), ids=FILTERS)
async def test_a_list_without_a_match_reads_no_executions(
    backend: SqliteBackend, tmp_path: Path, criteria: ExecutionFilter
) -> None:
    fill(tmp_path, 5 * CHUNK_ROWS)

    with count_steps(*get_connections(backend)) as counter:
        page = await backend.archive.list_headers(criteria)
        counts = await backend.archive.count_headers(criteria)

    assert (list(page), page.next) == ([], None)
    assert all(count.number == 0 for count in counts.values() if criteria.workflow != "w")
    if criteria.workflow != "w":
        assert counter.count <= 20


async def test_a_workflow_with_a_rare_state_is_listed_completely(
    backend: SqliteBackend, tmp_path: Path
) -> None:
    fill(tmp_path, 3 * CHUNK_ROWS)
    fill(tmp_path, 7, prefix="f", state=S.FAILED)
    rare = ExecutionFilter(workflow="w", states=(S.FAILED,), limit=3)

    headers = [header.execution_id async for header in iter_headers(backend.archive, rare)]
    counts = await backend.archive.count_headers(ExecutionFilter(workflow="w"))

    assert headers == [f"f{number:06}" for number in reversed(range(7))]
    assert (counts[S.FAILED].number, counts[S.COMPLETED].number) == (7, 3 * CHUNK_ROWS)


async def test_a_large_tree_is_deleted_in_several_transactions(tmp_path: Path) -> None:
    clock = TickingClock()
    backend = await SqliteBackend.open(tmp_path, clock=clock, ids=FakeIds())
    fill(tmp_path, 1, entries=5 * ENTRIES_PER_STATEMENT)
    add_children(tmp_path, 20)

    deleted = await backend.retention.delete_finished(S.COMPLETED, before=1e9, limit=10)

    assert (deleted, clock.sleeps > 3) == (1, True)
    assert not (await backend.archive.list_headers(ExecutionFilter(with_children=True))).headers
    assert not await backend.archive.load(ExecutionId("x000000"))
    await backend.close()


class TickingClock(FakeClock):
    """A clock whose time passes with each reading; a sleep takes no time."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeps = 0

    def monotonic(self) -> float:
        self.now_s = getattr(self, "now_s", 0.0) + TRANSACTION_S / 5
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.sleeps += 1


def add_children(folder: Path, count: int) -> None:
    db = sqlite3.connect(folder / "runnel.db")
    db.executemany(
        "INSERT INTO executions SELECT id || ?, partition, workflow, version, definition, state, "
        "created_at, started_at, finished_at, id, labels, error, rerun_of FROM executions "
        "WHERE id = 'x000000'",
        [(f".a.{number}",) for number in range(count)],
    )
    db.commit()
    db.close()


async def test_the_file_shrinks_after_executions_are_deleted(
    backend: SqliteBackend, tmp_path: Path
) -> None:
    fill(tmp_path, 3_000)
    await backend.retention.delete_finished(S.COMPLETED, before=1e9, limit=3_000)

    freed = await backend.release_space()
    again = await backend.release_space()
    await backend.close()

    assert freed is not None
    assert freed > 1_000_000
    assert again == 0
    assert (tmp_path / "runnel.db").stat().st_size < 400_000


async def test_a_file_of_an_earlier_version_is_rewritten_once_no_engine_uses_it(
    tmp_path: Path,
) -> None:
    db = sqlite3.connect(tmp_path / "runnel.db")
    for statement in [*load_schema(), f"PRAGMA user_version = {SCHEMA_VERSION}"]:
        db.execute(statement)
    db.commit()
    db.close()
    backend = await SqliteBackend.open(tmp_path, clock=RealClock(), ids=FakeIds())
    fill(tmp_path, 3_000)
    await backend.retention.delete_finished(S.COMPLETED, before=1e9, limit=3_000)
    other = await SqliteBackend.open(tmp_path, clock=RealClock(), ids=FakeIds("other"))
    lease = await other.store.acquire(await other.claim_home_partition("other"), "other")

    used = await backend.release_space()
    await other.store.release(lease)
    await other.close()
    free = await backend.release_space()
    fill(tmp_path, 3_000)
    await backend.retention.delete_finished(S.COMPLETED, before=1e9, limit=3_000)
    later = await backend.release_space()
    await backend.close()

    assert used is None
    assert min(free or 0, later or 0) > 1_000_000
