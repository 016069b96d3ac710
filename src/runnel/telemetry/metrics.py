"""The Telemetry port as numbers for Prometheus: what this process decided, ran and was told."""

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

# Metrics are counted in plain dictionaries, so that the hot path pays next to nothing.
# With two labels a counter of `prometheus_client` took 1.9 to 2.6 µs, one of these 0.25. A
# diamond, which has 14 of them, takes 10 to 11 µs longer with metrics than the 440 or so that it
# takes anyway (embedded, SQLite, 64 slots, 2026-11). All is counted and read on one event loop:
# nothing is locked.

MetricKind: TypeAlias = Literal["counter", "gauge", "histogram"]
LabelKey: TypeAlias = tuple[str, ...]

LABEL_VALUES_MAX = 200
OTHER_LABEL = "other"
DURATION_BUCKETS_S = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)
"""Bounds of buckets: from a hand-over inside one process to a task that takes minutes."""


class Sample(msgspec.Struct, frozen=True, gc=False):
    suffix: str
    labels: Mapping[str, str]
    value: float


class MetricFamily(msgspec.Struct, frozen=True, kw_only=True):
    """All numbers of one name, as they are read."""

    name: str
    kind: MetricKind
    about: str
    labels: LabelKey = ()
    samples: Sequence[Sample] = ()


class BoundedLabelValues:
    """The first so many names are themselves, all later ones are `other`: labels stay few."""

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
    """Counts by label values; `kind` gauge when they may also fall."""

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
    """How many seconds things took, in buckets, by one label or none."""

    def __init__(self, name: str, about: str, *labels: str) -> None:
        self.name = name
        self.about = about
        self.buckets: dict[LabelKey, list[float]] = {}
        self._labels = labels

    def add(self, seconds: float, key: LabelKey = ()) -> None:
        """Less than nothing is nothing: the clocks of two machines may have measured it."""
        buckets = self.buckets.get(key)
        if buckets is None:
            # One for each bound, one for what is above all of them, and the sum.
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
    buckets: Sequence[float], labels: Mapping[str, str]
) -> Iterator[Sample]:
    """Buckets count all that is below their bound, also what other buckets have counted."""
    below = 0.0
    for bound, count in zip((*DURATION_BUCKETS_S, inf), buckets[:-1], strict=True):
        below += count
        text = "+Inf" if bound == inf else f"{bound:g}"
        yield Sample("_bucket", {**labels, "le": text}, below)
    yield Sample("_count", labels, below)
    yield Sample("_sum", labels, buckets[-1])


def build_gauge(
    name: str, about: str, label: str | None = None, values: Mapping[str, float] | None = None
) -> MetricFamily:
    """One number for each value of the label; without a label, the one of the key ''."""
    samples = [
        Sample("", {} if label is None else {label: key}, value)
        for key, value in (values or {}).items()
    ]
    labels = () if label is None else (label,)
    return MetricFamily(name=name, kind="gauge", about=about, labels=labels, samples=samples)


# Metrics of user code, by `ctx.metrics`: bounded, whatever names it uses.

USER_METRICS_MAX = 200
USER_SERIES_MAX = 2_000
LABEL_CHARS_MAX = 100

_INVALID_CHARS = re.compile(r"[^a-zA-Z0-9_]+")
_USER_METRIC_KINDS: Mapping[str, MetricKind] = {
    "count": "counter",
    "gauge": "gauge",
    "timing": "histogram",
}
_USER_METRIC_SUFFIXES = {"count": "", "gauge": "", "timing": "_seconds"}


