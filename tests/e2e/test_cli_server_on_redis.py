"""`--server` with Redis and PostgreSQL: commands print the same as directly on both servers."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

import runnel
from runnel import Client, SyncClient, load_file
from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.settings.variables import VARIABLES
from tests.e2e.dev_server import DevServer, dev_server
from tests.e2e.store_and_server import StoreAndServer
from tests.redis_server import flush_server

pytestmark = pytest.mark.e2e

SCHEMA = "over_http"


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory,
    shared_redis: RedisServer,
    shared_postgres: PostgresServer,
) -> Iterator[DevServer]:
    flush_server(shared_redis)
    stores = {
        "REDIS_URL": shared_redis.url,
        "POSTGRES_URL": shared_postgres.url,
        "POSTGRES_SCHEMA": SCHEMA,
        "RUNNEL_ALLOW_PYTHON": "steps:*",
    }
    folder = tmp_path_factory.mktemp("stores")
    with dev_server(folder, **stores) as running, SyncClient(running.url) as client:
        for name in ("chain", "failing"):
            client.wait(client.submit(folder / f"{name}.json"), timeout_s=30)
        client.submit(folder / "tidied.json")
        yield running
    flush_server(shared_redis)


@pytest.fixture
def targets(
    server: DevServer,
    shared_redis: RedisServer,
    shared_postgres: PostgresServer,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> StoreAndServer:
    """Runs commands on both servers and on the Runnel server, without other settings."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("POSTGRES_URL", shared_postgres.url)
    monkeypatch.setenv("POSTGRES_SCHEMA", SCHEMA)
    monkeypatch.chdir(server.program.folder)
    return StoreAndServer(["--redis-url", shared_redis.url], server.url, capfd)


@pytest.mark.parametrize(
    "words",
    [
        "list --json",
        "list --stuck --json",
        "show @last",
        "history @last --json",
        "workflows",
        "dlq list --json",
        "workers",
        "queues --json",
        "top --once",
    ],
)
def test_a_command_prints_the_same_over_http(words: str, targets: StoreAndServer) -> None:
    output = targets.check_same(*words.split(" "))

    assert (output.code, output.err) == (0, "")


def test_an_execution_on_servers_is_watched_until_it_is_final(targets: StoreAndServer) -> None:
    done = targets.on_server("run", "chain.json", "--json")

    assert (done.code, json.loads(done.out)["output"]) == (0, {"y": 1})
    assert done.err.startswith(f"submitted to {targets.url}: workers run it, this command only ")


def test_a_running_process_is_not_reported_as_missing(targets: StoreAndServer) -> None:
    """The command sees the workers and the orchestrator, however long the execution takes."""
    waiting = json.loads(targets.on_server("list", "--status", "running", "--json").out)
    sent = targets.on_server("signal", waiting["execution_id"], "approve")
    watched = targets.on_server("watch", waiting["execution_id"])

    assert sent.out == f"signal 'approve' sent to execution {waiting['execution_id']}\n"
    assert watched.code == 0
    assert "alive" not in watched.err


YEARS: dict[str, Any] = {
    "name": "years",
    "input": {"type": "object", "properties": {"year": {"type": "integer"}}},
    "nodes": [{"id": "a", "handler": "output", "config": {"year": "{{ input.year }}"}}],
}
PLACES = ["on_server", "on_store"]


@pytest.mark.parametrize("place", PLACES)
def test_a_file_is_stored_activated_and_run_by_name(
    server: DevServer, targets: StoreAndServer, place: str
) -> None:
    name, call = f"years-{place}", getattr(targets, place)
    config = {"year": "{{ input.year }}", "is_new": True}
    newer = {**YEARS, "name": name, "nodes": [{**YEARS["nodes"][0], "config": config}]}
    for file, document in {"old": {**YEARS, "name": name}, "new": newer}.items():
        (server.program.folder / f"{file}.json").write_text(json.dumps(document))

    stored = [call("workflows", "store", f"{file}.json").out for file in ("old", "new")]
    newest = call("run", name, "--input", "year=7")
    activated = call("workflows", "activate", name, "1")
    active = call("run", name, "--input", "year=8")
    unknown = call("run", f"{name}x")

    assert stored == [f"stored: version {version} of '{name}'\n" for version in (1, 2)]
    assert (newest.code, json.loads(newest.out)) == (0, {"year": 7, "is_new": True})
    assert (activated.code, json.loads(active.out)) == (0, {"year": 8})
    assert (unknown.code, "no stored workflow has this name" in unknown.err) == (2, True)


