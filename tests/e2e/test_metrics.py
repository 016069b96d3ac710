"""Metrics of real processes, and a worker that is drained over HTTP."""

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

METRICS_ON = "metrics on "


async def find_metrics_url(process: RunningProgram) -> str:
    """Returns the address of the metrics, which may be in a line that was already read."""
    matching = [line for line in process.lines if METRICS_ON in line]
    return (matching[0] if matching else await process.read_until(METRICS_ON)).removeprefix(
        METRICS_ON
    )


async def scrape(url: str) -> Samples:
    async with httpx.AsyncClient(timeout=DEADLINE_S) as http:
        return parse_samples((await http.get(url)).raise_for_status().text)


async def test_every_process_on_servers_serves_its_own_metrics(
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
        orchestrator_url = await find_metrics_url(orchestrator)
        worker_url = await find_metrics_url(worker)
        await http.post("/v1/workflows", json=HELLO)
        submitted = (
            await http.post("/v1/workflows/hello/run", json={"input": {"name": "Ada"}})
        ).json()
        ended = await http.get(
            f"/v1/executions/{submitted['execution_id']}/wait", params={"timeout": 20}
        )
        of_orchestrator, of_worker = await scrape(orchestrator_url), await scrape(worker_url)
        on_api = parse_samples((await http.get("/metrics")).text)
        on_own_port = await scrape(await find_metrics_url(api))

        (name,) = [entry["worker"] for entry in (await http.get("/v1/workers")).json()["items"]]
        drained = await http.post(f"/v1/workers/{name}/drain")
        code, _, stderr = await worker.wait()

        async def is_gone() -> bool | None:
            return (await http.get("/v1/workers")).json()["items"] == [] or None

        assert await wait_for_value(is_gone, every_s=0.1, deadline_s=DEADLINE_S)
        foreign = await _scrape_with_foreign_host(orchestrator_url)

    assert ended.json()["status"] == "COMPLETED"
    assert of_orchestrator["runnel_executions_finished_total"] == {("completed", "hello"): 1}
    assert of_orchestrator["runnel_nodes_settled_total"] == {("output", "completed"): 1}
    assert of_orchestrator["runnel_archive_lag_seconds"][()] < 10
    assert of_orchestrator["runnel_workers"]["alive",] == 1
    assert of_worker["runnel_tasks_ended_total"] == {("output", "completed"): 1}
    assert of_worker["runnel_handoff_seconds_count"] == {(): 1}
    assert "runnel_workers" not in of_worker
    assert on_api["runnel_workers"]["alive",] == 1
    assert on_api["runnel_partitions_orphaned"] == {(): 0}
    assert on_own_port["runnel_http_requests_total"]["GET", "/metrics", "200"] == 1
    assert on_own_port["runnel_workers"] == on_api["runnel_workers"]
    assert (drained.status_code, code) == (202, 0)
    assert "worker.drained" in stderr
    assert foreign == 403


async def test_dev_serves_the_metrics_of_all_its_roles_and_can_be_drained(
    tmp_path: Path,
) -> None:
    program = Program(tmp_path)
    async with serving(program, "dev") as (dev, http):
        await http.post("/v1/workflows", json=HELLO)
        submitted = (
            await http.post("/v1/workflows/hello/run", json={"input": {"name": "Ada"}})
        ).json()
        await http.get(f"/v1/executions/{submitted['execution_id']}/wait", params={"timeout": 20})
        samples = parse_samples((await http.get("/metrics")).text)
        (worker,) = (await http.get("/v1/workers")).json()["items"]
        await http.post(f"/v1/workers/{worker['worker']}/drain")
        code, _, _ = await dev.wait()

    assert samples["runnel_executions_finished_total"] == {("completed", "hello"): 1}
    assert samples["runnel_task_duration_seconds_count"] == {("output",): 1}
    assert samples["runnel_http_requests_total"]["POST", "/workflows", "201"] == 1
    assert samples["runnel_workers"]["alive",] == 1
    assert code == 0


def test_a_taken_metrics_port_is_reported_in_one_sentence(
    tmp_path: Path, own_redis: RedisServer
) -> None:
    program = Program(tmp_path)
    port = own_redis.url.rpartition(":")[2].partition("/")[0]

    done = program.run("worker", "--metrics-port", port, REDIS_URL=own_redis.url)

    assert done.returncode == 2
    assert f"can't listen on 127.0.0.1:{port}" in done.stderr
    assert "--metrics-port" in done.stderr
    assert "Traceback" not in done.stderr


async def _scrape_with_foreign_host(url: str) -> int:
    """Returns the status code of a request whose Host header names another site."""
    async with httpx.AsyncClient() as http:
        return (await http.get(url, headers={"Host": "evil.example"})).status_code