class UserMetrics:
    """`runnel_user_<name>`, with the labels that were given and the handler that measured.

    So many names and so many combinations of labels at most: what is beyond that is counted, and
    not kept.
    """

    def __init__(self) -> None:
        self._families: dict[str, tuple[MetricKind, dict[LabelKey, list[float]]]] = {}
        self._series_count = 0
        self._dropped = LabeledCounter(
            "runnel_user_metrics_dropped", "Measurements of user code over the bounds."
        )

    def record(self, fields: Mapping[str, object]) -> None:
        """As the worker tells of it: metric, kind, value, labels, handler."""
        user_kind = str(fields.get("kind"))
        kind = _USER_METRIC_KINDS.get(user_kind)
        value = fields.get("value")
        if kind is None or not isinstance(value, int | float):
            self._dropped.add()
            return
        metric = _sanitize_name(str(fields.get("metric")))
        name = f"runnel_user_{metric}{_USER_METRIC_SUFFIXES[user_kind]}"
        labels = {
            "handler": fields.get("handler", ""),
            **cast("dict[str, object]", fields["labels"]),
        }
        series = self._get_series(name, kind, _build_label_key(labels))
        if series is None:
            self._dropped.add()
        elif kind == "histogram":
            _observe(series, float(value))
        else:
            series[0] = float(value) if kind == "gauge" else series[0] + float(value)

    def collect_families(self) -> list[MetricFamily]:
        return [
            self._dropped.build_family(),
            *(self._build_family(name) for name in self._families),
        ]

    def _get_series(self, name: str, kind: MetricKind, key: LabelKey) -> list[float] | None:
        """None for what is too much, and for a name that is of another kind already."""
        family = self._families.get(name)
        if family is None:
            if len(self._families) >= USER_METRICS_MAX:
                return None
            family = self._families[name] = (kind, {})
        known, series = family
        if known != kind:
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
            if kind == "histogram":
                samples += build_histogram_samples(values, labels)
            else:
                samples.append(Sample("", labels, values[0]))
        return MetricFamily(name=name, kind=kind, about="Measured by user code.", samples=samples)


def _observe(buckets: list[float], seconds: float) -> None:
    spread = Histogram("", "")
    if len(buckets) > 1:
        spread.buckets[()] = buckets
    spread.add(seconds)
    buckets[:] = spread.buckets[()]


def _build_label_key(labels: Mapping[str, object]) -> LabelKey:
    """Names and values in turn, by name."""
    pairs = sorted(
        (_sanitize_name(name), str(value)[:LABEL_CHARS_MAX]) for name, value in labels.items()
    )
    return tuple(word for pair in pairs for word in pair)


def _sanitize_name(name: str) -> str:
    fitting = _INVALID_CHARS.sub("_", name)[:LABEL_CHARS_MAX]
    return f"_{fitting}" if not fitting or fitting[0].isdigit() else fitting


_SETTLED_STATES: Mapping[type, str] = {
    e.NodeCompleted: "completed",
    e.NodeFailed: "failed",
    e.NodeSkipped: "skipped",
    e.NodeCancelled: "cancelled",
}
_COUNTED_EVENTS = frozenset({e.ExecutionStarted, e.RetryPlanned, e.TaskWasLost, e.SlaMissed})


