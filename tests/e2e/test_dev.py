"""`runnel dev`: what it logs, and the private servers of `--with-servers`."""

import asyncio
import json
import os
import signal
import socket
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from runnel.app.private_servers.guardian import list_children
from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from tests.conftest import MissingPart
from tests.e2e.dev_server import dev_server
from tests.e2e.program import DEADLINE_S, Program
from tests.servers import require_binary
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

EXAMPLES = Path(__file__).parents[2] / "examples"


def is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def accepts_connections(url: str) -> bool:
    parts = urlsplit(url)
    with suppress(ConnectionRefusedError), socket.create_connection((parts.hostname, parts.port)):
        return True
    return False


async def test_dev_logs_executions_and_refused_webhooks_and_takes_files_that_are_added_later(
    tmp_path: Path,
) -> None:
    node = {"id": "a", "handler": "python", "config": {"function": "late:work"}}
    flow = {"name": "late", "nodes": [node]}
    hook = "/v1/workflows/late/triggers/webhook"
    with dev_server(tmp_path, RUNNEL_SECRET_HOOK="long enough") as dev:
        (tmp_path / "late.py").write_text("def work():\n    return 7\n")
        async with httpx.AsyncClient(base_url=dev.url) as http:
            stored = await http.post("/v1/workflows", json=flow)
            started = await http.post("/v1/workflows/late/run")
            run = await http.get(f"/v1/executions/{started.json()['execution_id']}/wait")
            put = await http.put(hook, json={"kind": "token", "secret": "hook"})
            refused = await http.post(hook, json={})
        dev.end()
    logged = [json.loads(line) for line in dev.lines if line.startswith("{")]
    events = {line.get("event"): line for line in logged}

    assert (stored.status_code, put.status_code, refused.status_code) == (201, 200, 401)
    assert run.json()["output"] == 7
    assert events["execution.finished"]["workflow"] == "late"
    assert events["webhook.refused"]["workflow"] == "late"
    assert [line for line in logged if "color_message" in line] == []


SUBMITTING = """
import runnel
from runnel import task, workflow

@task
def done() -> str:
    return "done"

@workflow
def following():
    return done()

@task
async def submit_following() -> str:
    return await runnel.submit(following)

@workflow
def first():
    return submit_following()
"""


async def test_an_execution_that_a_task_of_dev_submits_starts_at_once(tmp_path: Path) -> None:
    (tmp_path / "chained.py").write_text(SUBMITTING)
    program = Program(tmp_path)
    delays = []
    with dev_server(tmp_path) as dev:
        async with httpx.AsyncClient(base_url=dev.url, timeout=DEADLINE_S) as http:
            flow = json.loads(program.run("export", "chained.py:first", "--json").stdout)
            await http.post("/v1/workflows", json=flow)
            for _ in range(3):
                started = await http.post("/v1/workflows/first/run")
                first = await http.get(f"/v1/executions/{started.json()['execution_id']}/wait")
                following = await http.get(f"/v1/executions/{first.json()['output']}/wait")
                created, begun = (
                    datetime.fromisoformat(following.json()[name])
                    for name in ("created_at", "started_at")
                )
                assert following.json()["output"] == "done"
                delays.append((begun - created).total_seconds())

    # Without a message to the process of `dev`, it would poll: 1.4 to 1.7 s.
    assert min(delays) < 0.5


OUTER = """
import os
import runnel
from runnel import task, workflow

@task
async def double(number: int) -> int:
    return 2 * number

@workflow
def inner(number: int):
    return double(number)

@task
async def run_inner(number: int) -> list:
    return [os.environ["REDIS_URL"], await runnel.run(inner, number)]

@workflow
def outer(number: int):
    return run_inner(number)
"""


async def test_tasks_of_dev_with_servers_run_executions_on_these_servers(
    tmp_path: Path, missing_part: MissingPart
) -> None:
    require_binary(RedisServer, missing_part)
    require_binary(PostgresServer, missing_part)
    program = Program(tmp_path)
    (tmp_path / "outer.py").write_text(OUTER)
    arguments = ("--port", "0", "--queues", "python", "--concurrency", "1")
    async with program.running("dev", "--with-servers", *arguments) as dev:
        printed = (await dev.read_line()).removeprefix("export ")
        servers = dict(word.split("=", 1) for word in printed.split())
        await dev.read_until("process.started")
        words = ("run", "outer.py:outer", "-i", "number=21")
        done = await asyncio.to_thread(program.run, *words, **servers)
        workers = await asyncio.to_thread(program.documents, "workers", **servers)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [servers["REDIS_URL"], 42]
    assert [worker["queues"] for worker in workers] == [["tasks:python"]]
    assert not (tmp_path / ".runnel").exists()


async def test_the_demo_runs_on_private_servers_that_end_with_the_command(
    tmp_path: Path, missing_part: MissingPart
) -> None:
    require_binary(RedisServer, missing_part)
    require_binary(PostgresServer, missing_part)
    program = Program(tmp_path)
    demo = (EXAMPLES / "demo_steps.py").read_text()
    (tmp_path / "demo_steps.py").write_text(demo)
    async with program.running("dev", "--with-servers", "--port", "0") as dev:
        printed = (await dev.read_line()).removeprefix("export ")
        servers_set = dict(word.split("=", 1) for word in printed.split())
        await dev.read_until("process.started")
        servers = list_children(dev.pid)
        done = await asyncio.to_thread(
            program.run, "run", str(EXAMPLES / "demo.yaml"), **servers_set
        )
        were_answering = [accepts_connections(url) for url in servers_set.values()]
        dev.send(signal.SIGINT)
        code, _, _ = await dev.wait()

    assert list(servers_set) == ["REDIS_URL", "POSTGRES_URL"]
    assert (done.returncode, were_answering) == (0, [True, True])
    assert '"dearest": "elderberry"' in done.stdout
    assert code == 0
    assert servers
    await wait_until(lambda: not any(map(is_alive, servers)))
    assert not any(map(accepts_connections, servers_set.values()))
    assert not (tmp_path / ".runnel").exists()
