"""`runnel.Client` and `runnel.SyncClient` with a server in a separate process."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from runnel import Client, SyncClient, WorkflowDAG
from runnel.client.idempotency import derive_execution_id
from runnel.client.reruns import RerunSpec
from runnel.errors import (
    InputError,
    InvalidInputError,
    InvalidWorkflowError,
    KeyReusedError,
    MissingScopeError,
    NotAuthenticatedError,
    NotFoundError,
    WorkflowFailedError,
    WrongStateError,
)
from tests.e2e.dev_server import DevServer, dev_server
from tests.e2e.program import Program
from tests.unit.client.typed_client import total

pytestmark = pytest.mark.e2e

FLOW = """
import runnel

@runnel.task
def double(x: int) -> int:
    return 2 * x

@runnel.workflow
def doubled(x: int = 1) -> int:
    return double(x)
"""
CHECKED = """
name: checked
input: {type: object, required: [name]}
nodes:
  - {id: greet, handler: output, config: {text: "Hello {{ input.name }}"}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "own_flow.py").write_text(FLOW)
    (folder / "checked.yaml").write_text(CHECKED)
    with dev_server(folder, RETRY_MAX_RETRIES="0") as running:
        yield running


async def test_a_workflow_file_runs_and_its_execution_can_be_read(server: DevServer) -> None:
    async with Client(server.url) as client:
        done = await client.run(
            server.program.folder / "chain.json", labels={"team": "red"}, priority=3
        )
        again = await client.get(done.execution_id)
        events = await client.history(done.execution_id)

    assert (done.status, done.output, done.nodes["a"].output) == ("COMPLETED", {"y": 1}, {"x": 1})
    assert again == done
    assert (done.labels["team"], done.priority) == ("red", 3)
    assert done.created_at <= (done.started_at or 0) <= (done.finished_at or 0)
    assert [events[0].event, events[-1].event] == ["ExecutionCreated", "ExecutionFinished"]


async def test_a_python_file_a_builder_and_a_stored_name_can_be_run(server: DevServer) -> None:
    dag = WorkflowDAG("built")
    dag.add_node("one", "output", {"x": "{{ input.x }}"})

    async with Client(server.url) as client:
        traced = await client.run(server.program.folder / "own_flow.py", {"x": 4})
        built = await client.run(dag, {"x": 5})
        named = await client.run("built", {"x": 6})
        stored = [workflow.name async for workflow in client.workflows()]

    assert (traced.output, built.output, named.output) == (8, {"x": 5}, {"x": 6})
    assert {"built", "doubled"} <= set(stored)


async def test_the_retry_default_of_the_server_is_not_stored_in_a_definition(
    server: DevServer,
) -> None:
    async with Client(server.url) as client:
        stored = await client.store(total)
        versions = await client.versions("total")
        document = await client.document("total", 1)

    assert versions == [stored]
    assert "retry" not in document["nodes"][0]  # the default of the server is not written into it


async def test_a_held_execution_starts_when_it_is_triggered(server: DevServer) -> None:
    async with Client(server.url) as client:
        held = await client.hold(server.program.folder / "checked.yaml")
        waiting = await client.get(held)
        with pytest.raises(InvalidInputError, match="name"):
            await client.trigger(held, {})
        await client.trigger(held, {"name": "Ada"}, idempotency_key="once")
        await client.trigger(held, {"name": "Ada"}, idempotency_key="once")
        done = await client.wait(held, timeout_s=20)
        with pytest.raises(WrongStateError):
            await client.trigger(held, {"name": "Bob"})

    assert (waiting.status, done.output) == ("PENDING", {"text": "Hello Ada"})


async def test_a_signal_and_a_cancel_reach_an_execution(server: DevServer) -> None:
    async with Client(server.url) as client:
        approved = await client.submit(server.program.folder / "tidied.json")
        with pytest.raises(TimeoutError):
            await client.wait(approved, timeout_s=0.05)
        await client.signal(approved, "approve", {"by": "ada"})
        ended = await client.wait(approved, timeout_s=20)
        unwanted = await client.submit("tidied")
        await client.cancel(unwanted, reason="wrong file")
        cancelled = await client.wait(unwanted, timeout_s=20)
        with pytest.raises(WrongStateError):
            await client.cancel(unwanted)

    assert (ended.status, ended.nodes["approve"].output) == ("COMPLETED", {"by": "ada"})
    assert (cancelled.status, cancelled.error) == ("CANCELLED", "Cancelled: wrong file")


async def test_a_failed_run_raises_an_error_and_can_be_rerun(server: DevServer) -> None:
    async with Client(server.url) as client:
        with pytest.raises(WorkflowFailedError) as caught:
            await client.run(server.program.folder / "failing.json")
        failed = caught.value.execution_id
        again = await client.rerun(failed, RerunSpec(is_whole=True), idempotency_key="again")
        same = await client.rerun(failed, RerunSpec(is_whole=True), idempotency_key="again")
        rerun = await client.wait(again, timeout_s=20)
        listed = [
            execution
            async for execution in client.executions(states=["failed"], workflow="failing")
        ]
        counts = await client.count_executions()

    assert (caught.value.status, again) == ("FAILED", same)
    assert (rerun.status, rerun.rerun_of) == ("FAILED", failed)
    assert [execution.execution_id for execution in listed] == [again, failed]
    assert counts[listed[0].status].number >= len(listed)


