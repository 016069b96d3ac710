"""The parts of `Client` and `SyncClient`: triggers, dead letters, operations, bulk actions."""

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
from runnel.client.sync_client import SyncWebhooks
from runnel.client.sync_wrappers import SyncBulk, SyncDeadLetters, SyncOperations, SyncSchedules
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


def make_greeting(name: str) -> WorkflowDAG:
    dag = WorkflowDAG(name)
    dag.add_node("greet", "output", {"text": "hi"})
    return dag


def make_refused(name: str) -> WorkflowDAG:
    """Returns a workflow that makes a dead letter: the server may not call functions of `os`."""
    dag = WorkflowDAG(name)
    dag.add_node("look", "python", {"function": "os:getcwd"})
    return dag


def make_waiting(name: str) -> WorkflowDAG:
    dag = WorkflowDAG(name)
    dag.add_node("ask", "wait_for_signal", {"signal": "go"})
    return dag


async def test_schedules_are_added_paused_and_removed(server: DevServer) -> None:
    nightly = Schedule(id="nightly", workflow="scheduled", cron="0 3 * * *", labels={"by": "us"})
    async with Client(server.url) as client:
        await client.store(make_greeting("scheduled"))
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
    assert [schedule.id for schedule in listed] == ["nightly"]
    assert (paused.is_paused, resumed.is_paused) == (True, False)


async def test_webhooks_are_added_replaced_and_removed(server: DevServer) -> None:
    async with Client(server.url) as client:
        await client.store(make_greeting("called"))
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
    assert [webhook.workflow for webhook in listed] == ["called"]


async def test_dead_letters_are_read_retried_and_purged(server: DevServer) -> None:
    async with Client(server.url) as client:
        letters = client.dead_letters
        ids = [await client.submit(make_refused("odd")) for _ in range(3)]
        for id_ in ids:
            await client.wait(id_, timeout_s=20)
        listed = [letter async for letter in letters.list(workflow="odd")]
        first = await letters.get(listed[0].name)
        retried = await letters.retry(first.name, {"look": {"function": "os:getpid"}})
        await client.wait(retried.execution_id, timeout_s=20)
        with pytest.raises(InputError, match="select dead letters by"):
            await letters.retry_many(LettersOf())
        many = await letters.retry_many(LettersOf(workflow="odd"), limit=1)
        await letters.purge(listed[0].name.replace(listed[0].execution_id, retried.execution_id))
        remaining = await letters.count(workflow="odd")
        purged = await letters.purge_many(LettersOf(workflow="odd"))
        with pytest.raises(NotFoundError):
            await letters.get(first.name)

    assert {letter.execution_id for letter in listed} == set(ids)
    assert (first.node, first.queue, first.execution_status) == ("look", "python", "FAILED")
    assert (retried.rerun_of, retried.letters) == (first.execution_id, [first.name])
    assert (len(many.retried), many.refused) == (1, [])
    assert purged >= remaining - 1


async def test_operators_can_read_workers_queues_partitions_and_limits(server: DevServer) -> None:
    async with Client(server.url) as client:
        await client.run(make_greeting("seen"))
        workers = await client.operations.workers()
        queues = await client.operations.queues()
        partitions = await client.operations.partitions()
        limits = [limit async for limit in client.operations.limits()]
        worker = await client.operations.worker(workers[0].worker)
        with pytest.raises(NotFoundError):
            await client.operations.drain("nobody")

    assert (workers[0].status, worker.worker) == ("alive", workers[0].worker)
    assert not [queue for queue in queues if queue.problem]
    assert [partition.partition for partition in partitions if partition.owner is not None]
    assert limits == []


async def test_many_executions_are_cancelled_and_rerun_by_a_filter(server: DevServer) -> None:
    of_workflow = ExecutionFilter(workflow="long")
    async with Client(server.url) as client:
        await client.store(make_waiting("long"))
        ids = [await client.submit("long") for _ in range(3)]
        steps = [step async for step in client.many.cancel(of_workflow, reason="no more")]
        ended = [await client.wait(id_, timeout_s=20) for id_ in ids]
        cancelled = ExecutionFilter(workflow="long", states=(ExecutionState.CANCELLED,))
        reruns = [step async for step in client.many.rerun(cancelled, key="once")]
        for id_ in _ids(reruns):  # a PENDING execution would be submitted again
            await wait_for_value(partial(_has_started, client, id_), every_s=0.02, deadline_s=20)
        again = [step async for step in client.many.rerun(cancelled, key="once")]
        everything = [step async for step in client.many.cancel(ALL_EXECUTIONS)]

    assert _ids(steps) == set(ids)
    assert {execution.error for execution in ended} == {"Cancelled: no more"}
    assert (len(_ids(reruns)), _ids(again)) == (3, set())
    assert sum(step.known for step in again) == 3
    assert _ids(reruns) <= _ids(everything)


def test_the_parts_work_without_an_event_loop(server: DevServer) -> None:
    with SyncClient(server.url) as client:
        client.store(make_waiting("plain"))
        execution_id = client.submit("plain")
        client.schedules.add(Schedule(id="plain", workflow="plain", interval_s=3_600))
        listed = [schedule.id for schedule in client.schedules.list()]
        client.schedules.remove("plain")
        letters = list(client.dead_letters.list(workflow="nobody"))
        workers = client.operations.workers()
        steps = list(client.many.cancel(ExecutionFilter(workflow="plain")))
        client.wait(execution_id, timeout_s=20)
        with pytest.raises(WrongStateError):
            client.cancel(execution_id)

    assert (listed, letters, len(workers)) == (["plain"], [], 1)
    assert _ids(steps) == {execution_id}


@pytest.mark.parametrize(
    ("part", "sync_part"),
    [
        (HttpSchedules, SyncSchedules),
        (HttpWebhooks, SyncWebhooks),
        (HttpDeadLetters, SyncDeadLetters),
        (HttpOperations, SyncOperations),
        (HttpBulk, SyncBulk),
    ],
)
def test_a_synchronous_part_has_every_method_of_the_asynchronous_part(
    part: type, sync_part: type
) -> None:
    methods = {name for name in vars(part) if not name.startswith("_")}

    assert methods == {name for name in vars(sync_part) if not name.startswith("_")}


def _ids(steps: list[BulkStep]) -> set[str]:
    return {id_ for step in steps for id_ in step.ids}


async def _has_started(client: Client, execution_id: str) -> bool | None:
    return (await client.get(execution_id)).status is not ExecutionState.PENDING or None
