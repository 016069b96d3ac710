"""Metrics of executions, as an engine exposes them to Prometheus."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from runnel.app.embedded_engine import run_engine
from runnel.app.executor import WorkflowExecutor
from runnel.app.wiring import build_memory_engine
from runnel.authoring.builder import WorkflowDAG
from runnel.authoring.context import Context, StepContext
from runnel.authoring.documents import read_document
from runnel.core.workflow import Workflow
from runnel.settings.model import Settings
from runnel.telemetry.metrics import MetricsTelemetry
from runnel.telemetry.prometheus import Exposition
from tests.engines import WorkHandler, build_registry, wait_for_end
from tests.metric_samples import Samples, parse_samples
from tests.waiting import wait_until


def make_document(**fields: Any) -> Workflow:
    return read_document({"name": "bills", **fields})


class MeasuredEngine:
    def __init__(self) -> None:
        self.work = WorkHandler()
        self.metrics = MetricsTelemetry()
        handlers = build_registry(self.work)

        async def measure(config: Any, ctx: Context) -> None:
            ctx.metrics.count("pages", 3, kind="pdf")
            ctx.metrics.timing("read", 0.2)

        handlers.register("measure", measure)
        self.engine = build_memory_engine(Settings(shutdown_timeout_s=0.2), handlers=handlers)
        self.engine.event_bus.add_sink(self.metrics)

    def read(self) -> Samples:
        return parse_samples(Exposition(self.metrics.collect_families).render().decode())


async def test_an_execution_is_counted_from_its_start_to_its_end() -> None:
    bench = MeasuredEngine()
    flow = make_document(
        nodes=[
            {"id": "a", "handler": "work"},
            {"id": "b", "handler": "work", "dependencies": ["a"], "condition": "false"},
            {"id": "m", "handler": "work", "dependencies": ["a"], "for_each": "{{ input.items }}"},
            {"id": "own", "handler": "measure", "dependencies": ["m"]},
        ]
    )
    async with run_engine(bench.engine):
        execution_id = await bench.engine.client.submit(flow, {"items": [1, 2, 3]})
        view = await wait_for_end(bench.engine, execution_id)

    samples = bench.read()
    assert view.status == "COMPLETED"
    assert samples["runnel_executions_started_total"] == {("bills",): 1}
    assert samples["runnel_executions_finished_total"] == {("completed", "bills"): 1}
    assert samples["runnel_execution_duration_seconds_count"] == {("bills",): 1}
    assert samples["runnel_nodes_settled_total"]["work", "completed"] >= 4
    assert samples["runnel_nodes_settled_total"]["work", "skipped"] == 1
    assert samples["runnel_nodes_settled_total"]["measure", "completed"] == 1
    assert samples["runnel_tasks_ended_total"] == {
        ("work", "completed"): 4,
        ("measure", "completed"): 1,
    }
    assert samples["runnel_task_duration_seconds_count"] == {("work",): 4, ("measure",): 1}
    assert samples["runnel_handoff_seconds_count"] == {(): 5}
    assert samples["runnel_user_pages_total"] == {("measure", "pdf"): 3}
    assert samples["runnel_user_read_seconds_sum"] == {("measure",): 0.2}


async def test_retries_failures_and_dead_letters_are_counted() -> None:
    bench = MeasuredEngine()
    retry = {"max_retries": 3, "initial_delay": 0.0, "jitter": False}
    flow = make_document(nodes=[{"id": "a", "handler": "work", "retry": retry}])
    bench.work.failures["a"] = [
        ConnectionError("later"),
        ConnectionError("later"),
        ValueError("no"),
    ]
    async with run_engine(bench.engine):
        view = await wait_for_end(bench.engine, await bench.engine.client.submit(flow))

    samples = bench.read()
    assert view.status == "FAILED"
    assert samples["runnel_retries_total"] == {("work",): 2}
    assert samples["runnel_dead_letters_written_total"] == {("work",): 1}
    assert samples["runnel_tasks_ended_total"] == {("work", "failed"): 3}
    assert samples["runnel_executions_finished_total"] == {("failed", "bills"): 1}


async def test_a_missed_sla_is_counted_before_the_execution_ends() -> None:
    bench = MeasuredEngine()
    gate = bench.work.gate("a")
    flow = make_document(sla_seconds=0.05, nodes=[{"id": "a", "handler": "work"}])
    async with run_engine(bench.engine):
        execution_id = await bench.engine.client.submit(flow)
        await wait_until(lambda: bench.read().get("runnel_sla_misses_total") == {("bills",): 1})
        gate.set()
        view = await wait_for_end(bench.engine, execution_id)

    assert view.status == "COMPLETED"
    assert bench.read()["runnel_sla_misses_total"] == {("bills",): 1}


async def test_an_executor_registers_its_metrics_in_a_registry_of_prometheus() -> None:
    registry = CollectorRegistry()
    executor = WorkflowExecutor(registry=registry)
    fails = iter([True, False])

    def extract(ctx: StepContext) -> float:
        ctx.task.observe("extraction_confidence", 0.75, source="pdf")
        if next(fails):
            raise ConnectionError("away")
        return 0.75

    dag = WorkflowDAG("bills").add_step("extract", extract, retry_delay=0.01)
    dag.add_step("review", print, depends_on=["extract"], condition=lambda _ctx: False)

    result = await executor.execute(dag)

    samples = parse_samples(generate_latest(registry).decode())
    assert result.status == "COMPLETED"
    assert samples["runnel_executions_finished_total"] == {("completed", "bills"): 1}
    assert samples["runnel_nodes_settled_total"] == {
        ("step", "completed"): 1,
        ("step", "skipped"): 1,
    }
    assert samples["runnel_retries_total"] == {("step",): 1}
    assert samples["runnel_task_duration_seconds_count"][("step",)] >= 2
    assert samples["runnel_user_extraction_confidence_count"] == {("step", "pdf"): 2}
    assert samples["runnel_user_extraction_confidence_sum"] == {("step", "pdf"): 1.5}


@pytest.mark.parametrize("name", ["runnel.telemetry.prometheus", "prometheus_client", "uvicorn"])
def test_running_a_file_does_not_import_metrics_modules(tmp_path: Path, name: str) -> None:
    flow = tmp_path / "flow.json"
    flow.write_text('{"name": "f", "nodes": [{"id": "a", "handler": "output"}]}')
    code = (
        "import sys; from runnel.__main__ import main\n"
        f"sys.argv = ['runnel', 'run', {str(flow)!r}, '--data-dir', {str(tmp_path / 'd')!r}]\n"
        "try: main()\nexcept SystemExit as end: assert not end.code, end.code\n"
        f"assert {name!r} not in sys.modules, 'imported'"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
