"""Lists, searches and counts in a large archive: by an index, or in limited steps."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest
from msgspec import structs

from runnel.app.private_servers.postgres import PostgresServer
from runnel.backends.postgres.archive import PostgresArchive
from runnel.backends.postgres.database import SQL, PostgresDatabase, PostgresOptions
from runnel.backends.postgres.migrations import migrate
from runnel.client.execution_lists import iter_headers
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.ports.archive import SCANNED_EXECUTIONS_MAX, ExecutionFilter
from runnel.ports.store import ExecutionHeader
from tests.redis_postgres import make_schema_name

EXECUTIONS = 60_000
S = ExecutionState
# One in 3,000 has the rare label; the oldest 15,000 ended; one in 5 is a child, one in 100 a rerun.
FILL = f"""
INSERT INTO executions
SELECT 'x' || lpad(n::text, 6, '0'), n % 16, n % 5 <> 0, 'w' || n % 50, 1, 'hash',
    (ARRAY['COMPLETED', 'FAILED', 'COMPLETED'])[1 + n % 3],
    n, n, n + 1, CASE WHEN n % 5 = 0 THEN 'x' || lpad((n - n % 500 + 1)::text, 6, '0') END,
    CASE WHEN n % 3000 = 1 THEN '{{"kind":"rare","n":"' || n || '"}}'
        WHEN n <= 15000 THEN '{{"kind":"ended"}}'
        WHEN n % 2 = 0 THEN '{{"kind":"common"}}' ELSE '{{}}' END,
    CASE WHEN n % 3 = 1 THEN 'ValueError: number ' || n END,
    CASE WHEN n % 100 = 3 THEN 'x' || lpad((n - n % 1000 + 1)::text, 6, '0') END
