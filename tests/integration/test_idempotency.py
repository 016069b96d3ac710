"""An idempotency key belongs to one execution, on every backend and for every caller."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from runnel.app.embedded_engine import EmbeddedEngine
from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.backends.sqlite.backend import SqliteBackend
from runnel.client.idempotency import KEY_LABEL, build_key_labels, derive_execution_id
from runnel.client.reruns import RerunSpec
from runnel.client.store_client import StoreClient
from runnel.core.commands import CreateExecution
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.retry import RetryPolicy
from runnel.core.values import EMPTY_OBJECT
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.errors import KeyReusedError, PayloadError
from runnel.notify.waiter import Completion
from runnel.ports.archive import ExecutionFilter
from runnel.testing.clock import FakeClock, FakeIds
from tests.core_driver import make_node, make_workflow
from tests.engines import DEADLINE_S, WorkHandler, wait_for_end
from tests.integration.test_scenarios import engine, work
from tests.redis_postgres import fetch_rows, open_archived_engine

__all__ = ["engine", "work"]

ONE = make_workflow(make_node("a", config={"n": "{{ input.n }}"}))
FRAGILE = make_workflow(
    make_node("a", handler="input"), make_node("b", "a", retry=RetryPolicy(max_retries=0))
)


async def test_a_second_submit_with_the_same_key_is_the_first_execution(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    first = await engine.client.submit(ONE, {"n": 1}, idempotency_key="order 7")
    under_way = await engine.client.submit(ONE, {"n": 1}, idempotency_key="order 7")
    view = await wait_for_end(engine, first)
    ended = await engine.client.submit(ONE, {"n": 1}, idempotency_key="order 7")
    again = await wait_for_end(engine, ended)

    assert first == under_way == ended == derive_execution_id(ONE.name, "order 7")
    assert (view.output, again.finished_at) == ({"n": 1}, view.finished_at)
    assert work.calls == ["a"]


async def test_concurrent_submits_with_one_key_create_one_execution(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    submits = [engine.client.submit(ONE, {"n": 1}, idempotency_key="k") for _ in range(20)]

    ids = set(await asyncio.gather(*submits))

    (only,) = ids
    assert (await wait_for_end(engine, only)).status == "COMPLETED"
    assert work.calls == ["a"]
    listed = await engine.client.list_executions(ExecutionFilter())
    assert [header.execution_id for header in listed] == [only]


async def test_the_order_of_object_keys_does_not_change_an_input(engine: EmbeddedEngine) -> None:
    first = await engine.client.submit(ONE, {"n": 1, "m": {"a": 1, "b": 2}}, idempotency_key="k")
    second = await engine.client.submit(ONE, {"m": {"b": 2, "a": 1}, "n": 1}, idempotency_key="k")

    assert first == second


async def test_a_key_belongs_to_one_workflow(engine: EmbeddedEngine) -> None:
    other = msgspec.structs.replace(ONE, name="other")

    ids = {
        await engine.client.submit(ONE, {"n": 1}, idempotency_key="k"),
        await engine.client.submit(ONE, {"n": 1}, idempotency_key="K"),
        await engine.client.submit(other, {"n": 1}, idempotency_key="k"),
    }

    assert len(ids) == 3


async def test_another_input_or_definition_with_a_used_key_is_refused(
    engine: EmbeddedEngine,
) -> None:
    used = await engine.client.submit(ONE, {"n": 1}, idempotency_key="k")
    changed = make_workflow(make_node("a", config={"n": "{{ input.n }}", "m": 1}))

    with pytest.raises(KeyReusedError, match=f"'k' belongs to execution {used}.*another input"):
        await engine.client.submit(ONE, {"n": 2}, idempotency_key="k")
    with pytest.raises(KeyReusedError, match="with version 1 of the workflow; use another key"):
        await engine.client.submit(changed, {"n": 1}, idempotency_key="k")
    await wait_for_end(engine, used)
    with pytest.raises(KeyReusedError, match="another input"):
        await engine.client.submit(ONE, {"n": 2}, idempotency_key="k")


@pytest.mark.parametrize("key", ["", "x" * 501, "\ud800"], ids=["empty", "long", "surrogate"])
async def test_an_invalid_key_is_refused(engine: EmbeddedEngine, key: str) -> None:
    with pytest.raises(PayloadError, match="the idempotency key: "):
        await engine.client.submit(ONE, {"n": 1}, idempotency_key=key)


async def test_an_execution_is_rerun_once_for_a_key(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    work.failures["b"] = [ValueError("no"), ValueError("no")]
    former = await engine.client.submit(FRAGILE, {"n": 1}, idempotency_key="k")
    assert (await wait_for_end(engine, former)).status == "FAILED"

    reruns = [engine.client.rerun(former, idempotency_key="retry") for _ in range(5)]
    (first,) = set(await asyncio.gather(*reruns))
    failed = await wait_for_end(engine, first)
    known = await engine.client.rerun(former, idempotency_key="retry")
    other = await engine.client.rerun(former, idempotency_key="retry 2")
    completed = await wait_for_end(engine, other)

    assert (failed.status, completed.status) == ("FAILED", "COMPLETED")
    assert (known, len({former, first, other})) == (first, 3)
    assert work.calls == ["b"] * 3
    assert completed.labels[KEY_LABEL] == "retry 2"


async def test_a_key_belongs_to_one_rerun(engine: EmbeddedEngine) -> None:
    former = await engine.client.submit(FRAGILE, {"n": 1})
    await engine.client.wait_for_end(former)
    whole_rerun = RerunSpec(is_whole=True)
    used = await engine.client.rerun(former, whole_rerun, input={"n": 2}, idempotency_key="k")

    same = await engine.client.rerun(former, whole_rerun, input={"n": 2}, idempotency_key="k")

    assert same == used
    problem = f"'k' belongs to execution {used}.*other nodes, configs or input; use another key"
    with pytest.raises(KeyReusedError, match=problem):
        await engine.client.rerun(former, whole_rerun, input={"n": 3}, idempotency_key="k")
    with pytest.raises(KeyReusedError, match=problem):
        await engine.client.rerun(former, RerunSpec(again=["b"]), idempotency_key="k")


async def test_an_interrupted_rerun_is_completed_by_the_next_one(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    """The former caller died after its first message, and the workflow has a new version."""
    newest = RerunSpec(is_newest=True)
    work.failures["b"] = [ValueError("no")]
    former = await engine.client.submit(make_workflow(make_node("a"), *FRAGILE.nodes[1:]))
    header = await engine.client.wait_for_end(former)
    rerun_id = derive_execution_id(former, "retry")
    command = CreateExecution(
        execution_id=rerun_id,
        workflow=header.workflow,
        definition=DefinitionHash(header.definition),
        version=header.version,
        input=EMPTY_OBJECT,
        rerun_of=former,
        is_held=True,
        created_at=1.0,
        labels=build_key_labels("retry", msgspec.json.encode([newest, None])),
    )
    await engine.backend.mailbox.send([command])
    await engine.client.hold(make_workflow(make_node("c")))

    again = await engine.client.rerun(former, newest, idempotency_key="retry")

    assert again == rerun_id
    assert (await wait_for_end(engine, again)).status == "COMPLETED"
    assert work.calls == ["a", "b", "b"]


async def test_two_processes_with_the_same_key_create_one_execution(tmp_path: Path) -> None:
    """Both lookups find nothing. The second process finds the execution of the first on write."""
    clock = FakeClock()
    opened = [await SqliteBackend.open(tmp_path, clock=clock, ids=FakeIds(name)) for name in "ab"]
    homes = [
        await backend.claim_home_partition(f"process {at}") for at, backend in enumerate(opened)
    ]
    clients = [
        StoreClient(backend, clock, FakeIds(), get_completion=lambda _id: Completion())
        for backend in opened
    ]
    late = clients[1]
    real = opened[1].archive.get_header
    lookups: list[ExecutionId] = []

    async def miss_first_lookup(execution_id: ExecutionId) -> object:
        lookups.append(execution_id)
        if len(lookups) > 1:
            return await real(execution_id)
        await clients[0].submit(ONE, {"n": 1}, idempotency_key="k")
        return None

    opened[1].archive.get_header = miss_first_lookup  # type: ignore[method-assign, assignment]
    execution_id = await late.submit(ONE, {"n": 1}, idempotency_key="k")
    await late.cancel(execution_id)

    leases = [
        await backend.store.acquire(home, "o") for backend, home in zip(opened, homes, strict=True)
    ]
    inboxes = [
        await backend.store.read_inbox(lease, limit=9, wait_s=0)
        for backend, lease in zip(opened, leases, strict=True)
    ]
    assert len(set(homes)) == 2
    assert [await backend.store.route(execution_id) for backend in opened] == [homes[0]] * 2
    kinds = [[type(entry.command).__name__ for entry in inbox] for inbox in inboxes]
    assert kinds == [["CreateExecution", "CreateExecution", "CancelExecution"], []]
    for backend in opened:
        await backend.close()


async def test_a_caller_that_was_paused_does_not_start_a_second_execution(
    shared_redis: RedisServer, shared_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller looks up the key before the other submit and resumes after Redis evicted it."""
    work, stopped, resumed = WorkHandler(), asyncio.Event(), asyncio.Event()
    async with open_archived_engine(shared_redis, shared_postgres, work, keep_s=0.1) as archived:
        backend = archived.backend
        late = StoreClient(
            backend, RealClock(), RandomIdGenerator(), get_completion=lambda _id: Completion()
        )
        put = backend.archive.put_definition

        async def put_later(name: str, hash_: DefinitionHash, document: bytes) -> int:
            if not stopped.is_set():
                stopped.set()
                await resumed.wait()
            return await put(name, hash_, document)

        monkeypatch.setattr(backend.archive, "put_definition", put_later)
        submitting = asyncio.create_task(late.submit(ONE, {"n": 1}, idempotency_key="k"))
        await stopped.wait()
        first = await archived.client.submit(ONE, {"n": 1}, idempotency_key="k")
        await archived.ends([first])
        async with asyncio.timeout(DEADLINE_S):
            while await backend.redis.archive.get_header(first) is not None:
                await backend.ledger.cursor(0)
        resumed.set()

        assert await submitting == first
        assert await backend.redis.archive.get_header(first) is None
        assert await fetch_rows(backend, "SELECT count(*) FROM commands") == [(1,)]
        assert work.calls == ["a"]