async def test_a_node_is_returned_with_its_attempts_config_and_output(server: DevServer) -> None:
    async with Client(server.url) as client:
        done = await client.run(server.program.folder / "chain.json")
        node = await client.node(done.execution_id, "b")
        with pytest.raises(NotFoundError, match="no node 'c'"):
            await client.node(done.execution_id, "c")

    (attempt,) = node.attempts
    assert (node.status, node.output, node.config) == ("COMPLETED", {"y": 1}, {"y": 1})
    assert (attempt.number, node.inputs) == (1, {"a": {"x": 1}})
    assert done.created_at <= (attempt.started_at or 0) <= (attempt.finished_at or 0)


async def test_a_workflow_can_be_deleted_once_none_of_its_executions_runs(
    server: DevServer,
) -> None:
    dag = WorkflowDAG("passing")
    dag.add_node("ask", "wait_for_signal", {"signal": "go"})

    async with Client(server.url) as client:
        waiting = await client.submit(dag)
        with pytest.raises(WrongStateError, match="1 execution is not final"):
            await client.delete_workflow("passing")
        await client.cancel(waiting)
        await client.wait(waiting, timeout_s=20)
        deleted = await client.delete_workflow("passing")
        with pytest.raises(NotFoundError):
            await client.submit("passing")
        kept = await client.get(waiting)

    assert (deleted, kept.status) == (1, "CANCELLED")


async def test_follow_yields_events_as_they_happen(server: DevServer) -> None:
    async with Client(server.url) as client:
        execution_id = await client.submit(server.program.folder / "tidied.json", {"told": True})
        followed: list[str] = []
        async for event in client.follow(execution_id):
            followed.append(event.event)
            if event.event == "NodeWaits":
                await client.signal(execution_id, "approve")
        history = await client.history(execution_id)
        with pytest.raises(NotFoundError):
            await anext(client.follow("01m7"))

    assert followed == [event.event for event in history]
    assert followed[-1] == "ExecutionFinished"


def test_synchronous_code_may_stop_following_an_execution(server: DevServer) -> None:
    with SyncClient(server.url) as client:
        execution_id = client.submit(server.program.folder / "tidied.json", {"told": False})
        first = next(event for event in client.follow(execution_id))
        client.cancel(execution_id)
        followed = [event.event for event in client.follow(execution_id)]

    assert (first.event, followed[-1]) == ("ExecutionCreated", "ExecutionFinished")


