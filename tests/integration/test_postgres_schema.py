"""The tables: migrations lead to the schema, and every statement finds its rows by an index."""

import os
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from runnel.app.private_servers.postgres import PostgresServer
from runnel.backends.postgres.database import SQL, PostgresDatabase, PostgresOptions
from runnel.backends.postgres.health import read_archive_facts
from runnel.backends.postgres.ledger import build_record_values
from runnel.backends.postgres.migrations import find_migration_version, load_migrations, migrate
from runnel.backends.postgres.records import PostgresRetention
from runnel.core.commands import CreateExecution
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.states import ExecutionState
from runnel.engine.clock import RealClock
from runnel.errors import InputError, StoreError
from tests.redis_postgres import make_schema_name

EXECUTIONS = 3_000
NODES = 4
SHAPE = """
SELECT 'column', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
    pg_get_expr(d.adbin, d.adrelid)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = to_regnamespace($1) AND c.relkind = 'r'
UNION ALL
SELECT 'index', tablename, indexname, replace(indexdef, $1 || '.', ''), NULL, NULL
FROM pg_indexes WHERE schemaname = replace($1, '"', '')
UNION ALL
SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid), NULL, NULL
FROM pg_constraint WHERE connamespace = to_regnamespace($1) AND contype <> 'n'
UNION ALL
SELECT 'view', viewname, '', definition, NULL, NULL
FROM pg_views WHERE schemaname = replace($1, '"', '')
UNION ALL
SELECT 'function', proname, pg_get_function_arguments(oid),
    replace(pg_get_functiondef(oid), replace($1, '"', ''), ''), NULL, NULL
FROM pg_proc WHERE pronamespace = to_regnamespace($1)
ORDER BY 1, 2, 3
"""
FILL = f"""
INSERT INTO executions
SELECT 'x' || lpad(n::text, 6, '0'), n % 16, true, 'w' || n % 50, 1, 'hash',
    (ARRAY['COMPLETED', 'FAILED', 'CANCELLED', 'COMPLETED', 'RUNNING'])[1 + n % 5],
    n, n, CASE WHEN n % 5 < 4 THEN n + 1 END, NULL, '{{"n":"' || n || '"}}', NULL
FROM generate_series(1, {EXECUTIONS}) AS n;
INSERT INTO node_executions
SELECT id, 'n' || k, -1, 'COMPLETED', 1, 'w', 1, 1, 1, NULL
FROM executions, generate_series(1, {NODES}) AS k;
INSERT INTO audit_log
SELECT partition, row_number() OVER (PARTITION BY partition ORDER BY id, k), 0, id, '[]'
FROM executions, generate_series(1, {NODES}) AS k;
INSERT INTO limit_log
SELECT partition, created_at, 0, 'limit:' || workflow || id, '[]' FROM executions;
INSERT INTO commands (partition, execution_id, kind, key, body, applied_at)
SELECT partition, id, 'CreateExecution', '', '', CASE WHEN state <> 'RUNNING' THEN now() END
FROM executions;
INSERT INTO dead_letters SELECT partition, created_at, 0, id, 'q', created_at, '' FROM executions;
INSERT INTO set_aside (partition, sequence, kind, ordinal, digest, aggregate_id, body, reason)
SELECT partition, created_at, 'history', 0, 'd' || substr(id, 2), id::bytea, '', '' FROM executions;
INSERT INTO blobs SELECT id || '/a', '' FROM executions;
INSERT INTO records SELECT 'one', id::bytea, '' FROM executions;
INSERT INTO definitions SELECT md5(id), id, 1, '' FROM executions;
"""  # numbers of ours
IDS = ["x000007", "x000008"]
CREATE = CreateExecution(
    execution_id=ExecutionId(IDS[0]),
    workflow="w7",
    definition=DefinitionHash("hash"),
    version=1,
    created_at=7.0,
)
# The arguments of each statement; those that only ever read a few rows are left out.
GIVEN: dict[str, tuple[object, ...]] = {
    "apply_commands": (IDS, ["CreateExecution"] * 2, ["", ""]),
    "apply_all_commands": (IDS,),
    "apply_late_commands": (3,),
    "close_limits": (["limit:w1x000001"],),
    "record": tuple(build_record_values([(3, CREATE)] * 50)),
    "take_unapplied": (3, 0.0, 500, 7),
    "close_set_aside": (["d000007", "d000008"],),
    "load_set_aside": ("d000007",),
    "list_set_aside": (["d000007", "d000008"],),
    "list_ids_set_aside": (3, 2_800),
    "get_version": ("hash",),
    "get_definition": ("hash",),
    "get_header": ("x000007", "d000007"),
    "get_headers": (IDS,),
    "list_headers": ([True], ["COMPLETED", "FAILED"], 1e9, "", 0.0, 50),
    "list_headers_of": ([True, False], ["COMPLETED", "FAILED"], 1e9, "", 0.0, 50, "w7"),
    "list_reruns": ("x000007", 1e9, "", 0.0, 50),
    "list_children": ("x000007", 1e9, "", 0.0, 50),
    "list_labelled": ('{"n":"7"}', 1e9, "", 0.0, 50, 10_001, [True], ["COMPLETED"], None),
    "count_headers": ([True], ["COMPLETED", "FAILED"], 1e9, 0.0, 10_000),
    "count_headers_of": ([True], ["COMPLETED", "FAILED"], 1e9, 0.0, 10_000, "w7"),
    "find_ids": ("x0000", "x0000\U0010ffff", False, 2),
    "load_history": ("x000007", 0),
    "load_histories": (IDS,),
    "list_nodes": ("x000007", "", -2, 100),
    "list_dead_letters": ("q", "w7", "x0", "x0\U0010ffff", 1e9, 1e9, b"", 50),
    "delete_letters": (IDS, [b"", b""]),
    "delete_replaced_letters": (["x1"],),
    "get_blob": ("x000007/a",),
    "read_blob_parts": (["x000001/out"], 1, 200),
    "get_record": ("one", b"x000007"),
    "list_records": ("one", b"x000007", 50),
    "put_record": ("one", b"x000007", b"", 7),
    "delete_record": ("one", b"x000007", None),
    "delete_blobs": ("x000007", "x000007\U0010ffff"),
    "list_blobs": ("x000007.", "x0000070"),
    "list_touched": (3, 740),
    "list_known": (IDS,),
    "list_unfinished": (3,),
    "list_trees": (IDS,),
    "list_limits": (3,),
    "take_finished": ("FAILED", 100.0, 10),
    "delete_nodes": ("x000007", "x000007.", "x000007/"),
    "delete_audit_log": ("x000007", "x000007.", "x000007/"),
    "delete_commands": ("x000007", "x000007.", "x000007/"),
    "delete_dead_letters": ("x000007", "x000007.", "x000007/"),
    "delete_executions": ("x000007", "x000007.", "x000007/"),
}
# Tables with one row per store or partition, or a few per workflow; the quarantine, which is empty
# as a rule; and writes, whose keys are indexes. Counting reads all rows.
SMALL = {
    "get_meta",
    "add_meta",
    "get_redis_side",
    "put_redis_side",
    "add_place",
    "add_cursors",
    "get_cursor",
    "claim_cursor",
    "get_branch",
    "add_life",
    "move_cursor",
    "put_headers",
    "put_nodes",
    "list_workflows",
    "list_versions",
    "find_version",
    "lock_definitions",
    "add_definition",
    "delete_versions",
    "put_blob",
    "add_record",
    "mark_unreadable",
    "add_set_aside",
    "clear_staged_headers",
    "clear_staged_nodes",
    "delete_set_aside",
    "list_limits_set_aside",
    "count_dead_letters",
}


