"""The cost of a statement on SQLite does not grow with the executions that it does not concern."""

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runnel.backends.sqlite import database
from runnel.backends.sqlite.archive import CHUNK_ROWS
from runnel.backends.sqlite.backend import SqliteBackend
from runnel.backends.sqlite.database import SCHEMA_VERSION, SQL, Durability, load_schema
from runnel.backends.sqlite.retention import ENTRIES_PER_STATEMENT, TRANSACTION_S
from runnel.client.execution_lists import iter_headers
from runnel.core.commands import CreateExecution
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.states import ExecutionState
from runnel.engine.clock import RealClock
from runnel.ports.archive import ExecutionFilter
from runnel.ports.store import Submission
from runnel.testing.clock import FakeClock, FakeIds

S = ExecutionState
SIZES = (1_000, 4_000)
# Tables with a row per partition, a row at all, or few rows; and counts that stop at a limit.
READ_WHOLE = {
    "list_partitions",
    "list_homes",
    "list_owners",
    "list_partition_fences",
    "list_submitted",
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
def steps(monkeypatch: pytest.MonkeyPatch) -> "StepCounter":
    """Counts the steps of the connections that a backend opens."""
    counter, connect = StepCounter(), database.connect

    def connect_counted(path: Path, durability: Durability) -> sqlite3.Connection:
        counter.connections.append(connect(path, durability))
        return counter.connections[-1]

    monkeypatch.setattr(database, "connect", connect_counted)
    return counter


@pytest.fixture
async def backend(steps: "StepCounter", tmp_path: Path) -> AsyncIterator[SqliteBackend]:
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
    ended_at: float = 5.0,
) -> None:
    """Stores executions of the workflow `w`."""
    db = sqlite3.connect(folder / "runnel.db")
    ids = [f"{prefix}{number:06}" for number in range(count)]
    ended = None if state in (S.PENDING, S.RUNNING) else ended_at
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
    """Counts the steps of SQLite's virtual machine, in hundreds."""

    def __init__(self) -> None:
        self.connections: list[sqlite3.Connection] = []
        self.count = 0

    def __call__(self) -> int:
        self.count += 1
        return 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        self.count = 0
        for connection in self.connections:
            connection.set_progress_handler(self, 100)
        yield
        for connection in self.connections:
            connection.set_progress_handler(None, 0)


async def test_the_cost_of_a_deletion_does_not_grow_with_what_is_kept(
    backend: SqliteBackend, steps: StepCounter, tmp_path: Path
) -> None:
    counts = []
    for size in SIZES:
        fill(tmp_path, size, prefix=f"kept{size}", state=S.FAILED, letters=True)
        fill(tmp_path, size, prefix=f"waiting{size}", state=S.RUNNING)
        fill(tmp_path, size, prefix=f"later{size}", ended_at=2e9)
        fill(tmp_path, 100, prefix=f"old{size}", letters=True)

        with steps.counting():
            deleted = await backend.retention.delete_finished(S.COMPLETED, before=1e9, limit=100)

        assert deleted == 100
        counts.append(steps.count)

    assert counts[1] <= 1.3 * counts[0]


FILTERS = {
    "workflow": ExecutionFilter(workflow="none"),
    "workflow and state": ExecutionFilter(workflow="none", states=(S.COMPLETED,)),
    "rerun": ExecutionFilter(rerun_of=ExecutionId("none")),
}


@pytest.mark.parametrize("criteria", FILTERS.values(), ids=FILTERS)
async def test_a_list_without_a_match_reads_no_executions(
    backend: SqliteBackend, steps: StepCounter, tmp_path: Path, criteria: ExecutionFilter
) -> None:
    fill(tmp_path, 5 * CHUNK_ROWS)

    with steps.counting():
        page = await backend.archive.list_headers(criteria)
        counts = await backend.archive.count_headers(criteria)

    assert (list(page), page.next) == ([], None)
    assert all(count.number == 0 for count in counts.values())
    assert steps.count <= 20


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


def never_joins(_owner: str) -> bool:
    return False


async def submit_from(folder: Path, source: str, number: int) -> int:
    """Stores an execution as a program does that runs no engine; returns its partition."""
    backend = await SqliteBackend.open(folder, clock=RealClock(), ids=FakeIds(f"p{number}"))
    try:
        submits = Submission(joins=never_joins, source=source)
        partition = await backend.claim_home_partition("submitter", submits=submits)
        await backend.mailbox.send([make_create(f"x{source}{number}")])
        return partition
    finally:
        await backend.close()


def make_create(execution_id: str) -> CreateExecution:
    return CreateExecution(
        execution_id=ExecutionId(execution_id),
        workflow="w",
        definition=DefinitionHash("hash"),
        version=1,
        created_at=1.0,
    )


async def test_submits_without_an_engine_share_a_partition_per_source(tmp_path: Path) -> None:
    first = [await submit_from(tmp_path, "a", number) for number in range(5)]
    at_once = await asyncio.gather(*(submit_from(tmp_path, "a", n) for n in range(5, 15)))
    other = await submit_from(tmp_path, "b", 0)

    assert (set(first), set(at_once), other) == ({0}, {0}, 1)
    assert len(list(tmp_path.glob("*.lock"))) <= 3


async def test_an_engine_does_not_use_the_partition_of_submitters_for_itself(
    tmp_path: Path,
) -> None:
    await submit_from(tmp_path, "a", 0)
    backend = await SqliteBackend.open(tmp_path, clock=RealClock(), ids=FakeIds())

    home = await backend.claim_home_partition("engine")
    await backend.store.acquire(0, "resume")
    while_owned = await submit_from(tmp_path, "a", 1)
    await backend.close()

    assert (home, while_owned) == (1, 2)
    assert await submit_from(tmp_path, "a", 2) == 0


async def test_the_cost_of_a_submit_does_not_grow_with_executions_that_no_engine_has_run(
    steps: StepCounter, tmp_path: Path
) -> None:
    await submit_from(tmp_path, "a", 0)
    counts = []
    for size in SIZES:
        fill(tmp_path, size, prefix=f"n{size}", state=S.PENDING)
        steps.connections.clear()
        backend = await SqliteBackend.open(tmp_path, clock=RealClock(), ids=FakeIds(f"s{size}"))
        with steps.counting():
            submits = Submission(joins=never_joins, source="a")
            await backend.claim_home_partition("submitter", submits=submits)
            await backend.mailbox.send([make_create(f"y{size}")])
        counts.append(steps.count)
        await backend.close()

    assert counts[1] <= counts[0] + 1
