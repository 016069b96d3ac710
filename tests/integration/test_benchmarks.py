"""Every benchmark workload runs on every kind of deployment, with few executions."""

from collections.abc import Mapping

import pytest

from bench import growth
from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.authoring.documents import read_document
from runnel.bench.deployment import (
    EngineOnlyWork,
    FunctionWork,
    WrongEndError,
    WrongResultError,
    run_all,
)
from runnel.bench.figures import Figures
from runnel.bench.functions import FUNCTION_KINDS, FUNCTION_WORKFLOWS, FunctionKind
from runnel.bench.load import measure_load_at_rate, measure_steady_load
from runnel.bench.runs import StorageMode, measure_embedded, open_embedded_deployment
from runnel.bench.server_workloads import measure_archive_down, measure_backlog
from runnel.bench.servers import BenchmarkServers, DeploymentLayout, open_server_deployment
from runnel.bench.workloads import STANDARD_WORKLOADS, measure_maps, measure_signal_waits
from runnel.core.values import Json
from runnel.core.workflow import Workflow

pytestmark = pytest.mark.slow

FEW: Mapping[str, int] = {"diamond": 20, "chain": 2, "fan": 1, "graph": 1, "map": 1_500}


def check_figures(figures: Figures) -> None:
    """Checks that there are figures and that durations and rates are not negative."""
    assert figures
    for name, value in figures.items():
        assert value >= 0 or "_mb" in name, name
    assert figures["engine_only_nodes_per_s"] > 0


def borrow_servers(
    redis_: RedisServer, postgres: PostgresServer | None, name: str
) -> BenchmarkServers:
    """Returns the servers as a user's own, so the benchmark must remove its data from them."""
    url = None if postgres is None else postgres.url
    return BenchmarkServers(redis_url=redis_.url, postgres_url=url, name=f"runnel-bench-{name}")


@pytest.mark.parametrize("storing", ["memory", "process", "power"])
async def test_a_workload_runs_embedded(storing: StorageMode) -> None:
    measured = await measure_embedded("diamond", storing, concurrency=4, count=20, repetitions=2)

    check_figures(measured.figures)


@pytest.mark.parametrize("functions", FUNCTION_KINDS)
@pytest.mark.parametrize("kind", FEW)
async def test_every_kind_runs_on_sqlite(kind: str, functions: FunctionKind) -> None:
    measured = await measure_embedded(
        kind, "process", concurrency=64, count=FEW[kind], repetitions=1, functions=functions
    )

    has_functions = STANDARD_WORKLOADS[kind].functions is not None
    check_figures(measured.figures)
    assert ("executions_per_s" in measured.figures) is has_functions
    assert ("engine_only_per_s" in measured.figures) is (kind != "map")


@pytest.mark.parametrize("functions", FUNCTION_KINDS)
async def test_functions_run_on_servers(
    shared_redis: RedisServer, shared_postgres: PostgresServer, functions: FunctionKind
) -> None:
    servers = borrow_servers(shared_redis, shared_postgres, f"functions-{functions}")

    async with open_server_deployment(servers, DeploymentLayout(workers=2)) as site:
        for shape in FUNCTION_WORKFLOWS[functions]:
            assert await run_all(site, FunctionWork(functions, shape), 2) > 0


async def test_a_wrong_result_gives_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    flows = FUNCTION_WORKFLOWS["sync"]
    wrong = flows["single"]._replace(compute_result=lambda x: x + 7)
    monkeypatch.setitem(FUNCTION_WORKFLOWS, "sync", {**flows, "single": wrong})

    async with open_embedded_deployment("memory", 4) as site:
        with pytest.raises(WrongResultError, match="returned 1, not 7: nothing was measured"):
            await run_all(site, FunctionWork("sync", "single"), 1)


@pytest.mark.parametrize(
    "measure", [growth.measure_trim, growth.measure_submits, growth.measure_lists]
)
async def test_a_cost_is_compared_between_two_sizes(
    measure: growth.Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "REPETITIONS", 1)

    figures = await growth.compare_sizes(measure, (1, 2))

    assert figures["growth_ratio"] > 0


async def test_a_failed_execution_gives_no_figure_embedded() -> None:
    async with open_embedded_deployment("memory", 4) as site:
        with pytest.raises(WrongEndError, match="ended as FAILED, not as COMPLETED"):
            await run_all(site, EngineOnlyWork(make_failing_workflow()), 1)


async def test_a_failed_execution_gives_no_figure_on_servers(shared_redis: RedisServer) -> None:
    async with open_server_deployment(
        borrow_servers(shared_redis, None, "failing"), DeploymentLayout()
    ) as site:
        with pytest.raises(ExceptionGroup) as caught:
            await run_all(site, EngineOnlyWork(make_failing_workflow()), 1)

    assert caught.group_contains(WrongEndError, match="ended as FAILED, not as COMPLETED")


def make_failing_workflow() -> Workflow:
    node: Json = {"id": "a", "handler": "output", "config": {"x": "{{ input.absent }}"}}
    return read_document({"name": "failing", "nodes": [node]}, source="failing")


async def test_all_waiting_executions_are_woken() -> None:
    async with open_embedded_deployment("process", 4) as site:
        figures = await measure_signal_waits(site, 30)

    check_figures(figures)
    assert figures["wake_s"] >= figures["signal_s"] > 0


async def test_a_steady_load_measures_the_latency_of_executions() -> None:
    async with open_embedded_deployment("memory", 64) as site:
        figures = await measure_steady_load(site, 1)

    check_figures(figures)
    assert figures["latency_ms_p50"] <= figures["latency_ms_p99"] <= figures["latency_ms_p999"]
    assert figures["sent_per_s"] == pytest.approx(0.7 * figures["maximum_per_s"], rel=0.05)


async def test_a_load_at_a_fixed_rate_measures_functions_and_the_engine_only() -> None:
    async with open_embedded_deployment("memory", 4) as site:
        figures = await measure_load_at_rate(site, 20, 1)

    assert figures["sent_per_s"] == pytest.approx(20, rel=0.1)
    assert figures["latency_ms_p50"] > 0
    assert figures["engine_only_latency_ms_p50"] > 0


async def test_the_workloads_run_on_redis_alone(shared_redis: RedisServer) -> None:
    async with open_server_deployment(
        borrow_servers(shared_redis, None, "alone"), DeploymentLayout(concurrency=64)
    ) as site:
        woken = await measure_signal_waits(site, 20)
        mapped = await measure_maps(site, 1_200)

    check_figures(woken)
    check_figures(mapped)
    assert {"waiting_mb_orchestrator", "waiting_mb_worker"} <= woken.keys()
    assert {"map_peak_mb_orchestrator", "map_cost_ratio"} <= mapped.keys()


async def test_nothing_is_lost_while_the_archive_is_down(
    own_redis: RedisServer, own_postgres: PostgresServer
) -> None:
    servers = BenchmarkServers(
        redis_url=own_redis.url,
        postgres_url=own_postgres.url,
        name="runnel-bench-down",
        redis=own_redis,
        postgres=own_postgres,
    )

    async with open_server_deployment(servers, DeploymentLayout(concurrency=16)) as site:
        waited = await measure_backlog(site, 30)
        figures = await measure_archive_down(site, 50)

    assert waited["backlog_per_s"] > 0
    assert figures["engine_only_per_s"] > 0
    assert figures["lost"] == 0