FROM generate_series(1, {EXECUTIONS}) AS n;
ANALYZE executions;
"""
ALL = ([True], ["COMPLETED", "FAILED", "RUNNING"])
PLACE = (1e9, "", 0.0)
GIVEN: dict[str, tuple[object, ...]] = {
    "list_headers": (*ALL, *PLACE, 1_000),
    "list_headers_of": (*ALL, *PLACE, 1_000, "w7"),
    "list_reruns": ("x000001", *PLACE, 1_000),
    "list_children": ("x000001", *PLACE, 1_000),
    "list_labelled": ('{"kind":"rare"}', *PLACE, 1_000, SCANNED_EXECUTIONS_MAX + 1, *ALL, None),
    "count_headers": (*ALL, 1e9, 0.0, SCANNED_EXECUTIONS_MAX),
    "count_headers_of": (*ALL, 1e9, 0.0, SCANNED_EXECUTIONS_MAX, "w7"),
}


@pytest.fixture(scope="module")
def schema(shared_postgres: PostgresServer) -> str:
    """Filled once, because the tests only read it."""
    name = make_schema_name()
    asyncio.run(fill(shared_postgres.url, name))
    return name


async def fill(url: str, schema: str) -> None:
    connection = await asyncpg.connect(url)
    await migrate(connection, schema)
    await connection.execute(f'SET search_path TO "{schema}"')
    await connection.execute(FILL)
    await connection.close()


@pytest.fixture
async def archive(shared_postgres: PostgresServer, schema: str) -> AsyncIterator[PostgresArchive]:
    database = await PostgresDatabase.open(shared_postgres.url, PostgresOptions(schema=schema))
    yield PostgresArchive(database)
    await database.close()


@pytest.fixture
async def connection(shared_postgres: PostgresServer, schema: str) -> AsyncIterator[Any]:
    opened = await asyncpg.connect(shared_postgres.url)
    await opened.execute(f'SET search_path TO "{schema}"')
    yield opened
    await opened.close()


@pytest.mark.parametrize("name", GIVEN)
async def test_a_large_table_is_searched_by_an_index(connection: Any, name: str) -> None:
    rows = await connection.fetch(f"EXPLAIN {SQL[name]}", *GIVEN[name])

    plan = "\n".join(row[0] for row in rows)
    assert "Seq Scan" not in plan
    assert "Index" in plan


async def test_a_page_reads_no_more_rows_than_it_shows(connection: Any) -> None:
    for name in ("list_headers", "list_headers_of", "list_reruns", "list_children"):
        rows = await connection.fetch(f"EXPLAIN (ANALYZE, BUFFERS) {SQL[name]}", *GIVEN[name])
        plan = "\n".join(row[0] for row in rows)

        assert "Sort Method: external" not in plan, name
        assert "Rows Removed by Filter" not in plan, name


LABELLED_TYPES = "text, float8, text, float8, integer, integer, boolean[], text[], text"


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_a_rare_label_is_found_by_its_index_alone_whatever_values_are_known(
    connection: Any, mode: str
) -> None:
    await connection.execute(f"SET plan_cache_mode = {mode}")
    await connection.execute(f"PREPARE listed ({LABELLED_TYPES}) AS {SQL['list_labelled']}")

    rows = await connection.fetch(
        """EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE listed ('{"kind":"rare"}', 1e9, '', 0, 1000,
        10001, '{t}', '{COMPLETED,FAILED,RUNNING}', NULL)"""
    )

    scans = [scan for scan in iter_plans(json.loads(rows[0][0])[0]["Plan"]) if "Index Name" in scan]
    assert [scan["Index Name"] for scan in scans] == ["executions_by_label"]
    assert scans[0]["Actual Rows"] <= 100


def iter_plans(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from iter_plans(part)


async def test_a_rare_label_is_found_in_one_page(archive: PostgresArchive) -> None:
    rare = ExecutionFilter(labels={"kind": "rare"}, with_children=True, limit=15)

    first = await archive.list_headers(rare)
    second = await archive.list_headers(structs.replace(rare, after=first.next))

    times = [header.created_at for header in (*first, *second)]
    assert times == [float(n) for n in reversed(range(1, EXECUTIONS, 3_000))]
    assert (len(first.headers), second.next) == (15, None)


async def take_newest(archive: PostgresArchive, criteria: ExecutionFilter) -> list[ExecutionHeader]:
    headers: list[ExecutionHeader] = []
    async for header in iter_headers(archive, criteria):
        headers.append(header)
        if len(headers) == criteria.limit:
            break
    return headers


async def test_a_frequent_label_is_listed_newest_first(archive: PostgresArchive) -> None:
    common = await archive.list_headers(ExecutionFilter(labels={"kind": "common"}, limit=3))

    assert [header.created_at for header in common] == [59_998.0, 59_996.0, 59_994.0]


async def test_an_old_frequent_label_is_found_in_limited_steps(
    archive: PostgresArchive,
) -> None:
    ended = ExecutionFilter(labels={"kind": "ended"}, limit=2)

    first = await archive.list_headers(ended)
    headers = await take_newest(archive, ended)

    assert (list(first), first.next is None) == ([], False)
    assert [header.created_at for header in headers] == [14_999.0, 14_998.0]


async def test_a_rare_text_is_found_in_limited_steps(archive: PostgresArchive) -> None:
    criteria = ExecutionFilter(text="NUMBER 31", states=(S.FAILED,), limit=500)

    first = await archive.list_headers(criteria)
    headers = await take_newest(archive, criteria)

    assert first.next is not None
    assert len(first.headers) < len(headers)
    assert [header.execution_id for header in headers] == [
        f"x{n:06}"
        for n in reversed(range(EXECUTIONS))
        if n % 3 == 1 and n % 5 and str(n).startswith("31")
    ]


async def test_reruns_and_children_of_any_age_are_found(archive: PostgresArchive) -> None:
    reruns = await archive.list_headers(ExecutionFilter(rerun_of=ExecutionId("x000001"), limit=4))
    children = await archive.list_headers(ExecutionFilter(parent=ExecutionId("x000001"), limit=3))

    assert [header.created_at for header in reruns] == [903.0, 803.0, 703.0, 603.0]
    assert [header.created_at for header in children] == [495.0, 490.0, 485.0]


async def test_a_count_that_reaches_the_limit_is_marked_as_a_lower_bound(
    archive: PostgresArchive,
) -> None:
    everything = await archive.count_headers()
    some = await archive.count_headers(ExecutionFilter(workflow="w7", states=(S.FAILED,)))
    rare = await archive.count_headers(ExecutionFilter(labels={"kind": "rare"}))
    ended = await archive.count_headers(ExecutionFilter(labels={"kind": "ended"}))

    assert (everything[S.COMPLETED].number, everything[S.COMPLETED].is_least) == (
        SCANNED_EXECUTIONS_MAX,
        True,
    )
    assert (everything[S.PENDING].number, everything[S.PENDING].is_least) == (0, False)
    assert (some[S.FAILED].number, some[S.FAILED].is_least) == (400, False)
    assert sum(count.number for count in rare.values()) == 20
    assert all(count.is_least for count in ended.values())