@pytest.fixture
async def connection(shared_postgres: PostgresServer) -> AsyncIterator[Any]:
    opened = await asyncpg.connect(shared_postgres.url)
    yield opened
    await opened.close()


async def test_the_migrations_lead_to_the_schema_of_a_new_database(connection: Any) -> None:
    stepwise, fresh = make_schema_name(), make_schema_name()

    versions = [
        await migrate(connection, stepwise, is_stepwise=True),
        await migrate(connection, fresh),
        await migrate(connection, fresh),
    ]
    shapes = []
    for schema in (stepwise, fresh):
        await connection.execute(f'SET search_path TO "{schema}"')
        rows = await connection.fetch(SHAPE, f'"{schema}"')
        shapes.append([tuple(row) for row in rows])

    assert set(versions) == {max(load_migrations())}
    assert shapes[0] == shapes[1]
    assert len(shapes[0]) > 80


async def test_the_views_show_executions_of_an_earlier_schema(connection: Any) -> None:
    schema, views = make_schema_name(), find_migration_version("sql_views")
    await connection.execute(f'CREATE SCHEMA "{schema}"; SET search_path TO "{schema}"')
    await connection.execute("CREATE TABLE versions (version integer PRIMARY KEY)")
    await connection.execute("ALTER TABLE versions ADD applied_at timestamptz DEFAULT now()")
    for version, statements in load_migrations().items():
        if version < views:
            await connection.execute(statements)
            await connection.execute("INSERT INTO versions VALUES ($1)", version)
    await connection.execute(FILL)
    created = (
        b'[1,7.0,[{"type":"ExecutionCreated","execution_id":"x000007","workflow":"w7","version":1,'
        b'"definition":"hash","input":{"data":{"n":7},"size":7},"created_at":7.0},'
        b'{"type":"NodeCompleted","node":"n1","output":{"data":[1],"size":3}}]]'
    )
    await connection.execute(
        "UPDATE audit_log SET entry = $1 WHERE aggregate_id = 'x000007' AND sequence = ("
        "SELECT min(sequence) FROM audit_log WHERE aggregate_id = 'x000007')",
        created,
    )

    await migrate(connection, schema)

    await connection.execute(f'SET search_path TO "{schema}"')
    execution = await connection.fetchrow(
        "SELECT input::text, output, extract(epoch FROM created_at)::integer "
        "FROM execution_values WHERE execution_id = 'x000007'"
    )
    nodes = await connection.fetch(
        "SELECT node_id, output::text FROM node_values WHERE execution_id = 'x000007' "
        "AND output IS NOT NULL"
    )
    assert tuple(execution) == ('{"n": 7}', None, 7)
    assert [tuple(row) for row in nodes] == [("n1", "[1]")]