@pytest.mark.parametrize("place", PLACES)
def test_a_held_execution_starts_when_it_is_triggered(
    server: DevServer, targets: StoreAndServer, place: str
) -> None:
    call = getattr(targets, place)
    (server.program.folder / "years.json").write_text(json.dumps(YEARS))

    bare = call("run", "years.json", "--hold").out.strip()
    prepared = call("run", "years.json", "--hold", "--input", "year=9", "--label", "team=red")
    wrong = call("run", "years.json", "--hold", "--input", 'year="nine"')
    triggered = [
        call("trigger", bare, "--input", "year=7"),
        call("trigger", prepared.out.strip()),
    ]
    outputs = [call("watch", id_, "--json") for id_ in (bare, prepared.out.strip())]
    labels = json.loads(call("show", prepared.out.strip(), "--json").out)["labels"]

    assert [output.code for output in triggered] == [0, 0]
    assert [json.loads(output.out)["output"] for output in outputs] == [{"year": 7}, {"year": 9}]
    assert labels["team"] == "red"
    assert (wrong.code, "input.year: expected a whole number" in wrong.err) == (2, True)
    assert call("trigger", bare).code == 2


@pytest.mark.parametrize("place", PLACES)
async def test_documents_that_wait_for_a_signal_do_not_hold_up_a_batch(
    server: DevServer, targets: StoreAndServer, place: str, shared_redis: RedisServer
) -> None:
    """The command polls the executions, because other processes run them."""
    flow: dict[str, Any] = {
        "name": f"waits-{place}",
        "nodes": [{"id": "go", "handler": "wait_for_signal", "config": {"signal": "approve"}}],
    }
    folder = server.program.folder
    (folder / "waits.json").write_text(json.dumps(flow))
    (folder / "waits.jsonl").write_text("\n".join(f'{{"n": {n}}}' for n in range(6)))
    location = ["--server", targets.url] if place == "on_server" else ["--redis-url"]
    location += [] if place == "on_server" else [shared_redis.url]
    stores = {name: os.environ[name] for name in ("POSTGRES_URL", "POSTGRES_SCHEMA")}
    call = ("batch", "waits.json", "--inputs", "waits.jsonl", "--in-flight", "2", "--json")

    async with server.program.running(*call, *location, **stores) as batch:
        hint = await batch.read_until("6 wait for signal 'approve'; no other document is left")
        async with Client(targets.url) as client:
            async for execution in client.executions(workflow=flow["name"]):
                await client.signal(execution.execution_id, "approve")
        code, out, _ = await batch.wait()

    assert "send a signal with: runnel signal " in hint
    assert (code, json.loads(out)["completed"], json.loads(out)["waiting"]) == (0, 6, 0)


async def test_a_program_runs_a_batch_on_the_workers_of_the_servers(
    server: DevServer,
    targets: StoreAndServer,
    shared_redis: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REDIS_URL", shared_redis.url)
    file = server.program.folder / "many_years.json"
    file.write_text(json.dumps({**YEARS, "name": "many_years"}))
    inputs = [{"year": year} for year in range(300)]

    batch = runnel.run_many(load_file(file), inputs[:100], name="years", in_flight=40)
    first = [result async for result in batch]
    batch = runnel.run_many(load_file(file), inputs, name="years")
    second = [result async for result in batch]

    assert sorted(result.output["year"] for result in first) == list(range(100))
    assert sorted(result.index for result in second) == list(range(300))
    assert sum(result.is_from_earlier_run for result in second) == 100
