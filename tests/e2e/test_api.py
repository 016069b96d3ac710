"""`runnel dev`, `runnel api` and `runnel token`, each in a separate process."""

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
    """Runs a server command on a free port; yields its process and an HTTP client."""
    async with program.running(*arguments, "--port", "0", **environment) as running:
        url = (await running.read_until(ANSWERS)).removeprefix(ANSWERS)
        async with httpx.AsyncClient(base_url=url, timeout=30.0) as http:
            yield running, http


async def test_dev_runs_a_workflow_over_http_on_a_data_directory(tmp_path: Path) -> None:
    program = Program(tmp_path)
    async with serving(program, "dev") as (dev, http):
        await http.post("/v1/workflows", json=HELLO)
        submitted = await http.post("/v1/workflows/hello/run", json={"input": {"name": "Ada"}})
        path = f"/v1/executions/{submitted.json()['execution_id']}"
        ended = await http.get(f"{path}/wait", params={"timeout": 20})
        ready = await http.get("/health/ready")
        dev.send(signal.SIGTERM)
        code, _, _ = await dev.wait()
    listed = program.documents("list")

    assert ended.json()["output"] == {"text": "Hello Ada"}
    assert (ready.status_code, code) == (200, 0)
    assert [execution["workflow"] for execution in listed] == ["hello"]


async def test_dev_resumes_the_executions_of_a_killed_dev(tmp_path: Path) -> None:
    program = Program(tmp_path)
    async with serving(program, "dev") as (dev, http):
        await http.post("/v1/workflows", json=_make_waiting_workflow())
        execution_id = (await http.post("/v1/workflows/waiting/run")).json()["execution_id"]
        await _wait_for_status(http, execution_id, "RUNNING")
        dev.send(signal.SIGKILL)
        await dev.wait()

    async with serving(program, "dev") as (_, http):
        path = f"/v1/executions/{execution_id}"
        await http.post(f"{path}/signal", json={"name": "go", "payload": 7})
        ended = await http.get(f"{path}/wait", params={"timeout": 20})

    assert ended.json()["output"] == 7


