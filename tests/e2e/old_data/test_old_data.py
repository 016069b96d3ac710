"""Data of an earlier Runnel is shown as before, and its executions are resumed.

The files here hold a data directory, and a Redis with its PostgreSQL, of a process that was killed
in the middle (see `make.py`). The age of the files does not matter. All timers are overdue, except
one nap and one schedule, which are due in a hundred years or later.
"""

import gzip
import io
import json
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from tests.e2e.old_data import flows
from tests.e2e.old_data.dumps import load_postgres, load_redis
from tests.e2e.program import DEADLINE_S, Program

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

HERE = Path(__file__).parent
ANSWERS = "Runnel answers on "
SECRET = "open-sesame-7"
# The lists that `make.py` recorded, with the commands that print them.
LISTS = {
    "letters": ("dlq", "list"),
    "schedules": ("schedule", "list"),
    "webhooks": ("webhook", "list"),
    "tokens": ("token", "list"),
    "workflows": ("workflows",),
    "versions": ("workflows", "report"),
}


@dataclass(frozen=True, kw_only=True)
class OldStore:
    """A store with the old data. `known` holds the facts that `make.py` recorded."""

    program: Program
    environment: dict[str, str]
    known: dict[str, Any]

    def documents(self, *words: str) -> list[dict[str, Any]]:
        return self.program.documents(*words, **self.environment)

    def run(self, *words: str) -> str:
        done = self.program.run(*words, **self.environment)
        if done.returncode:
            raise AssertionError(done.stderr)
        return done.stdout

    def get_id(self, name: str) -> str:
        return str(self.known["ids"][name])

    @property
    def unfinished(self) -> list[str]:
        """The names of the executions that were unfinished and must complete."""
        return [name for name in flows.OUTPUTS if name in self.known["ids"]]


def unpack(name: str) -> bytes:
    return gzip.decompress((HERE / name).read_bytes())


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    (tmp_path / "steps.py").write_text(flows.STEPS)
    return program


@pytest.fixture
def sqlite(program: Program) -> OldStore:
    with tarfile.open(fileobj=io.BytesIO(unpack("sqlite.tar.gz"))) as archive:
        archive.extractall(program.folder / ".runnel", filter="data")
    known = json.loads(unpack("sqlite.json.gz"))
    return OldStore(program=program, environment={"RUNNEL_SECRET_HOOK": SECRET}, known=known)


@pytest.fixture
async def servers(
    program: Program, own_redis: RedisServer, own_postgres: PostgresServer
) -> OldStore:
    load_redis(own_redis.url, unpack("redis.jsonl.gz").decode())
    await load_postgres(own_postgres.url, unpack("postgres.sql.gz").decode())
    environment = {
        "REDIS_URL": own_redis.url,
        "POSTGRES_URL": own_postgres.url,
        "RUNNEL_ALLOW_PYTHON": "steps:*",
        "RUNNEL_ENV": "test",  # dead processes are detected after three seconds
        "RUNNEL_SECRET_HOOK": SECRET,
    }
    known = json.loads(unpack("servers.json.gz"))
    return OldStore(program=program, environment=environment, known=known)


@pytest.fixture(params=["sqlite", "servers"])
def old_store(request: pytest.FixtureRequest) -> OldStore:
    store: OldStore = request.getfixturevalue(request.param)
    return store


# Texts that are made when the history is read, and that later versions changed: old and new.
REWORDED = {"NodeFailed: node 'boom' failed: ValueError: it broke": "node 'boom' failed"}


def reword_nodes(shown: dict[str, Any]) -> dict[str, Any]:
    """Changes the recorded answers to the words of this version: `state` is `status` now."""
    for view in shown.values():
        for node in view["nodes"].values():
            node["status"] = node.pop("state")
            node["reason"] = REWORDED.get(node["reason"], node["reason"])
    return shown


def test_stored_data_is_shown_as_before(old_store: OldStore) -> None:
    shown = {id_: old_store.documents("show", id_)[0] for id_ in old_store.known["shown"]}
    histories = {id_: old_store.documents("history", id_) for id_ in old_store.known["histories"]}
    lists = {name: old_store.documents(*words) for name, words in LISTS.items()}

    check_same(shown, reword_nodes(old_store.known["shown"]))
    check_same(histories, old_store.known["histories"])
    check_same(lists, {name: old_store.known[name] for name in LISTS})


async def test_resume_continues_the_executions_of_an_old_data_directory(sqlite: OldStore) -> None:
    let_executions_continue(sqlite)
    cancel_long_nap(sqlite)  # `resume` would wait for it
    sqlite.run("resume")
    async with serving(sqlite, "dev") as http:
        await call_over_http(sqlite, http)
        await check_completed(sqlite, http)
        await check_cancelled(sqlite, http)

    check_settled(sqlite)


async def test_dev_continues_the_executions_of_an_old_data_directory(sqlite: OldStore) -> None:
    let_executions_continue(sqlite)
    async with serving(sqlite, "dev") as http:
        await call_over_http(sqlite, http)
        await check_completed(sqlite, http)
        cancel_long_nap(sqlite)
        await check_cancelled(sqlite, http)

    check_settled(sqlite)


