"""The parts of `runnel.Client` and `SyncClient`: triggers, dead letters, operations, many."""

from collections.abc import Iterator
from functools import partial

import pytest

from runnel import Client, SyncClient, WorkflowDAG
from runnel.client.dead_letters import LettersOf
from runnel.client.http_resources import (
    HttpBulk,
    HttpDeadLetters,
    HttpOperations,
    HttpSchedules,
    HttpWebhooks,
)
from runnel.client.sync_client import (
    SyncBulk,
    SyncDeadLetters,
    SyncOperations,
    SyncSchedules,
    SyncWebhooks,
)
from runnel.core.states import ExecutionState
from runnel.errors import ConflictError, InputError, NotFoundError, WrongStateError
from runnel.ports.archive import ALL_EXECUTIONS, ExecutionFilter
from runnel.views.page import BulkStep
from runnel.views.trigger import Schedule, Webhook
from tests.e2e.dev_server import DevServer, dev_server
from tests.waiting import wait_for_value

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    folder = tmp_path_factory.mktemp("parts")
    with dev_server(folder, RETRY_MAX_RETRIES="0", RUNNEL_SECRET_SHOP="open-sesame-7") as running:
        yield running


def greeting(name: str) -> WorkflowDAG:
    dag = WorkflowDAG(name)
    dag.add_node("greet", "output", {"text": "hi"})
    return dag


def refused(name: str) -> WorkflowDAG:
    """A server calls no function of its own machine: what asks for one is set aside."""
    dag = WorkflowDAG(name)
    dag.add_node("look", "python", {"function": "os:getcwd"})
    return dag


def waiting(name: str) -> WorkflowDAG:
    dag = WorkflowDAG(name)
    dag.add_node("ask", "wait_for_signal", {"signal": "go"})
    return dag


async def test_schedules_are_kept(server: DevServer) -> None:
    nightly = Schedule(id="nightly", workflow="scheduled", cron="0 3 * * *", labels={"by": "us"})
    async with Client(server.url) as client:
        await client.store(greeting("scheduled"))
        added = await client.schedules.add(nightly)
        with pytest.raises(ConflictError):
            await client.schedules.add(nightly)
        paused = await client.schedules.pause("nightly")
        listed = await client.schedules.list()
        resumed = await client.schedules.pause("nightly", is_paused=False)
        await client.schedules.remove("nightly")
        with pytest.raises(NotFoundError):
            await client.schedules.get("nightly")

    assert (added.cron, added.labels, added.fired) == (
        "0 3 * * *",
        {"by": "us"},
        0,
    )
    assert [each.id for each in listed] == ["nightly"]
    assert (paused.is_paused, resumed.is_paused) == (True, False)


async def test_webhooks_are_kept(server: DevServer) -> None:
    async with Client(server.url) as client:
        await client.store(greeting("called"))
        added = await client.webhooks.add(Webhook(workflow="called", secret="shop"))
        with pytest.raises(ConflictError):
            await client.webhooks.add(Webhook(workflow="called", secret="shop"))
        again = await client.webhooks.add(
            Webhook(workflow="called", secret="shop", header="X-Shop"), replaces=True
        )
        listed = await client.webhooks.list()
        await client.webhooks.remove("called")
        with pytest.raises(NotFoundError):
            await client.webhooks.get("called")

    assert (added.secret, again.header) == ("shop", "X-Shop")
    assert [each.workflow for each in listed] == ["called"]


async def test_dead_letters_are_read_retried_and_purged(server: DevServer) -> None:
    async with Client(server.url) as client:
        letters = client.dead_letters
        ids = [await client.submit(refused("odd")) for _ in range(3)]
        for each in ids:
            await client.wait(each, timeout_s=20)
        listed = [each async for each in letters.list(workflow="odd")]
        one = await letters.get(listed[0].name)
        retried = await letters.retry(one.name, {"look": {"function": "os:getpid"}})
        await client.wait(retried.execution_id, timeout_s=20)
        with pytest.raises(InputError, match="select dead letters by"):
            await letters.retry_many(LettersOf())
        many = await letters.retry_many(LettersOf(workflow="odd"), limit=1)
        await letters.purge(listed[0].name.replace(listed[0].execution_id, retried.execution_id))
        left = await letters.count(workflow="odd")
        purged = await letters.purge_many(LettersOf(workflow="odd"))
        with pytest.raises(NotFoundError):
            await letters.get(one.name)

    assert {each.execution_id for each in listed} == set(ids)
    assert (one.node, one.queue, one.execution_status) == ("look", "python", "FAILED")
    assert (retried.rerun_of, retried.letters) == (one.execution_id, [one.name])
    assert (len(many.retried), many.refused) == (1, [])
    assert purged >= left - 1


