"""`runnel dev`, `runnel api` and `runnel token` as processes of their own."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from runnel.app.private_servers.guardian import list_children
from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from tests.e2e.program import DEADLINE_S, Program, RunningProgram
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

ANSWERS = "Runnel answers on "
HELLO = {
    "name": "hello",
    "nodes": [{"id": "greet", "handler": "output", "config": {"text": "Hello {{ input.name }}"}}],
}


@asynccontextmanager
async def serving(
    program: Program, *arguments: str, **environment: str
) -> AsyncIterator[tuple[RunningProgram, httpx.AsyncClient]]:
    async with program.running(*arguments, "--port", "0", **environment) as running:
        url = (await running.says(ANSWERS)).removeprefix(ANSWERS)
        async with httpx.AsyncClient(base_url=url, timeout=30.0) as http:
            yield running, http


async def test_a_first_workflow_is_run_over_http_on_a_data_directory(tmp_path: Path) -> None:
    program = Program(tmp_path)
    async with serving(program, "dev") as (dev, http):
        await http.post("/v1/workflows", json=HELLO)
        begun = await http.post("/v1/workflows/hello/run", json={"input": {"name": "Ada"}})
        path = f"/v1/executions/{begun.json()['execution_id']}"
        ended = await http.get(f"{path}/wait", params={"timeout": 20})
        ready = await http.get("/health/ready")
        dev.send(signal.SIGTERM)
        code, _, _ = await dev.ends()
    listed = program.documents("list")

    assert ended.json()["output"] == {"text": "Hello Ada"}
    assert (ready.status_code, code) == (200, 0)
    assert [each["workflow"] for each in listed] == ["hello"]


async def test_dev_goes_on_with_what_a_killed_one_has_left(tmp_path: Path) -> None:
    program = Program(tmp_path)
    async with serving(program, "dev") as (dev, http):
        await http.post("/v1/workflows", json=_waiting())
        begun = (await http.post("/v1/workflows/waiting/run")).json()["execution_id"]
        await _until(http, begun, "RUNNING")
        dev.send(signal.SIGKILL)
        await dev.ends()

    async with serving(program, "dev") as (_, http):
        path = f"/v1/executions/{begun}"
        await http.post(f"{path}/signal", json={"name": "go", "payload": 7})
        ended = await http.get(f"{path}/wait", params={"timeout": 20})

    assert ended.json()["output"] == 7


async def test_a_document_alone_calls_only_functions_of_the_working_directory(
    tmp_path: Path,
) -> None:
    program = Program(tmp_path)
    nodes: list[dict[str, Any]] = [
        {
            "id": "own",
            "handler": "python",
            "config": {
                "function": "steps:note",
                "args": {"file": str(program.log), "text": "called"},
            },
        },
        {"id": "foreign", "handler": "python", "config": {"function": "os:getcwd"}},
        {"id": "program", "handler": "shell", "config": {"command": ["true"]}},
    ]
    document = {"name": "calling", "on_failure": "continue", "nodes": nodes}
    async with serving(program, "dev") as (_, http):
        stored = await http.post("/v1/workflows", json=document)
        begun = (await http.post("/v1/workflows/calling/run")).json()["execution_id"]
        ended = (await http.get(f"/v1/executions/{begun}/wait", params={"timeout": 20})).json()

    assert stored.status_code == 201, stored.text
    states = {name: node["state"] for name, node in ended["nodes"].items()}
    assert states == {"own": "COMPLETED", "foreign": "FAILED", "program": "FAILED"}
    assert "RUNNEL_ALLOW_PYTHON" in ended["nodes"]["foreign"]["error"]
    assert "RUNNEL_ALLOW_SHELL" in ended["nodes"]["program"]["error"]


async def test_a_token_is_made_used_and_revoked(tmp_path: Path) -> None:
    program = Program(tmp_path)
    made = program.run("token", "create", "ci", "--scope", "read")
    token = made.stdout.strip()
    listed = program.documents("token", "list")
    async with serving(program, "dev") as (_, http):
        without = await http.get("/v1/executions")
        with_it = await http.get("/v1/executions", headers=_bearer(token))
        weak = await http.post("/v1/workflows", json=HELLO, headers=_bearer(token))
        program.run("token", "revoke", listed[0]["id"])
        after = await _refused(http, token)

    assert [(each["name"], each["scopes"]) for each in listed] == [("ci", ["read"])]
    assert [without.status_code, with_it.status_code, weak.status_code] == [401, 200, 403]
    assert after == 401


def test_looking_for_tokens_makes_no_data_directory(tmp_path: Path) -> None:
    listed = Program(tmp_path).run("token", "list")

    assert (listed.returncode, listed.stdout) == (
        0,
        "no tokens: the API accepts requests from this machine only\n",
    )
    assert not (tmp_path / ".runnel").exists()


async def test_wrong_calls_are_refused_in_one_sentence(tmp_path: Path) -> None:
    program = Program(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        busy = program.run("dev", "--port", port)
    everywhere = program.run("dev", "--host", "0.0.0.0", "--port", "0")
    two_places = program.run("dev", "--with-servers", "--data-dir", "x")
    scope = program.run("token", "create", "x", "--scope", "write")
    unknown = program.run("token", "revoke", "nope")
    nowhere = program.run("api", "--redis-url", "redis://127.0.0.1:1/0", "--port", "0")

    assert "can't listen on 127.0.0.1" in busy.stderr
    assert "give another --port" in busy.stderr
    assert "there is no API token" in everywhere.stderr
    assert "two places" in two_places.stderr
    assert "expected one of read, run, operate, admin, got 'write'" in scope.stderr
    assert "no token 'nope'" in unknown.stderr
    assert "can't use the Redis" in nowhere.stderr
    assert not [each for each in (everywhere, nowhere) if ANSWERS in each.stderr]
    codes = [busy, everywhere, two_places, scope, unknown, nowhere]
    assert [each.returncode for each in codes] == [2, 2, 2, 2, 2, 1]


async def test_several_processes_answer_and_one_that_dies_is_replaced(
    tmp_path: Path, shared_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    program = Program(tmp_path)
    servers = {
        "REDIS_URL": shared_redis.url,
        "POSTGRES_URL": shared_postgres.url,
        "POSTGRES_SCHEMA": "several",
        "REDIS_PREFIX": "several",
    }
    async with (
        program.running("orchestrator", **servers) as deciding,
        serving(program, "api", "--workers", "2", **servers) as (several, http),
    ):
        await deciding.says("process.started")
        await wait_until(lambda: len(list_children(several.pid)) == 2)
        before = list_children(several.pid)
        stored = await http.post("/v1/workflows", json=HELLO)
        os.kill(before[0], signal.SIGKILL)
        await wait_until(lambda: _is_replaced(several, before))
        after = list_children(several.pid)
        answers = [(await _asked(http)).status_code for _ in range(20)]
        several.send(signal.SIGTERM)
        code, _, _ = await several.ends()

    assert stored.status_code == 201
    assert before[1] in after
    assert set(answers) == {200}
    assert code == 0


def _is_replaced(several: RunningProgram, before: list[int]) -> bool:
    found = list_children(several.pid)
    return len(found) == 2 and before[0] not in found


async def _asked(http: httpx.AsyncClient) -> httpx.Response:
    """A connection to the one that died may be broken: as any client does, ask again."""
    try:
        return await http.get("/v1/workflows")
    except httpx.TransportError:
        return await http.get("/v1/workflows")


async def _refused(http: httpx.AsyncClient, token: str) -> int:
    """The status, once it is not good any more."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = await http.get("/v1/executions", headers=_bearer(token))
            if found.status_code != 200:
                return found.status_code


async def _until(http: httpx.AsyncClient, execution_id: str, state: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while (await http.get(f"/v1/executions/{execution_id}")).json()["status"] != state:
            pass


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _waiting() -> dict[str, Any]:
    node = {"id": "ask", "handler": "wait_for_signal", "config": {"signal": "go"}}
    return {"name": "waiting", "nodes": [node]}