async def test_migrations_are_numbered_without_a_gap() -> None:
    assert list(load_migrations()) == list(range(1, len(load_migrations()) + 1))


async def test_a_schema_of_a_later_version_is_refused(
    connection: Any, shared_postgres: PostgresServer
) -> None:
    schema = make_schema_name()
    await migrate(connection, schema)
    await connection.execute(f'INSERT INTO "{schema}".versions VALUES (999)')

    with pytest.raises(InputError, match="schema version 999"):
        await prepared(shared_postgres.url, schema)


async def test_a_database_with_another_encoding_is_refused(
    connection: Any, shared_postgres: PostgresServer
) -> None:
    name = f"latin_{os.getpid()}"
    await connection.execute(
        f"CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    )
    url = f"{shared_postgres.url.rpartition('/')[0]}/{name}"

    with pytest.raises(InputError, match="encoded in LATIN1, expected UTF8: create one with"):
        await prepared(url)
    facts = await read_archive_facts(url, PostgresOptions(), RealClock())

    assert (facts.encoding, facts.schema_version) == ("LATIN1", None)


async def prepared(url: str, schema: str = "runnel") -> PostgresDatabase:
    database = await PostgresDatabase.open(url, PostgresOptions(schema=schema))
    try:
        await database.prepare()
    except BaseException:
        await database.close()
        raise
    return database


async def test_every_statement_finds_its_rows_by_an_index(connection: Any) -> None:
    schema = make_schema_name()
    await migrate(connection, schema)
    await connection.execute(f'SET search_path TO "{schema}"')
    await connection.execute(FILL)
    await connection.execute("ANALYZE")

    scans = {}
    for name, values in GIVEN.items():
        rows = await connection.fetch(f"EXPLAIN {SQL[name]}", *values)
        plan = "\n".join(row[0] for row in rows)
        if "Seq Scan" in plan or "Index" not in plan:
            scans[name] = plan

    assert scans == {}
    assert set(GIVEN) | SMALL == set(SQL)


async def test_retention_deletes_a_batch_of_old_executions_with_all_their_rows(
    connection: Any, shared_postgres: PostgresServer
) -> None:
    schema = make_schema_name()
    database = await prepared(shared_postgres.url, schema)
    await connection.execute(f'SET search_path TO "{schema}"')
    await connection.execute(FILL)
    await connection.execute(
        "UPDATE executions SET id = 'x000001.a.1', is_root = false WHERE id = 'x000006'"
    )
    retention = PostgresRetention(database)

    deleted = await retention.delete_finished(ExecutionState.FAILED, before=30.0, limit=5)

    remaining = await connection.fetch(
        "SELECT id FROM executions WHERE state = 'FAILED' ORDER BY finished_at LIMIT 1"
    )
    counts = [
        await connection.fetchval(f"SELECT count(*) FROM {table}")
        for table in ("node_executions", "audit_log", "commands", "dead_letters", "blobs")
    ]
    assert deleted == 5
    assert remaining[0][0] == "x000031"
    assert counts == [
        (EXECUTIONS - 5) * NODES,
        (EXECUTIONS - 5) * NODES,
        EXECUTIONS - 5,
        EXECUTIONS - 5,
        EXECUTIONS - 5,
    ]
    assert await retention.delete_finished(ExecutionState.CANCELLED, before=0.5, limit=5) == 0
    await database.close()


async def test_an_unreachable_server_is_a_store_error() -> None:
    with pytest.raises(StoreError, match="PostgreSQL: "):
        await prepared("postgresql://nobody@127.0.0.1:1/none")


async def test_an_invalid_url_is_refused() -> None:
    with pytest.raises(InputError, match="expected the URL"):
        await prepared("http://somewhere")