class MetricsTelemetry:
    """Implements the Telemetry port; `collect_families` reads the numbers."""

    def __init__(self) -> None:
        self._extra_sources: list[Callable[[], Sequence[MetricFamily]]] = []
        self.user_metrics = UserMetrics()
        self._workflows, self._handlers, self._queues = (BoundedLabelValues() for _ in range(3))
        self._executions_started = LabeledCounter(
            "runnel_executions_started", "Executions that have begun.", "workflow"
        )
        self._executions_finished = LabeledCounter(
            "runnel_executions_finished", "Executions that are final.", "workflow", "state"
        )
        self._execution_duration = Histogram(
            "runnel_execution_duration_seconds",
            "From the start of an execution to its end.",
            "workflow",
        )
        self._nodes_settled = LabeledCounter(
            "runnel_nodes_settled", "Nodes, and items of maps, that are final.", "handler", "state"
        )
        self._retries = LabeledCounter(
            "runnel_retries", "Attempts that failed and are tried again.", "handler"
        )
        self._losses = LabeledCounter(
            "runnel_losses", "Attempts that were lost with their worker.", "handler"
        )
        self._sla_misses = LabeledCounter(
            "runnel_sla_misses", "Executions that took longer than their sla_seconds.", "workflow"
        )
        self._dead_letters = LabeledCounter("runnel_dead_letters_written", "Dead letters.", "queue")
        self._tasks_unserved = LabeledCounter(
            "runnel_tasks_unserved", "Tasks that failed because no worker took them.", "queue"
        )
        self._tasks_ended = LabeledCounter(
            "runnel_tasks_ended", "Attempts whose code is over.", "handler", "outcome"
        )
        self._task_duration = Histogram(
            "runnel_task_duration_seconds", "How long the code of an attempt ran.", "handler"
        )
        self._handoff_duration = Histogram(
            "runnel_handoff_seconds",
            "From the commit that issued a task, because its parents had settled, to its start.",
        )
        self._events = LabeledCounter("runnel_events", "What is told in the log, by name.", "event")
        self._event_counters = {
            name: LabeledCounter(*description) for name, description in _EVENT_COUNTERS.items()
        }
        self._commits_refused = LabeledCounter(
            "runnel_commits_refused", "Partitions lost because another orchestrator has them."
        )
        self._archive_lag = LabeledCounter(
            "runnel_archive_lag_seconds",
            "How far the archive is behind, of the worst partition that this process owns.",
            kind="gauge",
        )

    def event(self, name: str, **fields: object) -> None:
        if name == names.HANDLER_METRIC:
            self.user_metrics.record(fields)
            return
        self._events.add(name)
        counted = self._event_counters.get(name)
        if counted is not None:
            counted.add()
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
        """What another part of the process counts by itself."""
        self._extra_sources.append(source)

    def collect_families(self) -> list[MetricFamily]:
        extra = [family for families in self._extra_sources for family in families()]
        own = [
            metric.build_family()
            for metric in vars(self).values()
            if isinstance(metric, LabeledCounter | Histogram)
        ]
        counted = [counter.build_family() for counter in self._event_counters.values()]
        return [*own, *counted, *extra, *self.user_metrics.collect_families()]

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
        began = header.started_at or header.created_at
        self._execution_duration.add((header.finished_at or began) - began, (workflow,))

    def _get_handler_label(self, graph: Graph, event: Any) -> str:
        return self._handlers(graph.nodes[graph.index[event.node]].node.handler)

    def _get_queue_label(self, fields: Mapping[str, object]) -> str:
        return self._queues(str(fields.get("queue", "")).removeprefix("tasks:"))


_EVENT_COUNTERS = {
    names.PARTITION_TAKEN_OVER: (
        "runnel_takeovers",
        "Partitions that were taken over from an orchestrator that gave no sign of life.",
    ),
    names.REPORT_REFUSED: (
        "runnel_reports_refused",
        "Reports of attempts that were somebody else's by then.",
    ),
    names.COMMAND_POISONED: (
        "runnel_commands_poisoned",
        "Commands that could not be decided and were set aside: each is a bug.",
    ),
    names.MESSAGE_UNREADABLE: (
        "runnel_messages_unreadable",
        "Messages that could not be read and were set aside.",
    ),
    names.EXECUTION_REPAIRED: (
        "runnel_executions_repaired",
        "Executions that had nothing under way and were brought back to life: each is a bug.",
    ),
    names.WORKER_DEAD: ("runnel_workers_lost", "Workers that were found dead."),
    names.STORE_FAILED: ("runnel_store_failures", "Calls to a store that failed."),
    names.ARCHIVE_SET_ASIDE: (
        "runnel_archive_set_aside",
        "What PostgreSQL would not store and is kept aside.",
    ),
    names.ARCHIVE_GAP: ("runnel_archive_gaps", "Looks that found commits missing in the archive."),
}


def _to_number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 1.0
