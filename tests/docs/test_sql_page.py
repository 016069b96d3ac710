"""docs/guides/sql.md: every query runs on an archive with executions."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from tests.core_driver import make_node, make_workflow
from tests.docs.console import BLOCK
from tests.engines import WorkHandler
from tests.redis_postgres import ArchivedEngine, fetch_rows, open_archived_engine

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "sql.md"
LINES = make_workflow(
    make_node("parse", for_each="input.lines", config={"v": "{{ item }}"}),
    make_node("sum", "parse", config={"total": "{{ input.total }}"}),
)
INVOICE = msgspec.structs.replace(LINES, name="invoice")


@pytest.fixture
async def running(
    shared_redis: RedisServer, shared_postgres: PostgresServer
) -> AsyncIterator[ArchivedEngine]:
    async with open_archived_engine(shared_redis, shared_postgres, WorkHandler()) as opened:
        yield opened


async def test_each_query_of_the_page_runs(running: ArchivedEngine) -> None:
    inputs = [{"total": 12.5, "lines": [1, 2], "number": n, "customer": "acme"} for n in (1, 2)]
    ids = await running.client.submit_many(INVOICE, inputs)
    await running.ends(ids)
    await running.archive_all()
    results: list[list[tuple[Any, ...]]] = []

    async with running.backend.database.transaction() as connection:
        schema = await connection.fetchval("SELECT current_schema()")
        for kind, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
            assert kind == "sql"
            query = text.replace("runnel.", f'"{schema}".').replace(
                "SCHEMA runnel", f'SCHEMA "{schema}"'
            )
            for statement in filter(str.strip, query.split(";\n")):
                rows = await connection.fetch(statement)
                results.append([tuple(row) for row in rows])
        stored = await connection.fetch("SELECT total FROM invoices")
        await connection.execute("DROP OWNED BY analyst; DROP ROLE analyst")
        await connection.execute("DROP MATERIALIZED VIEW invoices")

    by_day, customers, nodes, failed_items = results[:4]
    assert [row[1:] for row in by_day] == [(2, 25)]
    assert [(row[1], row[2]) for row in customers] == [("COMPLETED", "2"), ("COMPLETED", "1")]
    assert {row[0] for row in nodes} == {"parse", "sum"}
    assert failed_items == []
    assert [row[0] for row in stored] == [12.5, 12.5]


async def test_the_page_names_every_column_of_the_views(running: ArchivedEngine) -> None:
    columns: dict[str, list[str]] = {}
    for view in ("execution_values", "node_values"):
        rows = await fetch_rows(
            running.backend,
            "SELECT attname FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0 "
            "ORDER BY attnum",
            view,
        )
        columns[view] = [row[0] for row in rows]

    page = PAGE.read_text(encoding="utf-8")
    assert {
        view: ", ".join(f"`{name}`" for name in names) in page for view, names in columns.items()
    } == {
        "execution_values": True,
        "node_values": True,
    }
