"""The views of the archive: inputs, outputs and times that a user reads with SQL."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.client.reruns import RerunSpec
from runnel.core.retry import RetryPolicy
from runnel.core.values import INLINE_BYTES_MAX
from runnel.core.workflow import OnFailure
from tests.core_driver import make_node, make_workflow
from tests.engines import WorkHandler
from tests.redis_postgres import ArchivedEngine, fetch_rows, open_archived_engine

LARGE = "l" * (INLINE_BYTES_MAX + 1)
ONE = make_workflow(make_node("a", config={"v": "{{ input.v }}"}))


@pytest.fixture
def work() -> WorkHandler:
    return WorkHandler()


@pytest.fixture
async def running(
    shared_redis: RedisServer, shared_postgres: PostgresServer, work: WorkHandler
) -> AsyncIterator[ArchivedEngine]:
    async with open_archived_engine(shared_redis, shared_postgres, work) as opened:
        yield opened


async def run(running: ArchivedEngine, workflow: Any, value: Any, **given: Any) -> str:
    execution_id = await running.client.submit(workflow, value, **given)
    await running.ends([execution_id])
    await running.archive_all()
    return execution_id


async def read(running: ArchivedEngine, query: str, *values: object) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in await fetch_rows(running.backend, query, *values)]


async def test_inputs_outputs_and_times_are_readable(running: ArchivedEngine) -> None:
    before = datetime.now(UTC)
    execution_id = await run(
        running, ONE, {"v": {"total": 12.5, "lines": [1, 2]}}, labels={"team": "red"}
    )

    rows = await read(
        running,
        "SELECT workflow, version, status, (output -> 'v' ->> 'total')::numeric, input #>> "
        "'{v,lines,1}', labels ->> 'team', error, rerun_of, parent_id, created_at <= started_at, "
        "started_at <= finished_at, created_at FROM execution_values WHERE execution_id = $1",
        execution_id,
    )

    assert rows[0][:11] == ("test", 1, "COMPLETED", 12.5, "2", "red", None, None, None, True, True)
    assert before <= rows[0][11] <= datetime.now(UTC)


async def test_each_node_and_item_has_its_output(
    running: ArchivedEngine, work: WorkHandler
) -> None:
    workflow = make_workflow(
        make_node("a", config={"v": 1}),
        make_node("m", "a", for_each="input.items", config={"v": "{{ item }}"}),
        make_node("broken", "a", retry=RetryPolicy(max_retries=0)),
        make_node("late", "broken"),
        on_failure=OnFailure.CONTINUE,
    )
    work.failures["broken"] = [ValueError("no")]

    execution_id = await run(running, workflow, {"items": ["x", "y"]})

    rows = await read(
        running,
        "SELECT node_id, item, status, attempts, output::text, error, finished_at >= started_at "
        "FROM node_values WHERE execution_id = $1 ORDER BY node_id, item NULLS FIRST",
        execution_id,
    )
    assert rows[0] == ("a", None, "COMPLETED", 1, '{"v": 1}', None, True)
    assert rows[1][:5] == ("broken", None, "FAILED", 1, None)
    assert "ValueError: no" in rows[1][5]
    assert rows[2][:3] == ("late", None, "SKIPPED")
    assert [row[:5] for row in rows[3:]] == [
        ("m", None, "COMPLETED", 1, '[{"v": "x"}, {"v": "y"}]'),
        ("m", 0, "COMPLETED", 1, '{"v": "x"}'),
        ("m", 1, "COMPLETED", 1, '{"v": "y"}'),
    ]


async def test_large_values_are_shown_as_values(running: ArchivedEngine) -> None:
    execution_id = await run(running, ONE, {"v": LARGE})

    rows = await read(
        running,
        "SELECT length(input ->> 'v'), length(output ->> 'v'), (SELECT length(output ->> 'v') "
        "FROM node_values WHERE execution_id = $1 AND node_id = 'a') "
        "FROM execution_values WHERE execution_id = $1",
        execution_id,
    )

    assert rows == [(len(LARGE),) * 3]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\0\0b", '{"v": "a\ufffd\ufffdb"}'),
        ("a\\u0000b\\\0", '{"v": "a\\\\u0000b\\\\\ufffd"}'),
        (None, '{"v": null}'),
        (10**400, f'{{"v": {10**400}}}'),
        (1e308, f'{{"v": 1{"0" * 308}}}'),
        ({"\0": '"\\'}, '{"v": {"\ufffd": "\\"\\\\"}}'),
        ('"type":"ExecutionFinished"', '{"v": "\\"type\\":\\"ExecutionFinished\\""}'),
        ("\U0001f600", '{"v": "\U0001f600"}'),
    ],
    ids=["nul", "escaped", "null", "integer", "float", "key", "event", "emoji"],
)
async def test_values_that_jsonb_cannot_hold_do_not_break_a_view(
    running: ArchivedEngine, value: Any, text: str
) -> None:
    execution_id = await run(running, ONE, {"v": value}, labels={"l": "\0"})

    rows = await read(
        running,
        "SELECT input::text, output::text, (SELECT output::text FROM node_values WHERE "
        "execution_id = $1), labels ->> 'l' FROM execution_values WHERE execution_id = $1",
        execution_id,
    )

    assert rows == [(text, text, text, "\ufffd")]


async def test_a_number_that_jsonb_cannot_hold_becomes_a_text(running: ArchivedEngine) -> None:
    huge = "1" + "0" * 140_000

    rows = await read(running, "SELECT jsonb_typeof(archived_json($1))", f'{{"v": {huge}}}')

    assert rows == [("string",)]


async def test_an_unreadable_entry_leaves_the_other_executions_readable(
    running: ArchivedEngine,
) -> None:
    execution_id = await run(running, ONE, {"v": 1})
    broken = await run(running, ONE, {"v": 2})
    await fetch_rows(
        running.backend,
        'UPDATE audit_log SET entry = \'"type":"ExecutionCreated"\'::bytea WHERE aggregate_id = $1',
        broken,
    )

    rows = await read(running, "SELECT execution_id, input::text FROM execution_values")

    assert dict(rows) == {execution_id: '{"v": 1}', broken: None}


async def test_the_input_of_a_trigger_and_reused_outputs_are_shown(
    running: ArchivedEngine, work: WorkHandler
) -> None:
    workflow = make_workflow(
        make_node("a", config={"v": "{{ input.v }}"}),
        make_node("b", "a", retry=RetryPolicy(max_retries=0)),
    )
    work.failures["b"] = [ValueError("no")]
    held = await running.client.hold(workflow, {"v": 1})
    await running.client.trigger(held, {"v": 2})
    await running.ends([held])
    rerun = await running.client.rerun(held, RerunSpec())
    await running.ends([rerun])
    await running.archive_all()

    rows = await read(
        running,
        "SELECT execution_id, status, input ->> 'v', rerun_of, (SELECT output ->> 'v' FROM "
        "node_values WHERE node_values.execution_id = execution_values.execution_id AND "
        "node_id = 'a') FROM execution_values ORDER BY created_at",
    )

    assert rows == [(held, "FAILED", "2", None, "2"), (rerun, "COMPLETED", "2", held, "2")]


async def test_a_user_who_may_read_only_the_views_can_use_them(
    running: ArchivedEngine, shared_postgres: PostgresServer
) -> None:
    execution_id = await run(running, ONE, {"v": LARGE})
    schema = (await read(running, "SELECT current_schema()"))[0][0]
    role = f"reader_{schema}"
    async with running.backend.database.transaction() as connection:
        await connection.execute(f'CREATE ROLE "{role}"')
        await connection.execute(f'GRANT USAGE ON SCHEMA "{schema}" TO "{role}"')
        await connection.execute(
            f'GRANT SELECT ON "{schema}".execution_values, "{schema}".node_values TO "{role}"'
        )
        await connection.execute(f'SET LOCAL ROLE "{role}"')
        await connection.execute("SET LOCAL search_path TO pg_catalog")

        rows = await connection.fetch(
            f"SELECT length(execution_values.output ->> 'v') FROM \"{schema}\".execution_values "
            f'JOIN "{schema}".node_values USING (execution_id) WHERE execution_id = $1',
            execution_id,
        )
        await connection.execute("RESET ROLE")
        await connection.execute(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"')

    assert [tuple(row) for row in rows] == [(len(LARGE),)]
