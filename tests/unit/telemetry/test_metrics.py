"""Metrics: what they count, how they are rendered, and their limits."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from runnel.core.effects import TaskMessage
from runnel.core.events import (
    AnyEvent,
    ExecutionStarted,
    NodeCancelled,
    NodeCompleted,
    NodeFailed,
    NodeSkipped,
    RetryPlanned,
    SlaMissed,
    TaskWasLost,
)
from runnel.core.graph import Graph
from runnel.core.ids import ExecutionId, NodeId, Nonce, TaskToken
from runnel.core.retry import ErrorInfo
from runnel.core.run_when import SkipReason
from runnel.core.states import ExecutionState
from runnel.core.values import EMPTY_OBJECT
from runnel.ports import telemetry as names
from runnel.ports.store import ExecutionHeader
from runnel.telemetry.metrics import (
    DURATION_BUCKETS_S,
    LABEL_VALUES_MAX,
    USER_SERIES_MAX,
    Histogram,
    MetricsTelemetry,
)
from runnel.telemetry.prometheus import Exposition
from tests.core_driver import make_node, make_workflow
from tests.metric_samples import Samples, parse_samples

GRAPH = Graph(msgspec.structs.replace(make_workflow(make_node("a"), make_node("b")), name="bills"))
ERROR = ErrorInfo(type="ValueError", message="it broke")
A, B = NodeId("a"), NodeId("b")


def read(metrics: MetricsTelemetry) -> Samples:
    return parse_samples(Exposition(metrics.collect_families).render().decode())


def task(handler: str = "work", issued_at: float = 1.0) -> TaskMessage:
    return TaskMessage(
        token=TaskToken(ExecutionId("e1"), A, -1, 1, Nonce("n")),
        handler=handler,
        queue=f"tasks:{handler}",
        config=msgspec.Raw(b"{}"),
        execution_input=EMPTY_OBJECT,
        workflow="bills",
        version=1,
        execution_started_at=1.0,
        timeout_s=1.0,
        issued_at=issued_at,
    )


def header(state: ExecutionState, workflow: str = "bills") -> ExecutionHeader:
    return ExecutionHeader(
        execution_id=ExecutionId("e1"),
        workflow=workflow,
        version=1,
        definition="d",
        state=state,
        created_at=1.0,
        started_at=2.0,
        finished_at=3.5,
    )


def committed(metrics: MetricsTelemetry, *events: AnyEvent) -> None:
    metrics.committed("e1", 3.5, events, None, GRAPH)


def test_executions_are_counted_by_workflow_and_state() -> None:
    metrics = MetricsTelemetry()

    committed(metrics, ExecutionStarted())
    metrics.committed("e1", 3.5, (), header(ExecutionState.FAILED), GRAPH)

    values = read(metrics)
    assert values["runnel_executions_started_total"] == {("bills",): 1}
    assert values["runnel_executions_finished_total"] == {("failed", "bills"): 1}
    assert values["runnel_execution_duration_seconds_sum"] == {("bills",): 1.5}


def test_nodes_are_counted_by_handler_and_state() -> None:
    metrics = MetricsTelemetry()

    committed(
        metrics,
        NodeCompleted(node=A, output=EMPTY_OBJECT),
        NodeCompleted(node=B, item=4, output=EMPTY_OBJECT),
        NodeFailed(node=A, error=ERROR),
        NodeSkipped(node=A, reason=SkipReason.CONDITION_FALSE),
        NodeCancelled(node=A, reason="no"),
    )

    handler = GRAPH.nodes[0].node.handler
    assert read(metrics)["runnel_nodes_settled_total"] == {
        (handler, "completed"): 2,
        (handler, "failed"): 1,
        (handler, "skipped"): 1,
        (handler, "cancelled"): 1,
    }


@pytest.mark.parametrize(
    ("event", "name", "labels"),
    [
        (RetryPlanned(node=A, error=ERROR, due=5.0), "runnel_retries_total", ("output",)),
        (TaskWasLost(node=A, reason="dead"), "runnel_losses_total", ("output",)),
        (SlaMissed(sla_s=1.0), "runnel_sla_misses_total", ("bills",)),
    ],
)
def test_retries_losses_and_sla_misses_are_counted(
    event: AnyEvent, name: str, labels: Sequence[str]
) -> None:
    metrics = MetricsTelemetry()

    committed(metrics, event)

    ((label_values, value),) = read(metrics)[name].items()
    assert value == 1
    assert len(label_values) == len(labels)


@pytest.mark.parametrize(
    ("event", "fields", "name"),
    [
        (names.PARTITION_TAKEN_OVER, {}, "runnel_takeovers_total"),
        (names.PARTITION_LOST, {"is_fenced": True}, "runnel_commits_refused_total"),
        (names.REPORT_REFUSED, {}, "runnel_reports_refused_total"),
        (names.COMMAND_POISONED, {}, "runnel_commands_poisoned_total"),
        (names.MESSAGE_UNREADABLE, {}, "runnel_messages_unreadable_total"),
        (names.EXECUTION_REPAIRED, {}, "runnel_executions_repaired_total"),
        (names.WORKER_DEAD, {}, "runnel_workers_lost_total"),
        (names.STORE_FAILED, {}, "runnel_store_failures_total"),
        (names.ARCHIVE_SET_ASIDE, {}, "runnel_archive_set_aside_total"),
        (names.ARCHIVE_GAP, {}, "runnel_archive_gaps_total"),
    ],
)
def test_an_event_is_counted_under_its_own_name(
    event: str, fields: dict[str, object], name: str
) -> None:
    metrics = MetricsTelemetry()
    before = read(metrics)[name]

    metrics.event(event, **fields)

    values = read(metrics)
    assert (before, values[name]) == ({(): 0}, {(): 1})
    assert values["runnel_events_total"] == {(event,): 1}


def test_a_partition_lost_with_its_store_does_not_count_as_refused_commit() -> None:
    metrics = MetricsTelemetry()

    metrics.event(names.PARTITION_LOST, is_fenced=False)

    assert read(metrics)["runnel_commits_refused_total"] == {(): 0}


def test_dead_letters_and_unserved_tasks_are_counted_by_queue() -> None:
    metrics = MetricsTelemetry()

    metrics.event(names.LETTER_WRITTEN, queue="tasks:python")
    metrics.event(names.LETTER_WRITTEN, queue="inbox")
    metrics.event(names.TASKS_UNSERVED, queue="tasks:odd", rejected=7)

    values = read(metrics)
    assert values["runnel_dead_letters_written_total"] == {("python",): 1, ("inbox",): 1}
    assert values["runnel_tasks_unserved_total"] == {("odd",): 7}


def test_attempts_are_timed_from_their_commit_to_their_start_and_to_their_end() -> None:
    metrics = MetricsTelemetry()

    metrics.started(task(issued_at=1.0), "w", 1.02)
    metrics.started(task(issued_at=9.0), "w", 1.0)
    metrics.ended(task(), "completed", 0.3)
    metrics.ended(task(), "failed", -1.0)

    values = read(metrics)
    assert values["runnel_handoff_seconds_bucket"][("0.025",)] == 2
    assert values["runnel_handoff_seconds_bucket"][("0.01",)] == 1
    assert values["runnel_handoff_seconds_count"] == {(): 2}
    assert values["runnel_tasks_ended_total"] == {("work", "completed"): 1, ("work", "failed"): 1}
    assert values["runnel_task_duration_seconds_sum"] == {("work",): 0.3}


def test_the_archive_lag_is_a_gauge() -> None:
    metrics = MetricsTelemetry()

    metrics.measured(names.ARCHIVE_LAG_S, 3.0)
    metrics.measured(names.ARCHIVE_LAG_S, 0.5)

    assert read(metrics)["runnel_archive_lag_seconds"] == {(): 0.5}


def test_histogram_buckets_are_cumulative() -> None:
    spread = Histogram("x", "y")
    for value in (0.0, DURATION_BUCKETS_S[0], DURATION_BUCKETS_S[-1], DURATION_BUCKETS_S[-1] + 1):
        spread.add(value)

    shown = {sample.labels.get("le"): sample.value for sample in spread.build_family().samples}

    assert shown[f"{DURATION_BUCKETS_S[0]:g}"] == 2
    assert shown[f"{DURATION_BUCKETS_S[-1]:g}"] == 3
    assert shown["+Inf"] == 4


def test_the_number_of_workflow_labels_is_limited() -> None:
    metrics = MetricsTelemetry()

    for number in range(3 * LABEL_VALUES_MAX):
        metrics.committed("e", 1.0, (), header(ExecutionState.COMPLETED, f"w{number}"))

    values = read(metrics)["runnel_executions_finished_total"]
    assert len(values) == LABEL_VALUES_MAX + 1
    assert values["completed", "other"] == 2 * LABEL_VALUES_MAX


def user(metrics: MetricsTelemetry, kind: str, name: str, value: float, /, **labels: str) -> None:
    fields: dict[str, Any] = {"metric": name, "kind": kind, "value": value, "labels": labels}
    metrics.event(names.HANDLER_METRIC, handler="python", execution_id="e", **fields)


def test_metrics_of_user_code_appear_under_their_name() -> None:
    metrics = MetricsTelemetry()

    user(metrics, "count", "pages", 2, kind="pdf")
    user(metrics, "count", "pages", 3, kind="pdf")
    user(metrics, "gauge", "left", 7)
    user(metrics, "gauge", "left", 5)
    user(metrics, "timing", "read-file", 0.2)
    user(metrics, "timing", "read-file", 0.4)

    values = read(metrics)
    assert values["runnel_user_pages_total"] == {("python", "pdf"): 5}
    assert values["runnel_user_left"] == {("python",): 5}
    assert values["runnel_user_read_file_seconds_count"] == {("python",): 2}
    assert values["runnel_user_read_file_seconds_sum"][("python",)] == pytest.approx(0.6)
    assert "runnel_events_total" not in values


def test_observed_values_become_a_histogram_with_bounds_for_any_value() -> None:
    metrics = MetricsTelemetry()

    for value in (-1.0, 0.93, 0.97, 2_000_000.0):
        user(metrics, "value", "confidence", value)

    values = read(metrics)
    buckets = values["runnel_user_confidence_bucket"]
    assert buckets["python", "0"] == 1
    assert buckets["python", "0.95"] == 2
    assert buckets["python", "1e+06"] == 3
    assert values["runnel_user_confidence_count"] == {("python",): 4}
    assert values["runnel_user_confidence_sum"][("python",)] == pytest.approx(2_000_000.9)


def test_the_number_of_user_metrics_is_limited() -> None:
    metrics = MetricsTelemetry()

    for number in range(USER_SERIES_MAX + 50):
        user(metrics, "count", "orders", 1, customer=str(number))
    for number in range(300):
        user(metrics, "gauge", f"g{number}", 1)

    values = read(metrics)
    assert len(values["runnel_user_orders_total"]) == USER_SERIES_MAX
    assert values["runnel_user_metrics_dropped_total"] == {(): 350}


@pytest.mark.parametrize(
    ("name", "labels", "shown"),
    [
        ("é 1", {}, "runnel_user__1_total"),
        ("", {}, "runnel_user___total"),
        ("9", {}, "runnel_user__9_total"),
        ("x", {"a\nb": 'c"d\n'}, "runnel_user_x_total"),
    ],
)
def test_invalid_characters_in_user_metric_names_are_replaced(
    name: str, labels: dict[str, str], shown: str
) -> None:
    metrics = MetricsTelemetry()

    user(metrics, "count", name, 1, **labels)

    assert shown in read(metrics)


def test_a_user_metric_keeps_its_first_kind() -> None:
    metrics = MetricsTelemetry()

    user(metrics, "count", "x", 1)
    user(metrics, "gauge", "x", 9)

    values = read(metrics)
    assert values["runnel_user_x_total"] == {("python",): 1}
    assert values["runnel_user_metrics_dropped_total"] == {(): 1}


def test_reserved_names_of_labels_are_renamed() -> None:
    metrics = MetricsTelemetry()

    user(metrics, "value", "x", 1, le="a", __name__="b")
    text = Exposition(metrics.collect_families).render().decode()

    assert 'runnel_user_x_count{handler="python",label___name__="b",label_le="a"} 1.0' in text
    list(text_string_to_metric_families(text))
