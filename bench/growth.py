"""Measures costs beside few and beside many stored executions. A cost must not depend on them."""

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import median

import asyncpg

import runnel
from bench.job import BenchmarkJob
from runnel.app.private_servers.postgres import PostgresServer
from runnel.backends.postgres.archive import PostgresArchive
from runnel.backends.postgres.database import PostgresDatabase
from runnel.backends.sqlite.backend import SqliteBackend
from runnel.backends.sqlite.database import FILE_NAME
from runnel.bench.figures import Figures
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.ports.archive import ExecutionFilter

REPETITIONS = 7
TRIM_SIZES, TRIMMED = (1_000, 30_000), 300
SUBMIT_SIZES, SUBMITS_PER_REPETITION = (50, 1_000), 10
LIST_SIZES, LISTS_PER_REPETITION = (1_000, 100_000), 50
LABEL_SIZES, LABEL_SEARCHES_PER_REPETITION = (20_000, 200_000), 20
# Executions that are to be deleted ended before this time; `runnel trim` keeps later ones.
OLD_BEFORE, KEPT_ENDED_AT = 1e9, 2e9
LABELLED = """
INSERT INTO executions
SELECT 'x' || lpad(n::text, 7, '0'), n % 16, true, 'w', 1, 'hash', 'COMPLETED', n, n, n + 1, NULL,
    CASE WHEN n <= 5 THEN '{"kind":"rare"}' ELSE '{"kind":"common"}' END, NULL, NULL
FROM generate_series(1, $1::integer) AS n
"""

Measure = Callable[[int], Awaitable[float]]


def list_growth_jobs() -> list[BenchmarkJob]:
    measures = {
        "trim": (measure_trim, TRIM_SIZES),
        "submit": (measure_submits, SUBMIT_SIZES),
        "list": (measure_lists, LIST_SIZES),
        "label": (measure_label_searches, LABEL_SIZES),
    }
    return [
        BenchmarkJob(name=f"growth {name}", run=_make_run(measure, sizes))
        for name, (measure, sizes) in measures.items()
    ]


def _make_run(measure: Measure, sizes: Sequence[int]) -> Callable[[], Figures]:
    return lambda: asyncio.run(compare_sizes(measure, sizes))


async def compare_sizes(measure: Measure, sizes: Sequence[int]) -> Figures:
    """Returns the cost beside few and beside many executions in ms, and the ratio of both."""
    few, many = [1_000 * await measure(size) for size in sizes]
    return {
        "growth_few_ms": few,
        "growth_many_ms": many,
        "growth_ratio": many / few,
    }


async def measure_trim(kept: int) -> float:
    """Returns the processor time to delete an execution, in s.

    Beside it are dead letters, waiting executions and executions that ended too recently.
    """
    with tempfile.TemporaryDirectory() as folder:
        backend = await _open_sqlite(Path(folder))
        _store_executions(Path(folder), kept, state=ExecutionState.FAILED, has_letters=True)
        _store_executions(Path(folder), kept, state=ExecutionState.RUNNING)
        _store_executions(Path(folder), kept, ended_at=KEPT_ENDED_AT)
        costs = []
        for repetition in range(REPETITIONS):
            _store_executions(Path(folder), TRIMMED, name=f"old{repetition}", has_letters=True)
            before = time.process_time()
            await backend.retention.delete_finished(
                ExecutionState.COMPLETED, before=OLD_BEFORE, limit=TRIMMED
            )
            costs.append((time.process_time() - before) / TRIMMED)
        await backend.close()
    return median(costs)


@runnel.task
def greet(name: str) -> str:
    return f"Hello {name}"


@runnel.workflow
def greeting(name: str) -> str:
    return greet(name)


async def measure_submits(waiting: int) -> float:
    """Returns the processor time of a submit in s, beside executions that no engine has run."""
    with tempfile.TemporaryDirectory() as folder:
        submitted = greeting.run_options(data_dir=Path(folder))
        for _ in range(waiting):
            await runnel.submit(submitted, "Ada")

        async def submit() -> None:
            await runnel.submit(submitted, "Ada")

        return await _measure_calls(submit, SUBMITS_PER_REPETITION, time.process_time)


async def measure_lists(stored: int) -> float:
    """Returns the processor time of two lists that match nothing, in s."""
    with tempfile.TemporaryDirectory() as folder:
        backend = await _open_sqlite(Path(folder))
        _store_executions(Path(folder), stored)

        async def list_nothing() -> None:
            for criteria in (
                ExecutionFilter(workflow="none"),
                ExecutionFilter(rerun_of=ExecutionId("none")),
            ):
                await backend.archive.list_headers(criteria)

        cost = await _measure_calls(list_nothing, LISTS_PER_REPETITION, time.process_time)
        await backend.close()
        return cost


async def measure_label_searches(stored: int) -> float:
    """Returns the time of a search for a rare label in PostgreSQL, in s.

    The first repetition uses the statement often enough for a general plan.
    """
    with PostgresServer() as server:
        database = await PostgresDatabase.open(server.url)
        await database.prepare()
        connection = await asyncpg.connect(server.url)
        await connection.execute("SET search_path TO runnel")
        await connection.execute(LABELLED, stored)
        await connection.execute("VACUUM ANALYZE executions")
        await connection.close()
        archive = PostgresArchive(database)

        async def search() -> None:
            await archive.list_headers(ExecutionFilter(labels={"kind": "rare"}))

        cost = await _measure_calls(search, LABEL_SEARCHES_PER_REPETITION, time.perf_counter)
        await database.close()
        return cost


async def _measure_calls(
    call: Callable[[], Awaitable[None]], count: int, clock: Callable[[], float]
) -> float:
    """Returns the median time of a call, after a first repetition that does not count."""
    times = []
    for _ in range(REPETITIONS + 1):
        before = clock()
        for _ in range(count):
            await call()
        times.append((clock() - before) / count)
    return median(times[1:])


async def _open_sqlite(folder: Path) -> SqliteBackend:
    return await SqliteBackend.open(folder, clock=RealClock(), ids=RandomIdGenerator())


def _store_executions(
    folder: Path,
    count: int,
    *,
    name: str = "",
    state: ExecutionState = ExecutionState.COMPLETED,
    ended_at: float = 1.0,
    has_letters: bool = False,
) -> None:
    """Stores executions of the workflow `w` with a short history, in one transaction."""
    ids = [f"{name or state.value}{number:07}" for number in range(count)]
    finished_at = None if state is ExecutionState.RUNNING else ended_at
    with sqlite3.connect(folder / FILE_NAME) as db:
        db.executemany(
            "INSERT INTO executions VALUES (?, 0, 'w', 1, 'h', ?, 1, 1, ?, NULL, '{}', NULL, NULL)",
            [(execution_id, state.value, finished_at) for execution_id in ids],
        )
        db.executemany(
            "INSERT INTO history VALUES (?, 1, 0, 0, ?)",
            [(execution_id, b"e" * 500) for execution_id in ids],
        )
        if has_letters:
            db.executemany(
                "INSERT INTO dead_letters (rejected_at, body) VALUES (1, ?)",
                [(f'{{"token":["{execution_id}","n",-1,1]}}'.encode(),) for execution_id in ids],
            )
    # An engine does this every 4 MB. Reads through a long log take longer.
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
