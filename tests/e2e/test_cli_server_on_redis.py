"""`--server` with Redis and PostgreSQL: commands print the same as directly on both servers."""

import json
from collections.abc import Iterator

import pytest

from runnel import SyncClient
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