async def test_a_document_may_call_only_functions_of_the_working_directory(
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
        execution_id = (await http.post("/v1/workflows/calling/run")).json()["execution_id"]
        ended = (
            await http.get(f"/v1/executions/{execution_id}/wait", params={"timeout": 20})
        ).json()

    assert stored.status_code == 201, stored.text
    states = {name: node["status"] for name, node in ended["nodes"].items()}
    assert states == {"own": "COMPLETED", "foreign": "FAILED", "program": "FAILED"}
    assert "RUNNEL_ALLOW_PYTHON" in ended["nodes"]["foreign"]["error"]
    assert "RUNNEL_ALLOW_SHELL" in ended["nodes"]["program"]["error"]


async def test_a_token_is_valid_for_its_scope_until_it_is_revoked(tmp_path: Path) -> None:
    program = Program(tmp_path)
    made = program.run("token", "create", "ci", "--scope", "read")
    token = made.stdout.strip()
    listed = program.documents("token", "list")
    async with serving(program, "dev") as (_, http):
        without_token = await http.get("/v1/executions")
        with_token = await http.get("/v1/executions", headers=_bearer(token))
        without_scope = await http.post("/v1/workflows", json=HELLO, headers=_bearer(token))
        program.run("token", "revoke", "ci")
        after_revocation = await _wait_for_refusal(http, token)

    assert [(entry["name"], entry["scopes"]) for entry in listed] == [("ci", ["read"])]
    assert [without_token.status_code, with_token.status_code, without_scope.status_code] == [
        401,
        200,
        403,
    ]
    assert after_revocation == 401


def test_token_list_creates_no_data_directory(tmp_path: Path) -> None:
    listed = Program(tmp_path).run("token", "list")

    assert (listed.returncode, listed.stdout) == (
        0,
        "no tokens: the API accepts requests from this machine only\n",
    )
    assert not (tmp_path / ".runnel").exists()


def test_a_name_of_two_tokens_revokes_none(tmp_path: Path) -> None:
    program = Program(tmp_path)
    for _ in range(2):
        program.run("token", "create", "ci")
    ids = [entry["id"] for entry in program.documents("token", "list")]

    by_name = program.run("token", "revoke", "ci")
    by_id = program.run("token", "revoke", ids[0])

    assert by_name.returncode == 2
    assert by_name.stderr.startswith("error: 2 tokens have the name 'ci': ")
    assert all(token_id in by_name.stderr for token_id in ids)
    assert (by_id.returncode, by_id.stdout) == (0, f"revoked {ids[0]}\n")


async def test_wrong_calls_are_refused_in_one_sentence(tmp_path: Path) -> None:
    program = Program(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        busy = program.run("dev", "--port", port)
    without_token = program.run("dev", "--host", "0.0.0.0", "--port", "0")
    two_places = program.run("dev", "--with-servers", "--data-dir", "x")
    scope = program.run("token", "create", "x", "--scope", "write")
    unknown = program.run("token", "revoke", "nope")
    nowhere = ("--redis-url", "redis://127.0.0.1:1/0")
    unreachable = program.run("api", *nowhere, "--port", "0", RUNNEL_START_TIMEOUT="0")

    assert "can't listen on 127.0.0.1" in busy.stderr
    assert "give another --port" in busy.stderr
    assert "there is no API token" in without_token.stderr
    assert "name two stores" in two_places.stderr
    assert "expected one of read, run, operate, admin, got 'write'" in scope.stderr
    assert "no token 'nope'" in unknown.stderr
    assert "can't use the Redis" in unreachable.stderr
    assert not [command for command in (without_token, unreachable) if ANSWERS in command.stderr]
    commands = [busy, without_token, two_places, scope, unknown, unreachable]
    assert [command.returncode for command in commands] == [2, 2, 2, 2, 2, 1]


async def test_several_api_processes_answer_and_a_dead_one_is_replaced(
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
        program.running("orchestrator", **servers) as orchestrator,
        serving(program, "api", "--workers", "2", **servers) as (api, http),
    ):
        await orchestrator.read_until("process.started")
        await wait_until(lambda: len(list_children(api.pid)) == 2)
        before = list_children(api.pid)
        stored = await http.post("/v1/workflows", json=HELLO)
        os.kill(before[0], signal.SIGKILL)
        await wait_until(lambda: _is_replaced(api, before))
        after = list_children(api.pid)
        answers = [(await _get_workflows(http)).status_code for _ in range(20)]
        api.send(signal.SIGTERM)
        code, _, _ = await api.wait()

    assert stored.status_code == 201
    assert before[1] in after
    assert set(answers) == {200}
    assert code == 0


def _is_replaced(api: RunningProgram, before: list[int]) -> bool:
    children = list_children(api.pid)
    return len(children) == 2 and before[0] not in children


async def _get_workflows(http: httpx.AsyncClient) -> httpx.Response:
    """Sends the request again if the connection belonged to the process that died."""
    try:
        return await http.get("/v1/workflows")
    except httpx.TransportError:
        return await http.get("/v1/workflows")


async def _wait_for_refusal(http: httpx.AsyncClient, token: str) -> int:
    """Waits until the token is refused, and returns that status code."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            response = await http.get("/v1/executions", headers=_bearer(token))
            if response.status_code != 200:
                return response.status_code


async def _wait_for_status(http: httpx.AsyncClient, execution_id: str, state: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while (await http.get(f"/v1/executions/{execution_id}")).json()["status"] != state:
            pass


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _make_waiting_workflow() -> dict[str, Any]:
    node = {"id": "ask", "handler": "wait_for_signal", "config": {"signal": "go"}}
    return {"name": "waiting", "nodes": [node]}
