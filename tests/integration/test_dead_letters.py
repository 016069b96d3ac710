"""Dead letters are named, found and retried, on every backend."""

import asyncio

import msgspec
import pytest

from runnel.app.engine import Engine
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
from runnel.ports.archive import ALL_DEAD_LETTERS, ExecutionFilter
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


async def failed(
    engine: Engine, work: WorkHandler, *failing: str, definition: Workflow = PIPELINE
) -> tuple[ExecutionId, list[DeadLetter]]:
    """An execution, and the letters there are: an archive may lag behind what has happened."""
    for name in failing:
        work.failures[name] = [ValueError("broken")]
    execution_id = await engine.client.submit(definition, {"text": "t", "items": [1, 2, 3]})
    assert (await wait_for_end(engine, execution_id)).status == "FAILED"
    work.calls.clear()
    await until_there(engine, len(failing))
    return execution_id, [
        each async for each in iter_letters(engine.backend.archive, ALL_DEAD_LETTERS)
    ]


async def until_there(engine: Engine, number: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while await engine.backend.archive.count_dead_letters() < number:
            await engine.clock.wait(asyncio.Event(), 0.01)


async def test_a_letter_has_a_name_by_which_it_is_found(engine: Engine, work: WorkHandler) -> None:
    execution_id, (only,) = await failed(engine, work, "parse")
    archive = engine.backend.archive

    names = [f"{execution_id}/parse", execution_id, f"{execution_id[:6]}/parse", execution_id[:4]]
    found = [await find_letter(archive, name) for name in names]

    assert format_letter_name(only) == f"{execution_id}/parse"
    assert found == [only] * 4
    assert (only.workflow, only.error.type, only.token.attempt) == ("test", "ValueError", 1)
    for unknown in ("nope", f"{execution_id}/read", f"{execution_id}/parse/1", "\ud800", "x/"):
        with pytest.raises(NotFoundError, match="no dead letter"):
            await find_letter(archive, unknown)


async def test_a_name_that_several_have_is_not_guessed(engine: Engine, work: WorkHandler) -> None:
    execution_id, both = await failed(engine, work, "a", "b", definition=TWO)

    with pytest.raises(NotFoundError, match=f"no single.*'{execution_id}/[ab]', '{execution_id}/"):
        await find_letter(engine.backend.archive, execution_id[:5])

    found = await find_letter(engine.backend.archive, f"{execution_id[:5]}/b")
    assert found == next(each for each in both if each.token.node_id == "b")


async def test_what_failed_is_retried_and_the_letter_is_gone(
    engine: Engine, work: WorkHandler
) -> None:
    execution_id, found = await failed(engine, work, "parse")

    again = await retry_letters(engine.client, engine.backend.archive, found)

    view = await wait_for_end(engine, again)
    assert (view.status, view.output, view.rerun_of) == ("COMPLETED", {"text": "t"}, execution_id)
    assert work.calls == ["parse", "tell"]
    assert await engine.backend.archive.count_dead_letters() == 0


async def test_letters_of_one_execution_are_retried_by_one_rerun_however_often_asked(
    engine: Engine, work: WorkHandler
) -> None:
    execution_id, _ = await failed(engine, work, "a", "b", definition=TWO)
    archive = engine.backend.archive
    both = await list_execution_letters(archive, execution_id)

    ids = {*await asyncio.gather(*(retry_letters(engine.client, archive, both) for _ in range(4)))}
    late = await retry_letters(engine.client, archive, both)
    (only,) = ids

    assert (await wait_for_end(engine, only)).status == "COMPLETED"
    assert late == only
    assert sorted(work.calls) == ["a", "b", "c"]
    listed = await engine.client.list_executions(ExecutionFilter())
    assert {each.execution_id for each in listed} == {execution_id, only}


async def test_a_changed_config_is_used_and_stays_for_the_next_retry(
    engine: Engine, work: WorkHandler
) -> None:
    _, found = await failed(engine, work, "parse")
    work.failures["parse"] = [ValueError("broken again")]
    archive = engine.backend.archive

    first = await retry_letters(
        engine.client, archive, found, configs={"parse": {"text": "edited"}}
    )
    assert (await wait_for_end(engine, first)).status == "FAILED"
    await until_there(engine, 1)
    rest = await list_execution_letters(archive, first)
    second = await wait_for_end(engine, await retry_letters(engine.client, archive, rest))

    assert msgspec.json.decode(rest[0].config) == {"text": "edited"}
    assert (second.status, second.output) == ("COMPLETED", {"text": "edited"})


async def test_of_a_map_only_what_had_not_completed_is_retried(
    engine: Engine, work: WorkHandler
) -> None:
    work.failures["each"] = [None, None, ValueError("broken")]
    execution_id = await engine.client.submit(MAP, {"items": [1, 2, 3]})
    assert (await wait_for_end(engine, execution_id)).status == "FAILED"
    await until_there(engine, 1)
    found = await list_execution_letters(engine.backend.archive, execution_id)
    work.calls.clear()

    again = await wait_for_end(
        engine, await retry_letters(engine.client, engine.backend.archive, found)
    )

    assert format_letter_name(found[0]).startswith(f"{execution_id}/each/")
    assert (again.status, again.output) == ("COMPLETED", [{"v": 1}, {"v": 2}, {"v": 3}])
    assert len(work.calls) < 3


async def test_a_letter_of_a_child_is_retried_by_its_root(
    engine: Engine, work: WorkHandler
) -> None:
    execution_id, found = await failed(engine, work, "c", definition=PARENT)

    again = await wait_for_end(
        engine, await retry_letters(engine.client, engine.backend.archive, found)
    )

    assert found[0].token.execution_id.startswith(f"{execution_id}.sub.")
    assert (again.status, again.rerun_of) == ("COMPLETED", execution_id)
    assert work.calls == ["c"]


async def test_a_letter_that_can_not_be_retried_says_why(engine: Engine, work: WorkHandler) -> None:
    client, archive = engine.client, engine.backend.archive
    execution_id, (only,) = await failed(engine, work, "parse")
    done = await client.submit(make_workflow(make_node("x")))
    await client.wait_for_end(done)
    gate = work.gate("slow")
    running = await client.submit(make_workflow(make_node("slow")))
    await asyncio.wait_for(work.entered["slow"].wait(), DEADLINE_S)

    def of(execution: str) -> DeadLetter:
        token = msgspec.structs.replace(only.token, execution_id=ExecutionId(execution))
        return msgspec.structs.replace(only, token=token)

    with pytest.raises(WrongStateError, match=r"gone/parse: its execution was deleted.*dlq purge"):
        await retry_letters(client, archive, [of("gone")])
    with pytest.raises(WrongStateError, match="it does not belong to an execution"):
        await retry_letters(client, archive, [of("")])
    with pytest.raises(WrongStateError, match="another attempt completed its execution"):
        await retry_letters(client, archive, [of(done)])
    with pytest.raises(WrongStateError, match="only a final execution can be rerun"):
        await retry_letters(client, archive, [of(running)])
    with pytest.raises(InputError, match="has no node 'nope'"):
        await retry_letters(client, archive, [only], configs={"nope": {}})
    gate.set()
    assert (await client.wait_for_end(execution_id)).state is ExecutionState.FAILED
    assert await archive.count_dead_letters() == 1


def test_a_command_without_a_node_has_a_name_of_its_own() -> None:
    one, other = make_dead_letter(""), make_dead_letter("", rejected_at=2.0)
    item = msgspec.structs.replace(
        make_dead_letter("a"),
        token=msgspec.structs.replace(make_dead_letter("a").token, item=7, node_id=NodeId("a b")),
    )

    assert format_letter_name(one) == format_letter_name(make_dead_letter(""))
    assert format_letter_name(one) != format_letter_name(other)
    assert format_letter_name(one).startswith("x1/~")
    assert format_letter_name(item) == "x1/a b/7"


async def test_redis_and_postgresql_both_forget_a_letter_that_was_retried(
    shared_redis: RedisServer, shared_postgres: PostgresServer, work: WorkHandler
) -> None:
    async with open_archived_engine(shared_redis, shared_postgres, work) as archived:
        _, found = await failed(archived.engine, work, "parse")
        hot = archived.backend.redis.archive
        before = await hot.count_dead_letters()

        await retry_letters(archived.client, archived.backend.archive, found)

        assert before == 1
        assert await hot.count_dead_letters() == 0
        assert await archived.backend.archive.count_dead_letters() == 0
