"""Counts telemetry events as metrics for Prometheus."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, Literal, TypeAlias, cast

import msgspec

from runnel.core import events as e
from runnel.core.effects import TaskMessage
from runnel.core.events import AnyEvent
from runnel.core.graph import Graph
from runnel.core.states import FINAL_EXECUTION_STATES
from runnel.ports import telemetry as names
from runnel.ports.store import ExecutionHeader

# Metrics are counted in plain dictionaries to keep the hot path fast. An increment with two labels
# took 1.9 to 2.6 µs with `prometheus_client` and takes 0.25 µs here. A diamond makes 14 increments:
# metrics add 10 to 11 µs to about 440 µs (embedded, SQLite, 64 slots, 2026-11). All counting and
# reading happens on one event loop, so there are no locks.

MetricKind: TypeAlias = Literal["counter", "gauge", "histogram"]
LabelKey: TypeAlias = tuple[str, ...]

LABEL_VALUES_MAX = 200
OTHER_LABEL = "other"
DURATION_BUCKETS_S = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)
"""Upper bounds of histogram buckets, in seconds: from a handoff in one process to a long task."""
VALUE_BUCKETS = (
    *(0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99),
    *(1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1e3, 1e4, 1e5, 1e6),
)
"""Upper bounds of histogram buckets of any other value: a ratio, a price or a number of bytes."""


class Sample(msgspec.Struct, frozen=True, gc=False):
    suffix: str
    labels: Mapping[str, str]
    value: float


class MetricFamily(msgspec.Struct, frozen=True, kw_only=True):
    """All samples of one metric."""

    name: str
    kind: MetricKind
    about: str
    labels: LabelKey = ()
    samples: Sequence[Sample] = ()


class BoundedLabelValues:
    """Limits the number of values of a label: names beyond the limit become `other`."""

    def __init__(self, limit: int = LABEL_VALUES_MAX) -> None:
        self._limit = limit
        self._known: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        label = self._known.get(name)
        if label is None:
            if len(self._known) >= self._limit:
                return OTHER_LABEL
            label = self._known[name] = name or "none"
        return label


class LabeledCounter:
    """A counter by label values. With the kind `gauge`, values may also fall."""

    def __init__(self, name: str, about: str, *labels: str, kind: MetricKind = "counter") -> None:
        self.name = name
        self.about = about
        self.values: dict[LabelKey, float] = {}
        self._labels = labels
        self._kind: MetricKind = kind
        if not labels and kind == "counter":
            self.values[()] = 0.0

    def add(self, *key: str, n: float = 1.0) -> None:
        self.values[key] = self.values.get(key, 0.0) + n

    def set(self, *key: str, value: float) -> None:
        self.values[key] = value

    def build_family(self) -> MetricFamily:
        samples = [
            Sample("", dict(zip(self._labels, key, strict=True)), value)
            for key, value in self.values.items()
        ]
        return MetricFamily(
            name=self.name,
            kind=self._kind,
            about=self.about,
            labels=self._labels,
            samples=samples,
        )


class Histogram:
    """A histogram of durations in seconds, with one label or none."""

    def __init__(self, name: str, about: str, *labels: str) -> None:
        self.name = name
        self.about = about
        self.buckets: dict[LabelKey, list[float]] = {}
        self._labels = labels

    def add(self, seconds: float, key: LabelKey = ()) -> None:
        """Adds a duration. A negative duration counts as 0: clocks of two machines may differ."""
        buckets = self.buckets.get(key)
        if buckets is None:
            # One count per bound, one count for larger values, and the sum of all durations.
            buckets = self.buckets[key] = [0.0] * (len(DURATION_BUCKETS_S) + 2)
        buckets[bisect_left(DURATION_BUCKETS_S, seconds)] += 1
        if seconds > 0:
            buckets[-1] += seconds

    def build_family(self) -> MetricFamily:
        samples = [
            sample
            for key, buckets in self.buckets.items()
            for sample in build_histogram_samples(
                buckets, dict(zip(self._labels, key, strict=True))
            )
        ]
        return MetricFamily(
            name=self.name,
            kind="histogram",
            about=self.about,
            labels=self._labels,
            samples=samples,
        )


def build_histogram_samples(
    buckets: Sequence[float],
    labels: Mapping[str, str],
    bounds: Sequence[float] = DURATION_BUCKETS_S,
) -> Iterator[Sample]:
    """Yields the samples of a histogram; Prometheus buckets are cumulative."""
    cumulative = 0.0
    for bound, count in zip((*bounds, inf), buckets[:-1], strict=True):
        cumulative += count
        text = "+Inf" if bound == inf else f"{bound:g}"
        yield Sample("_bucket", {**labels, "le": text}, cumulative)
    yield Sample("_count", labels, cumulative)
    yield Sample("_sum", labels, buckets[-1])


def build_gauge(
    name: str, about: str, label: str | None = None, values: Mapping[str, float] | None = None
) -> MetricFamily:
    """Builds a gauge with one sample per label value; without a label, `values` has the key ''."""
    samples = [
        Sample("", {} if label is None else {label: key}, value)
        for key, value in (values or {}).items()
    ]
    labels = () if label is None else (label,)
    return MetricFamily(name=name, kind="gauge", about=about, labels=labels, samples=samples)


# Metrics that user code records with `ctx.metrics`. Their number is limited.

USER_METRICS_MAX = 200
USER_SERIES_MAX = 2_000
LABEL_CHARS_MAX = 100

_INVALID_CHARS = re.compile(r"[^a-zA-Z0-9_]+")
_RESERVED_LABELS = frozenset({"le", "quantile"})
_USER_METRIC_KINDS: Mapping[str, MetricKind] = {
    "count": "counter",
    "gauge": "gauge",
    "timing": "histogram",
    "value": "histogram",
}
_USER_METRIC_BUCKETS = {"timing": DURATION_BUCKETS_S, "value": VALUE_BUCKETS}


class UserMetrics:
    """Metrics of user code: `runnel_user_<name>`, with the caller's labels and the handler.

    At most USER_METRICS_MAX names and USER_SERIES_MAX combinations of labels are kept. Measurements
    beyond these limits are dropped, and the dropped measurements are counted.
    """

    def __init__(self) -> None:
        # The kind of the user's measurements, and the values of each series.
        self._families: dict[str, tuple[str, dict[LabelKey, list[float]]]] = {}
        self._series_count = 0
        self._dropped = LabeledCounter(
            "runnel_user_metrics_dropped", "Measurements of user code dropped because of limits."
        )

    def record(self, fields: Mapping[str, object]) -> None:
        """Records a HANDLER_METRIC event: metric, kind, value, labels and handler."""
        kind = str(fields.get("kind"))
        value = fields.get("value")
        if kind not in _USER_METRIC_KINDS or not isinstance(value, int | float):
            self._dropped.add()
            return
        metric = _sanitize_name(str(fields.get("metric")))
        name = f"runnel_user_{metric}{'_seconds' if kind == 'timing' else ''}"
        labels = {
            "handler": fields.get("handler", ""),
            **cast("dict[str, object]", fields["labels"]),
        }
        series = self._get_series(name, kind, _build_label_key(labels))
        if series is None:
            self._dropped.add()
        elif kind in _USER_METRIC_BUCKETS:
            _observe(series, float(value), _USER_METRIC_BUCKETS[kind])
        else:
            series[0] = float(value) if kind == "gauge" else series[0] + float(value)

    def collect_families(self) -> list[MetricFamily]:
        return [
            self._dropped.build_family(),
            *(self._build_family(name) for name in self._families),
        ]

    def _get_series(self, name: str, kind: str, key: LabelKey) -> list[float] | None:
        """Returns the values of a series; None at a limit, or if the metric has another kind."""
        family = self._families.get(name)
        if family is None:
            if len(self._families) >= USER_METRICS_MAX:
                return None
            family = self._families[name] = (kind, {})
        family_kind, series = family
        if family_kind != kind:
            return None
        values = series.get(key)
        if values is None and self._series_count < USER_SERIES_MAX:
            self._series_count += 1
            values = series[key] = [0.0]
        return values

    def _build_family(self, name: str) -> MetricFamily:
        kind, series = self._families[name]
        samples: list[Sample] = []
        for key, values in series.items():
            labels = dict(zip(key[::2], key[1::2], strict=True))
            if kind in _USER_METRIC_BUCKETS:
                samples += build_histogram_samples(values, labels, _USER_METRIC_BUCKETS[kind])
            else:
                samples.append(Sample("", labels, values[0]))
        return MetricFamily(
            name=name,
            kind=_USER_METRIC_KINDS[kind],
            about="Measured by user code.",
            samples=samples,
        )


def _observe(buckets: list[float], value: float, bounds: Sequence[float]) -> None:
    if len(buckets) == 1:  # a new series
        buckets[:] = [0.0] * (len(bounds) + 2)
    buckets[bisect_left(bounds, value)] += 1
    buckets[-1] += value


def _build_label_key(labels: Mapping[str, object]) -> LabelKey:
    """Returns names and values alternately, sorted by name."""
    pairs = sorted(
        (_sanitize_label(name), str(value)[:LABEL_CHARS_MAX]) for name, value in labels.items()
    )
    return tuple(text for pair in pairs for text in pair)


def _sanitize_label(name: str) -> str:
    """Returns a valid name of a label. With a reserved one, Prometheus refuses all metrics."""
    valid = _sanitize_name(name)
    return f"label_{valid}" if valid in _RESERVED_LABELS or valid.startswith("__") else valid


def _sanitize_name(name: str) -> str:
    valid = _INVALID_CHARS.sub("_", name)[:LABEL_CHARS_MAX]
    return f"_{valid}" if not valid or valid[0].isdigit() else valid


_SETTLED_STATES: Mapping[type, str] = {
    e.NodeCompleted: "completed",
    e.NodeFailed: "failed",
    e.NodeSkipped: "skipped",
    e.NodeCancelled: "cancelled",
}
_COUNTED_EVENTS = frozenset({e.ExecutionStarted, e.RetryPlanned, e.TaskWasLost, e.SlaMissed})


class MetricsTelemetry:
    """Implements the Telemetry port with metrics; `collect_families` returns the metrics."""

    def __init__(self) -> None:
        self._extra_sources: list[Callable[[], Sequence[MetricFamily]]] = []
        self.user_metrics = UserMetrics()
        self._workflows, self._handlers, self._queues = (BoundedLabelValues() for _ in range(3))
        self._executions_started = LabeledCounter(
            "runnel_executions_started", "Executions that have started.", "workflow"
        )
        self._executions_finished = LabeledCounter(
            "runnel_executions_finished", "Executions that have finished.", "workflow", "state"
        )
        self._execution_duration = Histogram(
            "runnel_execution_duration_seconds",
            "Duration of executions, from start to end.",
            "workflow",
        )
        self._nodes_settled = LabeledCounter(
            "runnel_nodes_settled", "Nodes and items of maps that have settled.", "handler", "state"
        )
        self._retries = LabeledCounter(
            "runnel_retries", "Failed attempts that are retried.", "handler"
        )
        self._losses = LabeledCounter(
            "runnel_losses", "Attempts lost because their worker died.", "handler"
        )
        self._sla_misses = LabeledCounter(
            "runnel_sla_misses", "Executions that took longer than their sla_seconds.", "workflow"
        )
        self._dead_letters = LabeledCounter(
            "runnel_dead_letters_written", "Dead letters written.", "queue"
        )
        self._tasks_unserved = LabeledCounter(
            "runnel_tasks_unserved",
            "Tasks that failed because no worker serves their queue.",
            "queue",
        )
        self._tasks_ended = LabeledCounter(
            "runnel_tasks_ended", "Attempts whose code has ended.", "handler", "outcome"
        )
        self._task_duration = Histogram(
            "runnel_task_duration_seconds", "Duration of the code of attempts.", "handler"
        )
        self._handoff_duration = Histogram(
            "runnel_handoff_seconds",
            "Time from the commit that issued a task to the start of its code.",
        )
        self._events = LabeledCounter("runnel_events", "Telemetry events, by name.", "event")
        self._event_counters = {
            name: LabeledCounter(*description) for name, description in _EVENT_COUNTERS.items()
        }
        self._commits_refused = LabeledCounter(
            "runnel_commits_refused",
            "Refused commits to partitions that another orchestrator had taken over.",
        )
        self._archive_lag = LabeledCounter(
            "runnel_archive_lag_seconds",
            "Largest delay of the archive among the partitions that this process owns.",
            kind="gauge",
        )

    def event(self, name: str, **fields: object) -> None:
        if name == names.HANDLER_METRIC:
            self.user_metrics.record(fields)
            return
        self._events.add(name)
        counter = self._event_counters.get(name)
        if counter is not None:
            counter.add()
        elif name == names.LETTER_WRITTEN:
            self._dead_letters.add(self._get_queue_label(fields))
        elif name == names.TASKS_UNSERVED:
            self._tasks_unserved.add(
                self._get_queue_label(fields), n=_to_number(fields.get("rejected"))
            )
        elif name == names.PARTITION_LOST and fields.get("is_fenced"):
            self._commits_refused.add()

    def committed(
        self,
        execution_id: str,
        at: float,
        events: Sequence[AnyEvent],
        header: ExecutionHeader | None,
        graph: Graph | None = None,
    ) -> None:
        if header is not None and header.state in FINAL_EXECUTION_STATES:
            self._record_finished(header)
        if graph is None:
            return
        settled = self._nodes_settled.values
        for event in events:
            kind = type(event)
            state = _SETTLED_STATES.get(kind)
            if state is not None:
                key = (self._get_handler_label(graph, event), state)
                settled[key] = settled.get(key, 0.0) + 1
            elif kind in _COUNTED_EVENTS:
                self._count(graph, event)

    def started(self, task: TaskMessage, worker: str, at: float) -> None:
        self._handoff_duration.add(at - task.issued_at)

    def ended(self, task: TaskMessage, outcome: str, took_s: float) -> None:
        key = (self._handlers(task.handler), outcome)
        ended = self._tasks_ended.values
        ended[key] = ended.get(key, 0.0) + 1
        self._task_duration.add(took_s, key[:1])

    def measured(self, name: str, value: float) -> None:
        if name == names.ARCHIVE_LAG_S:
            self._archive_lag.set(value=value)

    def include(self, source: Callable[[], Sequence[MetricFamily]]) -> None:
        """Adds the metrics of another part of the process, which `source` returns."""
        self._extra_sources.append(source)

    def collect_families(self) -> list[MetricFamily]:
        extra = [family for families in self._extra_sources for family in families()]
        own = [
            metric.build_family()
            for metric in vars(self).values()
            if isinstance(metric, LabeledCounter | Histogram)
        ]
        by_event = [counter.build_family() for counter in self._event_counters.values()]
        return [*own, *by_event, *extra, *self.user_metrics.collect_families()]

    def _count(self, graph: Graph, event: AnyEvent) -> None:
        if isinstance(event, e.ExecutionStarted):
            self._executions_started.add(self._workflows(graph.workflow.name))
        elif isinstance(event, e.RetryPlanned):
            self._retries.add(self._get_handler_label(graph, event))
        elif isinstance(event, e.TaskWasLost):
            self._losses.add(self._get_handler_label(graph, event))
        elif isinstance(event, e.SlaMissed):
            self._sla_misses.add(self._workflows(graph.workflow.name))

    def _record_finished(self, header: ExecutionHeader) -> None:
        workflow = self._workflows(header.workflow)
        self._executions_finished.add(workflow, header.state.lower())
        started_at = header.started_at or header.created_at
        duration_s = (header.finished_at or started_at) - started_at
        self._execution_duration.add(duration_s, (workflow,))

    def _get_handler_label(self, graph: Graph, event: Any) -> str:
        return self._handlers(graph.nodes[graph.index[event.node]].node.handler)

    def _get_queue_label(self, fields: Mapping[str, object]) -> str:
        return self._queues(str(fields.get("queue", "")).removeprefix("tasks:"))


_EVENT_COUNTERS = {
    names.PARTITION_TAKEN_OVER: (
        "runnel_takeovers",
        "Partitions taken over from an orchestrator that no longer renewed its lease.",
    ),
    names.REPORT_REFUSED: (
        "runnel_reports_refused",
        "Reports refused because the attempt was no longer assigned to the worker.",
    ),
    names.COMMAND_POISONED: (
        "runnel_commands_poisoned",
        "Commands that raised an error and were quarantined. Each of them shows a bug.",
    ),
    names.MESSAGE_UNREADABLE: (
        "runnel_messages_unreadable",
        "Messages that could not be decoded and were quarantined.",
    ),
    names.EXECUTION_REPAIRED: (
        "runnel_executions_repaired",
        "Stuck executions that the watchdog repaired. Each of them shows a bug.",
    ),
    names.WORKER_DEAD: (
        "runnel_workers_lost",
        "Workers that died: they stopped sending heartbeats.",
    ),
    names.STORE_FAILED: ("runnel_store_failures", "Failed calls to a store."),
    names.ARCHIVE_SET_ASIDE: (
        "runnel_archive_set_aside",
        "Entries that PostgreSQL refused and that were quarantined.",
    ),
    names.ARCHIVE_GAP: ("runnel_archive_gaps", "Checks that found commits missing in the archive."),
}


def _to_number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 1.0
