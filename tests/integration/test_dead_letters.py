"""Names, lookup and retry of dead letters, on every backend."""

import asyncio

import msgspec
import pytest

from runnel.app.embedded_engine import EmbeddedEngine
from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.client.dead_letters import (
    find_letter,
    format_letter_name,
    iter_letters,
    list_execution_letters,
    retry_letters,
)
from runnel.core.effects import DeadLetter
from runnel.core.ids import ExecutionId, NodeId
from runnel.core.states import ExecutionState
from runnel.core.workflow import OnFailure, Workflow
from runnel.errors import InputError, NotFoundError, WrongStateError
from runnel.ports.archive import ALL_DEAD_LETTERS, ALL_EXECUTIONS, ExecutionFilter
from runnel.testing.conformance.suite import make_dead_letter
from tests.core_driver import make_node, make_workflow
from tests.engines import DEADLINE_S, WorkHandler, wait_for_end
from tests.integration.test_scenarios import engine, work
from tests.redis_postgres import open_archived_engine

__all__ = ["engine", "work"]

PIPELINE = make_workflow(
    make_node("read", handler="input"),
    make_node("parse", "read", config={"text": "{{ read.text }}"}),
    make_node("tell", "parse", config={"text": "{{ parse.text }}"}),
)
INPUT = {"text": "t", "items": [1, 2, 3]}
TWO = make_workflow(
    make_node("a"), make_node("b"), make_node("c", "a"), on_failure=OnFailure.CONTINUE
)
MAP = make_workflow(make_node("each", for_each="{{ input.items }}", config={"v": "{{ item }}"}))
PARENT = make_workflow(
    make_node("first"),
    make_node(
        "sub", "first", handler="workflow", child=Workflow(name="child", nodes=(make_node("c"),))
    ),
)


async def run_failing(
    engine: EmbeddedEngine, work: WorkHandler, *failing: str, definition: Workflow = PIPELINE
) -> tuple[ExecutionId, list[DeadLetter]]:
    """Runs a failing execution, waits for its letters and returns its id and all letters."""
    for name in failing:
        work.failures[name] = [ValueError("broken")]
    execution_id = await engine.client.submit(definition, INPUT)
    assert (await wait_for_end(engine, execution_id)).status == "FAILED"
    work.calls.clear()
    await wait_for_letters(engine, len(failing))
    return execution_id, [
        letter async for letter in iter_letters(engine.backend.archive, ALL_DEAD_LETTERS)
    ]