async def test_a_listing_reads_all_pages(
    server: DevServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runnel.client.http_client.PAGE_SIZE", 2)
    labels = {"batch": "pages"}

    async with Client(server.url) as client:
        submitted = [
            await client.submit(server.program.folder / "chain.json", {"n": n}, labels=labels)
            for n in range(5)
        ]
        listed = [execution.execution_id async for execution in client.executions(labels=labels)]

    assert listed == submitted[::-1]


async def test_one_idempotency_key_makes_one_execution(server: DevServer) -> None:
    chain = server.program.folder / "chain.json"

    async with Client(server.url) as client:
        first = await client.submit(chain, {"n": 1}, idempotency_key="one")
        second = await client.submit(chain, {"n": 1}, idempotency_key="one")
        with pytest.raises(KeyReusedError) as caught:
            await client.submit(chain, {"n": 2}, idempotency_key="one")

    assert first == second
    assert (caught.value.execution_id, caught.value.difference) == (first, "another input")


async def test_errors_over_http_are_those_of_a_local_call(server: DevServer) -> None:
    async with Client(server.url) as client:
        with pytest.raises(NotFoundError) as unknown:
            await client.get("01m7")
        with pytest.raises(NotFoundError, match="no workflow 'nothing/of that'"):
            await client.submit("nothing/of that")
        with pytest.raises(InvalidInputError):
            await client.submit(server.program.folder / "checked.yaml", {})
        with pytest.raises(InputError, match="states: expected one of PENDING"):
            await anext(client.executions(states=["broken"]))
        dag = WorkflowDAG("bad")
        dag.add_node("a", "output", {"x": "{{ b.y }}"})
        with pytest.raises(InvalidWorkflowError):
            await client.submit(dag)

    assert (unknown.value.kind, unknown.value.name) == ("execution", "01m7")


def test_the_synchronous_client_runs_lists_and_raises_like_the_asynchronous_one(
    server: DevServer,
) -> None:
    with SyncClient(server.url) as client:
        done = client.run(server.program.folder / "chain.json", labels={"by": "sync"})
        listed = list(client.executions(labels={"by": "sync"}))
        with pytest.raises(NotFoundError):
            client.get("01m7")
        is_ready = client.ready().is_ready
    client.close()

    assert (done.output, is_ready) == ({"y": 1}, True)
    assert [execution.execution_id for execution in listed] == [done.execution_id]


def test_the_synchronous_client_has_every_method_of_the_client() -> None:
    methods = {name for name in vars(Client) if not name.startswith("_")}

    assert methods <= set(vars(SyncClient))


def test_the_environment_names_the_server(
    server: DevServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNNEL_SERVER", server.url)

    with SyncClient() as client:
        assert client.ready().is_ready


async def test_a_missing_token_or_a_missing_scope_is_refused(tmp_path: Path) -> None:
    text = Program(tmp_path).documents("token", "create", "ci", "--scope", "read")[0]["token"]

    with dev_server(tmp_path) as server:
        async with Client(server.url) as anonymous, Client(server.url, text) as reader:
            with pytest.raises(NotAuthenticatedError, match="requires a token: set RUNNEL_TOKEN"):
                await anonymous.get("01m7")
            with pytest.raises(NotFoundError):
                await reader.get("01m7")
            with pytest.raises(MissingScopeError) as caught:
                await reader.cancel("01m7")

    assert (caught.value.needed, caught.value.held) == ("run", ("read",))


async def test_many_waits_share_one_client(server: DevServer) -> None:
    waiting = WorkflowDAG("crowd")
    waiting.add_node("ask", "wait_for_signal", {"signal": "go"})

    async with Client(server.url) as client:
        execution_id = await client.submit(waiting)
        async with asyncio.TaskGroup() as group:
            waits = [group.create_task(client.wait(execution_id, timeout_s=30)) for _ in range(150)]
            await client.signal(execution_id, "go")

    assert {wait.result().status.value for wait in waits} == {"COMPLETED"}


async def test_a_key_in_any_language_makes_the_same_id_as_a_local_call(server: DevServer) -> None:
    chain, key = server.program.folder / "chain.json", "Käse, счёт № 7"

    async with Client(server.url) as client:
        first = await client.submit(chain, idempotency_key=key)
        second = await client.submit(chain, idempotency_key=key)

    assert first == second == derive_execution_id("chain", key)


async def test_a_held_execution_has_its_input_and_labels(server: DevServer) -> None:
    async with Client(server.url) as client:
        held = await client.hold(
            server.program.folder / "checked.yaml", {"name": "Ada"}, labels={"team": "red"}
        )
        named = await client.hold("checked", {"name": "Bob"})
        await client.trigger(held)
        await client.trigger(named, {"name": "Eve"})
        done = [await client.wait(execution_id, timeout_s=20) for execution_id in (held, named)]

    assert [view.output["text"] for view in done] == ["Hello Ada", "Hello Eve"]
    assert done[0].labels["team"] == "red"


async def test_many_inputs_are_submitted_in_one_request(server: DevServer) -> None:
    inputs = [{"name": f"n{number}"} for number in range(300)]
    keys = [f"many {number}" for number in range(300)]
    async with Client(server.url) as client:
        await client.store(server.program.folder / "checked.yaml")
        ids = await client.submit_many("checked", inputs, labels={"part": "many"})
        keyed = await client.submit_many("checked", inputs, idempotency_keys=keys)
        again = await client.submit_many("checked", inputs, idempotency_keys=keys)
        done = await client.wait(ids[-1], timeout_s=30)
        with pytest.raises(InvalidInputError) as caught:
            await client.submit_many("checked", [{"name": "x"}, {}])
        with pytest.raises(KeyReusedError):
            await client.submit_many("checked", [{"name": "x"}], idempotency_keys=keys[:1])

    assert (len(set(ids)), done.output) == (300, {"text": "Hello n299"})
    assert keyed == again == [derive_execution_id("checked", key) for key in keys]
    assert done.labels == {**done.labels, "part": "many"}
    assert caught.value.problems == ("inputs[1]: the field 'name' is missing",)


async def test_a_batch_runs_over_http_and_continues_by_name(server: DevServer) -> None:
    file = server.program.folder / "checked.yaml"
    inputs = [{"name": f"b{number}"} for number in range(5)]
    async with Client(server.url) as client:
        first = [item async for item in client.run_many(file, inputs[:2], name="b", in_flight=1)]
        second = [item async for item in client.run_many(file, inputs, name="b", in_flight=2)]
        stored = [item async for item in client.run_many("checked", inputs[:1])]
        with pytest.raises(InvalidInputError, match=r"inputs\[1\]: the field 'name' is missing"):
            [item async for item in client.run_many("checked", [{"name": "new"}, {}])]

    assert [item.output["text"] for item in first] == ["Hello b0", "Hello b1"]
    assert {item.index: item.is_from_earlier_run for item in second} == {
        0: True,
        1: True,
        2: False,
        3: False,
        4: False,
    }
    assert (stored[0].status, stored[0].input) == ("COMPLETED", {"name": "b0"})


def test_a_batch_runs_from_code_without_an_event_loop(server: DevServer) -> None:
    with SyncClient(server.url) as client:
        client.store(server.program.folder / "checked.yaml")
        ids = client.submit_many("checked", [{"name": "x"}, {"name": "y"}])
        results = client.run_many("checked", [{"name": "p"}, {"name": "q"}])
        texts = sorted(result.output["text"] for result in results)

    assert (len(ids), texts) == (2, ["Hello p", "Hello q"])
