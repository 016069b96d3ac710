"""Metrics of real processes, and a worker that is told to end from elsewhere."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from tests.e2e.program import DEADLINE_S, Program, RunningProgram
from tests.e2e.test_api import HELLO, serving
from tests.metric_samples import Samples, parse_samples
from tests.waiting import wait_for_value

pytestmark = pytest.mark.e2e

SHOWN = "metrics on "


async def url_of(process: RunningProgram) -> str:
    """It may have been said before what was waited for first."""
    said = [line for line in process.lines if SHOWN in line]
    return (said[0] if said else await process.says(SHOWN)).removeprefix(SHOWN)


async def scrape(url: str) -> Samples:
    async with httpx.AsyncClient(timeout=DEADLINE_S) as http:
        return parse_samples((await http.get(url)).raise_for_status().text)


async def test_every_process_on_servers_shows_its_own_metrics(
    tmp_path: Path, own_redis: RedisServer, own_postgres: PostgresServer
) -> None:
    program = Program(tmp_path)
    servers = {"REDIS_URL": own_redis.url, "POSTGRES_URL": own_postgres.url}
    own: dict[str, Any] = {**servers, "RUNNEL_METRICS_PORT": "0"}
    async with (
        program.running("orchestrator", **own) as orchestrator,
        program.running("worker", **own) as worker,
        serving(program, "api", **own) as (api, http),
    ):
        deciding, working = await url_of(orchestrator), await url_of(worker)
        await http.post("/v1/workflows", json=HELLO)
        begun = (await http.post("/v1/workflows/hello/run", json={"input": {"name": "Ada"}})).json()
        ended = await http.get(
            f"/v1/executions/{begun['execution_id']}/wait", params={"timeout": 20}
        )
        decided, worked = await scrape(deciding), await scrape(working)
        answered = parse_samples((await http.get("/metrics")).text)
        aside = await scrape(await url_of(api))

        (name,) = [each["worker"] for each in (await http.get("/v1/workers")).json()["items"]]
        drained = await http.post(f"/v1/workers/{name}/drain")
        code, _, said = await worker.ends()

        async def gone() -> bool | None:
            return (await http.get("/v1/workers")).json()["items"] == [] or None

        assert await wait_for_value(gone, every_s=0.1, deadline_s=DEADLINE_S)
        foreign = await _as_foreign(deciding)

    assert ended.json()["status"] == "COMPLETED"
    assert decided["runnel_executions_finished_total"] == {("completed", "hello"): 1}
    assert decided["runnel_nodes_settled_total"] == {("output", "completed"): 1}
    assert decided["runnel_archive_lag_seconds"][()] < 10
    assert decided["runnel_workers"]["alive",] == 1
    assert worked["runnel_tasks_ended_total"] == {("output", "completed"): 1}
    assert worked["runnel_handoff_seconds_count"] == {(): 1}
    assert "runnel_workers" not in worked
    assert answered["runnel_workers"]["alive",] == 1
    assert answered["runnel_partitions_orphaned"] == {(): 0}
    assert aside["runnel_http_requests_total"]["GET", "/metrics", "200"] == 1
    assert aside["runnel_workers"] == answered["runnel_workers"]
    assert (drained.status_code, code) == (202, 0)
    assert "worker.drained" in said
    assert foreign == 403


async def test_dev_shows_what_it_decides_runs_and_answers_and_can_be_drained(
    tmp_path: Path,
) -> None:
    program = Program(tmp_path)
    async with serving(program, "dev") as (dev, http):
        await http.post("/v1/workflows", json=HELLO)
        begun = (await http.post("/v1/workflows/hello/run", json={"input": {"name": "Ada"}})).json()
        await http.get(f"/v1/executions/{begun['execution_id']}/wait", params={"timeout": 20})
        seen = parse_samples((await http.get("/metrics")).text)
        (worker,) = (await http.get("/v1/workers")).json()["items"]
        await http.post(f"/v1/workers/{worker['worker']}/drain")
        code, _, _ = await dev.ends()

    assert seen["runnel_executions_finished_total"] == {("completed", "hello"): 1}
    assert seen["runnel_task_duration_seconds_count"] == {("output",): 1}
    assert seen["runnel_http_requests_total"]["POST", "/workflows", "201"] == 1
    assert seen["runnel_workers"]["alive",] == 1
    assert code == 0


def test_a_port_that_is_taken_is_one_sentence(tmp_path: Path, own_redis: RedisServer) -> None:
    program = Program(tmp_path)
    taken = own_redis.url.rpartition(":")[2].partition("/")[0]

    done = program.run("worker", "--metrics-port", taken, REDIS_URL=own_redis.url)

    assert done.returncode == 2
    assert f"can't listen on 127.0.0.1:{taken}" in done.stderr
    assert "--metrics-port" in done.stderr
    assert "Traceback" not in done.stderr


async def _as_foreign(url: str) -> int:
    async with httpx.AsyncClient() as http:
        return (await http.get(url, headers={"Host": "evil.example"})).status_code