async def wait_for_letters(engine: EmbeddedEngine, number: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while await engine.backend.archive.count_dead_letters() < number:
            await engine.clock.wait(asyncio.Event(), 0.01)


async def test_a_letter_has_a_name_by_which_it_is_found(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    execution_id, (only,) = await run_failing(engine, work, "parse")
    archive = engine.backend.archive

    names = [f"{execution_id}/parse", execution_id, f"{execution_id[:6]}/parse", execution_id[:4]]
    letters = [await find_letter(archive, name) for name in names]

    assert format_letter_name(only) == f"{execution_id}/parse"
    assert letters == [only] * 4
    assert (only.workflow, only.error.type, only.token.attempt) == ("test", "ValueError", 1)
    for unknown in ("nope", f"{execution_id}/read", f"{execution_id}/parse/1", "\ud800", "x/"):
        with pytest.raises(NotFoundError, match="no dead letter"):
            await find_letter(archive, unknown)


async def test_an_ambiguous_letter_name_is_refused(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    execution_id, letters = await run_failing(engine, work, "a", "b", definition=TWO)

    with pytest.raises(NotFoundError, match=f"no single.*'{execution_id}/[ab]', '{execution_id}/"):
        await find_letter(engine.backend.archive, execution_id[:5])

    single = await find_letter(engine.backend.archive, f"{execution_id[:5]}/b")
    assert single == next(letter for letter in letters if letter.token.node_id == "b")


async def test_a_retry_runs_the_failed_node_and_deletes_its_letter(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    execution_id, letters = await run_failing(engine, work, "parse")

    again = await retry_letters(engine.client, engine.backend.archive, letters)

    view = await wait_for_end(engine, again)
    assert (view.status, view.output, view.rerun_of) == ("COMPLETED", {"text": "t"}, execution_id)
    assert work.calls == ["parse", "tell"]
    assert await engine.backend.archive.count_dead_letters() == 0


async def test_repeated_retries_of_one_execution_start_one_rerun(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    execution_id, _ = await run_failing(engine, work, "a", "b", definition=TWO)
    archive = engine.backend.archive
    letters = await list_execution_letters(archive, execution_id)

    ids = {
        *await asyncio.gather(*(retry_letters(engine.client, archive, letters) for _ in range(4)))
    }
    late = await retry_letters(engine.client, archive, letters)
    (only,) = ids

    assert (await wait_for_end(engine, only)).status == "COMPLETED"
    assert late == only
    assert sorted(work.calls) == ["a", "b", "c"]
    listed = await engine.client.list_executions(ExecutionFilter())
    assert {execution.execution_id for execution in listed} == {execution_id, only}


async def test_a_changed_config_is_used_and_stays_for_the_next_retry(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    _, letters = await run_failing(engine, work, "parse")
    work.failures["parse"] = [ValueError("broken again")]
    archive = engine.backend.archive

    first = await retry_letters(
        engine.client, archive, letters, configs={"parse": {"text": "edited"}}
    )
    assert (await wait_for_end(engine, first)).status == "FAILED"
    await wait_for_letters(engine, 1)
    new_letters = await list_execution_letters(archive, first)
    second = await wait_for_end(engine, await retry_letters(engine.client, archive, new_letters))

    assert msgspec.json.decode(new_letters[0].config) == {"text": "edited"}
    assert (second.status, second.output) == ("COMPLETED", {"text": "edited"})


async def test_a_retry_of_a_map_runs_only_the_items_that_did_not_complete(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    work.failures["each"] = [None, None, ValueError("broken")]
    execution_id = await engine.client.submit(MAP, {"items": [1, 2, 3]})
    assert (await wait_for_end(engine, execution_id)).status == "FAILED"
    await wait_for_letters(engine, 1)
    letters = await list_execution_letters(engine.backend.archive, execution_id)
    names, number = [format_letter_name(letter) for letter in letters], letters[0].token.item
    by_former_name = await find_letter(engine.backend.archive, f"{execution_id}/each/{number}")
    work.calls.clear()

    again = await wait_for_end(
        engine, await retry_letters(engine.client, engine.backend.archive, letters)
    )

    assert names[0] == f"{execution_id}/each[{number}]"
    assert by_former_name == letters[0]
    assert (again.status, again.output) == ("COMPLETED", [{"v": 1}, {"v": 2}, {"v": 3}])
    assert len(work.calls) < 3


async def test_a_letter_of_a_child_is_retried_by_a_rerun_of_its_root(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    execution_id, letters = await run_failing(engine, work, "c", definition=PARENT)

    again = await wait_for_end(
        engine, await retry_letters(engine.client, engine.backend.archive, letters)
    )

    assert letters[0].token.execution_id.startswith(f"{execution_id}.sub.")
    assert (again.status, again.rerun_of) == ("COMPLETED", execution_id)
    assert work.calls == ["c"]


async def test_a_letter_that_can_not_be_retried_gives_the_reason(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    client, archive = engine.client, engine.backend.archive
    execution_id, (only,) = await run_failing(engine, work, "parse")
    done = await client.submit(make_workflow(make_node("x")))
    await client.wait_for_end(done)
    gate = work.gate("slow")
    running = await client.submit(make_workflow(make_node("slow")))
    await asyncio.wait_for(work.entered["slow"].wait(), DEADLINE_S)

    def letter_of(execution: str) -> DeadLetter:
        token = msgspec.structs.replace(only.token, execution_id=ExecutionId(execution))
        return msgspec.structs.replace(only, token=token)

    with pytest.raises(
        WrongStateError, match=r"gone.parse can't.*execution was deleted.*dlq purge"
    ):
        await retry_letters(client, archive, [letter_of("gone")])
    with pytest.raises(WrongStateError, match="it has no execution"):
        await retry_letters(client, archive, [letter_of("")])
    with pytest.raises(WrongStateError, match="another attempt completed its execution"):
        await retry_letters(client, archive, [letter_of(done)])
    with pytest.raises(WrongStateError, match="only a final execution can be rerun"):
        await retry_letters(client, archive, [letter_of(running)])
    with pytest.raises(InputError, match="has no node 'nope'"):
        await retry_letters(client, archive, [only], configs={"nope": {}})
    gate.set()
    assert (await client.wait_for_end(execution_id)).state is ExecutionState.FAILED
    assert await archive.count_dead_letters() == 1


async def test_a_rerun_deletes_the_letters_of_its_execution(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    execution_id, _ = await run_failing(engine, work, "a", "b", definition=TWO)

    again = await wait_for_end(engine, await engine.client.rerun(execution_id))

    assert again.status == "COMPLETED"
    assert await engine.backend.archive.count_dead_letters() == 0


async def test_a_rerun_with_another_input_leaves_letters_that_can_be_retried(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    execution_id, letters = await run_failing(engine, work, "parse")
    other = await engine.client.rerun(execution_id, input={"text": "other"})
    await wait_for_end(engine, other)
    left = await engine.backend.archive.count_dead_letters()

    again = await retry_letters(engine.client, engine.backend.archive, letters)

    assert left == 1
    assert (await wait_for_end(engine, again)).output == {"text": "t"}
    assert await engine.backend.archive.count_dead_letters() == 0


async def test_a_rerun_with_the_same_input_given_again_deletes_the_letters(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    execution_id, _ = await run_failing(engine, work, "parse")

    await wait_for_end(engine, await engine.client.rerun(execution_id, input=INPUT))

    assert await engine.backend.archive.count_dead_letters() == 0


async def test_a_rerun_of_a_cancelled_retry_does_its_work(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    _, letters = await run_failing(engine, work, "parse")
    gate = work.gate("parse")
    retry_id = await retry_letters(engine.client, engine.backend.archive, letters)
    await engine.client.cancel(retry_id)
    cancelled = await wait_for_end(engine, retry_id)
    gate.set()

    again = await wait_for_end(engine, await engine.client.rerun(retry_id))

    assert (cancelled.status, again.status) == ("CANCELLED", "COMPLETED")
    assert again.output == {"text": "t"}


async def test_a_letter_whose_rerun_completed_is_not_retried(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    execution_id, (letter,) = await run_failing(engine, work, "parse")
    again = await wait_for_end(engine, await engine.client.rerun(execution_id))
    calls = list(work.calls)

    with pytest.raises(WrongStateError, match=f"execution {again.execution_id} is a completed"):
        await retry_letters(engine.client, engine.backend.archive, [letter])

    assert work.calls == calls


async def test_a_letter_that_is_archived_after_a_rerun_is_deleted(
    shared_redis: RedisServer, shared_postgres: PostgresServer, work: WorkHandler
) -> None:
    async with open_archived_engine(shared_redis, shared_postgres, work, flush_s=0.5) as archived:
        client, archive = archived.client, archived.backend.archive
        work.failures["parse"] = [ValueError("broken")]
        execution_id = await client.submit(PIPELINE, {"text": "t"})
        await client.wait_for_end(execution_id)

        again = await client.wait_for_end(await client.rerun(execution_id))
        async with asyncio.timeout(DEADLINE_S):  # these counts are those of PostgreSQL
            while ExecutionState.COMPLETED not in await archive.count_headers(ALL_EXECUTIONS):
                await archived.engine.clock.wait(asyncio.Event(), 0.01)

        assert again.state is ExecutionState.COMPLETED
        assert await archive.count_dead_letters() == 0


async def test_a_letter_that_is_archived_after_a_rerun_with_another_input_stays(
    shared_redis: RedisServer, shared_postgres: PostgresServer, work: WorkHandler
) -> None:
    async with open_archived_engine(shared_redis, shared_postgres, work, flush_s=0.5) as archived:
        client, archive = archived.client, archived.backend.archive
        work.failures["parse"] = [ValueError("broken")]
        execution_id = await client.submit(PIPELINE, {"text": "t"})
        await client.wait_for_end(execution_id)

        again = await client.rerun(execution_id, input={"text": "other"})
        await client.wait_for_end(again)
        async with asyncio.timeout(DEADLINE_S):  # these counts are those of PostgreSQL
            while ExecutionState.COMPLETED not in await archive.count_headers(ALL_EXECUTIONS):
                await archived.engine.clock.wait(asyncio.Event(), 0.01)

        await wait_for_letters(archived.engine, 1)

        assert await archive.count_dead_letters() == 1


def test_a_letter_without_a_node_has_a_unique_name() -> None:
    first, second = make_dead_letter(""), make_dead_letter("", rejected_at=2.0)
    item = msgspec.structs.replace(
        make_dead_letter("a"),
        token=msgspec.structs.replace(make_dead_letter("a").token, item=7, node_id=NodeId("a b")),
    )

    assert format_letter_name(first) == format_letter_name(make_dead_letter(""))
    assert format_letter_name(first) != format_letter_name(second)
    assert format_letter_name(first).startswith("x1/~")
    assert format_letter_name(item) == "x1/a b[7]"


async def test_a_retry_deletes_the_letter_from_redis_and_postgresql(
    shared_redis: RedisServer, shared_postgres: PostgresServer, work: WorkHandler
) -> None:
    async with open_archived_engine(shared_redis, shared_postgres, work) as archived:
        _, letters = await run_failing(archived.engine, work, "parse")
        hot = archived.backend.redis.archive
        before = await hot.count_dead_letters()

        await retry_letters(archived.client, archived.backend.archive, letters)

        assert before == 1
        assert await hot.count_dead_letters() == 0
        assert await archived.backend.archive.count_dead_letters() == 0
