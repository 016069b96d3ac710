"""Every response matches the OpenAPI description, and invalid requests are refused.

schemathesis generates valid and almost valid requests. With RUNNEL_SCHEMA_WHOLE=1 it also runs its
coverage phase. That takes minutes and reports that a workflow may have `labels: null`, because YAML
reads an empty key as null.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from tests.e2e.dev_server import DevServer, dev_server
from tests.e2e.program import DEADLINE_S
from tests.e2e.schema_hooks import KNOWN
from tests.redis_server import flush_server
from tests.waiting import wait_until

SEED = 6
EXAMPLES = 4
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "ignored_auth",
    "negative_data_rejection",
)
# Streams do not end; tests/integration/test_api_events.py follows them.
ENDLESS = ("follow_all", "follow_execution")
IS_WHOLE = bool(os.environ.get("RUNNEL_SCHEMA_WHOLE"))
PHASES = "examples,coverage,fuzzing" if IS_WHOLE else "examples,fuzzing"
LIMIT_S = 1_800.0 if IS_WHOLE else 9 * DEADLINE_S
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(LIMIT_S + 6 * DEADLINE_S)]

HELLO = {"name": "hello", "nodes": [{"id": "greet", "handler": "output", "config": {"text": "hi"}}]}
REFUSED = {
    "name": "refused",
    "nodes": [{"id": "greet", "handler": "python", "config": {"function": "os:getcwd"}}],
}
HOOK = {"kind": "token", "secret": "shop", "mapping": {"name": "{{ body.name }}"}}
HOURLY = {"id": "hourly", "workflow": "hello", "interval_s": 3_600}


@pytest.fixture(params=["embedded", "servers"])
def stores(request: pytest.FixtureRequest) -> dict[str, str]:
    """Returns the environment variables that name the store of the server."""
    if request.param == "embedded":
        return {}
    redis: RedisServer = request.getfixturevalue("shared_redis")
    postgres: PostgresServer = request.getfixturevalue("shared_postgres")
    flush_server(redis)
    return {
        "REDIS_URL": redis.url,
        "POSTGRES_URL": postgres.url,
        "POSTGRES_SCHEMA": "described",
    }


@pytest.fixture
def token(stores: dict[str, str], server: DevServer) -> str:
    words = ("token", "create", "all", "--scope", "admin", "--per-minute", "0")
    return server.program.run(*words, **stores).stdout.strip()


@pytest.fixture
def server(tmp_path: Path, stores: dict[str, str]) -> Iterator[DevServer]:
    unlimited = {"RUNNEL_API_RATE_LIMIT": "0", "RUNNEL_SECRET_SHOP": "open-sesame-7"}
    with dev_server(tmp_path, **stores, **unlimited) as running:
        yield running


def test_every_response_matches_the_openapi_description(server: DevServer, token: str) -> None:
    bearer = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=server.url, headers=bearer, timeout=DEADLINE_S) as http:
        known = {**_create_data(http), "token_id": [token.split("_")[1]]}
        operations = _count_operations(http)
        asyncio.run(wait_until(lambda: _requires_token(server), DEADLINE_S))
        done = _run_schemathesis(server, token, known)
        with_token = http.get("/v1/executions").status_code
        without_token = httpx.get(f"{server.url}/v1/executions").status_code

    assert done.returncode == 0, f"{done.stdout[-8_000:]}\n{done.stderr}"
    assert f"Tested: {operations - len(ENDLESS)}" in done.stdout
    assert (with_token, without_token) == (200, 401)


def _requires_token(server: DevServer) -> bool:
    """Returns whether requests need a token; a server may see the first token after 3 s."""
    return httpx.get(f"{server.url}/v1/executions").status_code == httpx.codes.UNAUTHORIZED


def _create_data(http: httpx.Client) -> dict[str, list[str]]:
    """Creates one thing of each kind; returns their names by path parameter."""
    held = _post(http, "/v1/workflow", HELLO)["execution_id"]
    _post(http, "/v1/workflows", REFUSED)
    ids = [
        _post(http, f"/v1/workflows/{name}/run", {})["execution_id"]
        for name in ("hello", "refused")
    ]
    for id_ in ids:
        http.get(f"/v1/executions/{id_}/wait", params={"timeout": 20}).raise_for_status()
    http.put("/v1/workflows/hello/triggers/webhook", json=HOOK).raise_for_status()
    _post(http, "/v1/schedules", HOURLY)
    definition = http.get("/v1/workflows/hello").json()["workflow_definition_id"]
    return {
        "execution_id": [held, *ids],
        "name": ["hello", f"{ids[1]}/greet"],  # a workflow, a dead letter
        "node_id": ["greet"],
        "schedule_id": ["hourly"],
        "workflow_definition_id": [definition],
    }


def _post(http: httpx.Client, path: str, body: object) -> dict[str, str]:
    answer = http.post(path, json=body)
    assert answer.is_success, f"{path}: {answer.text}"
    created: dict[str, str] = answer.json()
    return created


def _count_operations(http: httpx.Client) -> int:
    paths = http.get("/openapi.json").json()["paths"]
    return sum(len(operations) for operations in paths.values())


def _run_schemathesis(
    server: DevServer, token: str, known: dict[str, list[str]]
) -> "subprocess.CompletedProcess[str]":
    options = {
        "--header": f"Authorization: Bearer {token}",
        "--phases": PHASES,
        "--max-examples": str(EXAMPLES),
        "--seed": str(SEED),
        "--checks": ",".join(CHECKS),
        "--generation-database": "none",
        "--suppress-health-check": "all",
    }
    words = [word for pair in options.items() for word in pair]
    words += [word for operation in ENDLESS for word in ("--exclude-operation-id", operation)]
    return subprocess.run(
        [Path(sys.executable).with_name("st"), "run", f"{server.url}/openapi.json", *words],
        cwd=server.program.folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "SCHEMATHESIS_HOOKS": "tests.e2e.schema_hooks",
            KNOWN: json.dumps(known),
        },
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