async def test_what_an_operator_looks_at_is_told(server: DevServer) -> None:
    async with Client(server.url) as client:
        await client.run(greeting("seen"))
        workers = await client.operations.workers()
        queues = await client.operations.queues()
        partitions = await client.operations.partitions()
        limits = [each async for each in client.operations.limits()]
        one = await client.operations.worker(workers[0].worker)
        with pytest.raises(NotFoundError):
            await client.operations.drain("nobody")

    assert (workers[0].state, one.worker) == ("alive", workers[0].worker)
    assert not [each for each in queues if each.problem]
    assert [each.partition for each in partitions if each.owner is not None]
    assert limits == []


async def test_many_are_cancelled_and_rerun_by_a_filter(server: DevServer) -> None:
    of_them = ExecutionFilter(workflow="long")
    async with Client(server.url) as client:
        await client.store(waiting("long"))
        ids = [await client.submit("long") for _ in range(3)]
        steps = [each async for each in client.many.cancel(of_them, reason="no more")]
        ended = [await client.wait(each, timeout_s=20) for each in ids]
        cancelled = ExecutionFilter(workflow="long", states=(ExecutionState.CANCELLED,))
        reruns = [each async for each in client.many.rerun(cancelled, key="once")]
        for each in _ids(reruns):  # one that is PENDING would be sent again
            await wait_for_value(partial(_begun, client, each), every_s=0.02, deadline_s=20)
        again = [each async for each in client.many.rerun(cancelled, key="once")]
        everything = [each async for each in client.many.cancel(ALL_EXECUTIONS)]

    assert _ids(steps) == set(ids)
    assert {each.error for each in ended} == {"Cancelled: no more"}
    assert (len(_ids(reruns)), _ids(again)) == (3, set())
    assert sum(each.known for each in again) == 3
    assert _ids(reruns) <= _ids(everything)


def test_the_parts_have_a_face_without_an_event_loop(server: DevServer) -> None:
    with SyncClient(server.url) as client:
        client.store(waiting("plain"))
        begun = client.submit("plain")
        client.schedules.add(Schedule(id="plain", workflow="plain", interval_s=3_600))
        listed = [each.id for each in client.schedules.list()]
        client.schedules.remove("plain")
        letters = list(client.dead_letters.list(workflow="nobody"))
        workers = client.operations.workers()
        steps = list(client.many.cancel(ExecutionFilter(workflow="plain")))
        client.wait(begun, timeout_s=20)
        with pytest.raises(WrongStateError):
            client.cancel(begun)

    assert (listed, letters, len(workers)) == (["plain"], [], 1)
    assert _ids(steps) == {begun}


@pytest.mark.parametrize(
    ("part", "face"),
    [
        (HttpSchedules, SyncSchedules),
        (HttpWebhooks, SyncWebhooks),
        (HttpDeadLetters, SyncDeadLetters),
        (HttpOperations, SyncOperations),
        (HttpBulk, SyncBulk),
    ],
)
def test_the_face_of_a_part_has_every_method_of_it(part: type, face: type) -> None:
    methods = {name for name in vars(part) if not name.startswith("_")}

    assert methods == {name for name in vars(face) if not name.startswith("_")}


def _ids(steps: list[BulkStep]) -> set[str]:
    return {id_ for step in steps for id_ in step.ids}


async def _begun(client: Client, execution_id: str) -> bool | None:
    return (await client.get(execution_id)).status is not ExecutionState.PENDING or None