async def test_servers_continue_the_executions_of_an_old_redis_and_postgresql(
    servers: OldStore,
) -> None:
    async with (
        servers.program.running("orchestrator", **servers.environment),
        servers.program.running("worker", **servers.environment),
        serving(servers, "api") as http,
    ):
        let_executions_continue(servers)
        await call_over_http(servers, http)
        await check_completed(servers, http)
        cancel_long_nap(servers)
        await check_cancelled(servers, http)

    check_settled(servers)


@asynccontextmanager
async def serving(old_store: OldStore, command: str) -> AsyncIterator[httpx.AsyncClient]:
    """Runs a server; yields a client that uses the token of the old data."""
    headers = {"Authorization": f"Bearer {old_store.known['token']}"}
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(
            old_store.program.running(command, "--port", "0", **old_store.environment)
        )
        url = (await running.read_until(ANSWERS)).partition(ANSWERS)[2]
        yield await stack.enter_async_context(
            httpx.AsyncClient(base_url=url, headers=headers, timeout=2 * DEADLINE_S)
        )


def let_executions_continue(old_store: OldStore) -> None:
    """Sends the signal that one execution waits for, and opens the gate for held calls."""
    old_store.run("signal", old_store.get_id("approval"), "approve", "--payload", "by=ada")
    (old_store.program.folder / flows.GATE).touch()


def cancel_long_nap(old_store: OldStore) -> None:
    """Checks that the long nap still sleeps until its due time, and cancels it."""
    [sleeping] = old_store.documents("show", old_store.get_id("long-nap"))
    assert sleeping["status"] == "RUNNING"
    assert sleeping["nodes"]["sleep"]["due"] > "2100"

    old_store.run("cancel", old_store.get_id("long-nap"))


async def call_over_http(old_store: OldStore, http: httpx.AsyncClient) -> None:
    """Checks that the token is required and valid, and calls the webhook with its secret."""
    with_wrong_token = await http.get("/v1/executions", headers={"Authorization": "Bearer none"})
    with_token = await http.get("/v1/executions")
    triggered = await http.post(f"/v1/workflow/trigger/{old_store.get_id('held')}")
    called = await http.post(
        "/v1/workflows/report/triggers/webhook",
        json={"name": "Coffee"},
        headers={"X-Webhook-Token": SECRET},
    )
    output = (await wait_for_end(http, called.json()["execution_id"]))["output"]

    assert (with_wrong_token.status_code, with_token.status_code) == (401, 200)
    assert triggered.is_success, triggered.text
    assert output == {"text": "version 2: Coffee is open"}


async def check_completed(old_store: OldStore, http: httpx.AsyncClient) -> None:
    ends = {name: await wait_for_end(http, old_store.get_id(name)) for name in old_store.unfinished}

    assert {name: end["status"] for name, end in ends.items()} == dict.fromkeys(ends, "COMPLETED")
    assert {name: end["output"] for name, end in ends.items()} == {
        name: flows.OUTPUTS[name] for name in ends
    }


async def check_cancelled(old_store: OldStore, http: httpx.AsyncClient) -> None:
    long_nap = await wait_for_end(http, old_store.get_id("long-nap"))

    assert long_nap["status"] == "CANCELLED"


def check_settled(old_store: OldStore) -> None:
    """Checks that no settled node ran again and that histories still begin as before."""
    ran = set((old_store.program.folder / flows.LOG).read_text().splitlines())
    histories = {id_: old_store.documents("history", id_) for id_ in old_store.known["histories"]}

    assert ran <= flows.RUN_AFTER, ran - flows.RUN_AFTER
    for execution_id, before in old_store.known["histories"].items():
        history = histories[execution_id]
        check_same(history[: len(before)], before)
        assert list_repeated_nodes(history[len(before) :], before) == [], execution_id


def list_repeated_nodes(later: list[dict[str, Any]], before: list[dict[str, Any]]) -> list[Any]:
    """Returns the nodes and map items that were completed before and have later events."""
    settled = [get_node_and_item(event) for event in before if event["event"] == "NodeCompleted"]
    return [get_node_and_item(event) for event in later if get_node_and_item(event) in settled]


def get_node_and_item(event: dict[str, Any]) -> tuple[str | None, int | None]:
    return event.get("node"), event.get("item")


async def wait_for_end(http: httpx.AsyncClient, execution_id: str) -> dict[str, Any]:
    path = f"/v1/executions/{execution_id}/wait"
    execution: dict[str, Any] = (await http.get(path, params={"timeout": DEADLINE_S})).json()
    return execution


def check_same(now: object, before: object) -> None:
    """Asserts that recorded values are unchanged. A later Runnel may add keys."""
    different = list(list_differences(now, before, "$"))
    assert different == []


def list_differences(now: object, before: object, path: str) -> Iterator[str]:
    match before, now:
        case dict(), dict():
            for key in before:
                yield from list_differences(now.get(key), before[key], f"{path}.{key}")
        case list(), list() if len(before) == len(now):
            for number, pair in enumerate(zip(now, before, strict=True)):
                yield from list_differences(*pair, f"{path}[{number}]")
        case _ if now != before:
            yield f"{path}: expected {before}, got {now}"
        case _:
            return
