"""What an earlier Runnel has stored is shown as before, and goes on where it was.

The files here hold a data directory, and a Redis with its PostgreSQL, of a process that was killed
in the middle (see `make.py`). Nothing depends on how long ago that was: all that had a time is
overdue by now, but for a nap and a schedule that come due in a hundred years or more.
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
# What `make.py` has recorded of a whole store, and the command that prints it.
LISTS = {
    "letters": ("dlq", "list"),
    "schedules": ("schedule", "list"),
    "webhooks": ("webhook", "list"),
    "tokens": ("token", "list"),
    "workflows": ("workflows",),
    "versions": ("workflows", "report"),
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """A store with the old data, and what is known about it."""

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

    def id_of(self, name: str) -> str:
        return str(self.known["ids"][name])

    @property
    def unfinished(self) -> list[str]:
        """The names of those that complete in the end."""
        return [name for name in flows.OUTPUTS if name in self.known["ids"]]


def unpacked(name: str) -> bytes:
    return gzip.decompress((HERE / name).read_bytes())


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    (tmp_path / "steps.py").write_text(flows.STEPS)
    return program


@pytest.fixture
def sqlite(program: Program) -> Place:
    with tarfile.open(fileobj=io.BytesIO(unpacked("sqlite.tar.gz"))) as archive:
        archive.extractall(program.folder / ".runnel", filter="data")
    known = json.loads(unpacked("sqlite.json.gz"))
    return Place(program=program, environment={"RUNNEL_SECRET_HOOK": SECRET}, known=known)


@pytest.fixture
async def servers(program: Program, own_redis: RedisServer, own_postgres: PostgresServer) -> Place:
    load_redis(own_redis.url, unpacked("redis.jsonl.gz").decode())
    await load_postgres(own_postgres.url, unpacked("postgres.sql.gz").decode())
    environment = {
        "REDIS_URL": own_redis.url,
        "POSTGRES_URL": own_postgres.url,
        "RUNNEL_ALLOW_PYTHON": "steps:*",
        "RUNNEL_ENV": "test",  # the dead are found to be dead after three seconds
        "RUNNEL_SECRET_HOOK": SECRET,
    }
    known = json.loads(unpacked("servers.json.gz"))
    return Place(program=program, environment=environment, known=known)


@pytest.fixture(params=["sqlite", "servers"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


def test_all_that_is_stored_is_shown_as_before(place: Place) -> None:
    shown = {each: place.documents("show", each)[0] for each in place.known["shown"]}
    histories = {each: place.documents("history", each) for each in place.known["histories"]}
    lists = {name: place.documents(*words) for name, words in LISTS.items()}

    check_same(shown, place.known["shown"])
    check_same(histories, place.known["histories"])
    check_same(lists, {name: place.known[name] for name in LISTS})


async def test_resume_goes_on_with_a_data_directory(sqlite: Place) -> None:
    go_on(sqlite)
    end_the_long_nap(sqlite)  # or it would be waited for
    sqlite.run("resume")
    async with serving(sqlite, "dev") as http:
        await call_over_http(sqlite, http)
        await check_ends(sqlite, http)
        await check_cancelled(sqlite, http)

    check_settled(sqlite)


async def test_a_server_goes_on_with_a_data_directory(sqlite: Place) -> None:
    go_on(sqlite)
    async with serving(sqlite, "dev") as http:
        await call_over_http(sqlite, http)
        await check_ends(sqlite, http)
        end_the_long_nap(sqlite)
        await check_cancelled(sqlite, http)

    check_settled(sqlite)


async def test_servers_go_on_with_redis_and_postgresql(servers: Place) -> None:
    async with (
        servers.program.running("orchestrator", **servers.environment),
        servers.program.running("worker", **servers.environment),
        serving(servers, "api") as http,
    ):
        go_on(servers)
        await call_over_http(servers, http)
        await check_ends(servers, http)
        end_the_long_nap(servers)
        await check_cancelled(servers, http)

    check_settled(servers)


@asynccontextmanager
async def serving(place: Place, command: str) -> AsyncIterator[httpx.AsyncClient]:
    """With the token of the old data."""
    headers = {"Authorization": f"Bearer {place.known['token']}"}
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(
            place.program.running(command, "--port", "0", **place.environment)
        )
        url = (await running.says(ANSWERS)).partition(ANSWERS)[2]
        yield await stack.enter_async_context(
            httpx.AsyncClient(base_url=url, headers=headers, timeout=2 * DEADLINE_S)
        )


def go_on(place: Place) -> None:
    """What waits for a signal gets it, and what holds may end."""
    place.run("signal", place.id_of("approval"), "approve", "--payload", "by=ada")
    (place.program.folder / flows.GATE).touch()


def end_the_long_nap(place: Place) -> None:
    """It still sleeps, as long as it was told to."""
    [sleeping] = place.documents("show", place.id_of("long-nap"))
    assert sleeping["status"] == "RUNNING"
    assert sleeping["nodes"]["sleep"]["due"] > "2100"

    place.run("cancel", place.id_of("long-nap"))


async def call_over_http(place: Place, http: httpx.AsyncClient) -> None:
    """The token is asked for and good, and so is the secret of the webhook."""
    without = await http.get("/v1/executions", headers={"Authorization": "Bearer none"})
    with_it = await http.get("/v1/executions")
    triggered = await http.post(f"/v1/workflow/trigger/{place.id_of('held')}")
    called = await http.post(
        "/v1/workflows/report/triggers/webhook",
        json={"name": "Coffee"},
        headers={"X-Webhook-Token": SECRET},
    )
    output = (await ended(http, called.json()["execution_id"]))["output"]

    assert (without.status_code, with_it.status_code) == (401, 200)
    assert triggered.is_success, triggered.text
    assert output == {"text": "version 2: Coffee is open"}


async def check_ends(place: Place, http: httpx.AsyncClient) -> None:
    ends = {name: await ended(http, place.id_of(name)) for name in place.unfinished}

    assert {name: end["status"] for name, end in ends.items()} == dict.fromkeys(ends, "COMPLETED")
    assert {name: end["output"] for name, end in ends.items()} == {
        name: flows.OUTPUTS[name] for name in ends
    }


async def check_cancelled(place: Place, http: httpx.AsyncClient) -> None:
    napped = await ended(http, place.id_of("long-nap"))

    assert napped["status"] == "CANCELLED"


def check_settled(place: Place) -> None:
    """No settled node has run again, and what was in a history is still there."""
    ran = set((place.program.folder / flows.LOG).read_text().splitlines())
    histories = {each: place.documents("history", each) for each in place.known["histories"]}

    assert ran <= flows.RUN_AFTER, ran - flows.RUN_AFTER
    for execution_id, before in place.known["histories"].items():
        history = histories[execution_id]
        check_same(history[: len(before)], before)
        assert begun_again(history[len(before) :], before) == [], execution_id


def begun_again(later: list[dict[str, Any]], before: list[dict[str, Any]]) -> list[Any]:
    """The nodes, and items of maps, that had completed before and have an event later."""
    settled = [place_in(event) for event in before if event["event"] == "NodeCompleted"]
    return [place_in(event) for event in later if place_in(event) in settled]


def place_in(event: dict[str, Any]) -> tuple[str | None, int | None]:
    return event.get("node"), event.get("item")


async def ended(http: httpx.AsyncClient, execution_id: str) -> dict[str, Any]:
    path = f"/v1/executions/{execution_id}/wait"
    found: dict[str, Any] = (await http.get(path, params={"timeout": DEADLINE_S})).json()
    return found


def check_same(found: object, before: object) -> None:
    """A later Runnel may say more: keys that were not there before are of no interest."""
    different = list(differences(found, before, "$"))
    assert different == []


def differences(found: object, before: object, path: str) -> Iterator[str]:
    match before, found:
        case dict(), dict():
            for key in before:
                yield from differences(found.get(key), before[key], f"{path}.{key}")
        case list(), list() if len(before) == len(found):
            for number, pair in enumerate(zip(found, before, strict=True)):
                yield from differences(*pair, f"{path}[{number}]")
        case _ if found != before:
            yield f"{path}: expected {before}, got {found}"
        case _:
            return
