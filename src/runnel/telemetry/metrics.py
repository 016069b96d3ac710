"""The Telemetry port as numbers for Prometheus: what this process decided, ran and was told."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, Literal, TypeAlias, cast

import msgspec

from runnel.core import events as e
from runnel.core.effects import Task
from runnel.core.events import AnyEvent
from runnel.core.graph import Graph
from runnel.core.states import EXECUTION_FINAL
from runnel.ports import telemetry as names
from runnel.ports.store import Header

# Metrics as numbers: counted in plain dictionaries, so that the hot path pays next to nothing.
#
# With two labels a counter of `prometheus_client` took 1.9 to 2.6 µs, one of these 0.25. A
# diamond, which has 14 of them, takes 10 to 11 µs longer with metrics than the 440 or so that it
# takes anyway (embedded, SQLite, 64 slots, 2026-11). All is counted and read on one event loop:
# nothing is locked.

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Key: TypeAlias = tuple[str, ...]

NAMES_MAX = 200
OTHER = "other"
SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)
"""Bounds of buckets: from a hand-over inside one process to a task that takes minutes."""


class Sample(msgspec.Struct, frozen=True, gc=False):
    suffix: str
    labels: Mapping[str, str]
    value: float


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """All numbers of one name, as they are read."""

    name: str
    kind: Kind
    about: str
    labels: Key = ()
    samples: Sequence[Sample] = ()


class BoundedNames:
    """The first so many names are themselves, all later ones are `other`: labels stay few."""

    def __init__(self, limit: int = NAMES_MAX) -> None:
        self._limit = limit
        self._known: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        found = self._known.get(name)
        if found is None:
            if len(self._known) >= self._limit:
                return OTHER
            found = self._known[name] = name or "none"
        return found


class Tally:
    """Counts by label values; `kind` gauge when they may also fall."""

    def __init__(self, name: str, about: str, *labels: str, kind: Kind = "counter") -> None:
        self.name = name
        self.about = about
        self.values: dict[Key, float] = {}
        self._labels = labels
        self._kind: Kind = kind
        if not labels and kind == "counter":
            self.values[()] = 0.0

    def add(self, *key: str, n: float = 1.0) -> None:
        self.values[key] = self.values.get(key, 0.0) + n

    def set(self, *key: str, value: float) -> None:
        self.values[key] = value

    def family(self) -> Family:
        samples = [
            Sample("", dict(zip(self._labels, key, strict=True)), value)
            for key, value in self.values.items()
        ]
        return Family(
            name=self.name,
            kind=self._kind,
            about=self.about,
            labels=self._labels,
            samples=samples,
        )


class Spread:
    """How many seconds things took, in buckets, by one label or none."""

    def __init__(self, name: str, about: str, *labels: str) -> None:
        self.name = name
        self.about = about
        self.buckets: dict[Key, list[float]] = {}
        self._labels = labels

    def add(self, seconds: float, key: Key = ()) -> None:
        """Less than nothing is nothing: the clocks of two machines may have measured it."""
        found = self.buckets.get(key)
        if found is None:
            # One for each bound, one for what is above all of them, and the sum.
            found = self.buckets[key] = [0.0] * (len(SECONDS) + 2)
        found[bisect_left(SECONDS, seconds)] += 1
        if seconds > 0:
            found[-1] += seconds

    def family(self) -> Family:
        samples = [
            sample
            for key, found in self.buckets.items()
            for sample in spread_samples(found, dict(zip(self._labels, key, strict=True)))
        ]
        return Family(
            name=self.name,
            kind="histogram",
            about=self.about,
            labels=self._labels,
            samples=samples,
        )


def spread_samples(found: Sequence[float], labels: Mapping[str, str]) -> Iterator[Sample]:
    """Buckets count all that is below their bound, also what other buckets have counted."""
    below = 0.0
    for bound, count in zip((*SECONDS, inf), found[:-1], strict=True):
        below += count
        text = "+Inf" if bound == inf else f"{bound:g}"
        yield Sample("_bucket", {**labels, "le": text}, below)
    yield Sample("_count", labels, below)
    yield Sample("_sum", labels, found[-1])


def gauge(
    name: str, about: str, label: str | None = None, values: Mapping[str, float] | None = None
) -> Family:
    """One number for each value of the label; without a label, the one of the key ''."""
    samples = [
        Sample("", {} if label is None else {label: key}, value)
        for key, value in (values or {}).items()
    ]
    labels = () if label is None else (label,)
    return Family(name=name, kind="gauge", about=about, labels=labels, samples=samples)


# What user code measures by `ctx.metrics`, kept within bounds whatever it names.

USER_NAMES_MAX = 200
SERIES_MAX = 2_000
LABEL_CHARS_MAX = 100

_UNFIT = re.compile(r"[^a-zA-Z0-9_]+")
_KINDS: Mapping[str, Kind] = {"count": "counter", "gauge": "gauge", "timing": "histogram"}
_SUFFIXES = {"count": "", "gauge": "", "timing": "_seconds"}


class UserMetrics:
    """`runnel_user_<name>`, with the labels that were given and the handler that measured.

    So many names and so many combinations of labels at most: what is beyond that is counted, and
    not kept.
    """

    def __init__(self) -> None:
        self._families: dict[str, tuple[Kind, dict[Key, list[float]]]] = {}
        self._series = 0
        self._dropped = Tally(
            "runnel_user_metrics_dropped", "Measurements of user code over the bounds."
        )

    def measure(self, fields: Mapping[str, object]) -> None:
        """As the worker tells of it: metric, kind, value, labels, handler."""
        given, kind = str(fields.get("kind")), _KINDS.get(str(fields.get("kind")))
        value = fields.get("value")
        if kind is None or not isinstance(value, int | float):
            self._dropped.add()
            return
        name = f"runnel_user_{_fit(str(fields.get('metric')))}{_SUFFIXES[given]}"
        labels = {
            "handler": fields.get("handler", ""),
            **cast("dict[str, object]", fields["labels"]),
        }
        found = self._found(name, kind, _key(labels))
        if found is None:
            self._dropped.add()
        elif kind == "histogram":
            _spread(found, float(value))
        else:
            found[0] = float(value) if kind == "gauge" else found[0] + float(value)

    def families(self) -> list[Family]:
        return [self._dropped.family(), *(self._family(name) for name in self._families)]

    def _found(self, name: str, kind: Kind, key: Key) -> list[float] | None:
        """None for what is too much, and for a name that is of another kind already."""
        family = self._families.get(name)
        if family is None:
            if len(self._families) >= USER_NAMES_MAX:
                return None
            family = self._families[name] = (kind, {})
        known, series = family
        if known != kind:
            return None
        found = series.get(key)
        if found is None and self._series < SERIES_MAX:
            self._series += 1
            found = series[key] = [0.0]
        return found

    def _family(self, name: str) -> Family:
        kind, series = self._families[name]
        samples: list[Sample] = []
        for key, found in series.items():
            labels = dict(zip(key[::2], key[1::2], strict=True))
            if kind == "histogram":
                samples += spread_samples(found, labels)
            else:
                samples.append(Sample("", labels, found[0]))
        return Family(name=name, kind=kind, about="Measured by user code.", samples=samples)


def _spread(found: list[float], seconds: float) -> None:
    spread = Spread("", "")
    if len(found) > 1:
        spread.buckets[()] = found
    spread.add(seconds)
    found[:] = spread.buckets[()]


def _key(labels: Mapping[str, object]) -> Key:
    """Names and values in turn, by name."""
    pairs = sorted((_fit(name), str(value)[:LABEL_CHARS_MAX]) for name, value in labels.items())
    return tuple(word for pair in pairs for word in pair)


def _fit(name: str) -> str:
    fitting = _UNFIT.sub("_", name)[:LABEL_CHARS_MAX]
    return f"_{fitting}" if not fitting or fitting[0].isdigit() else fitting


_SETTLED: Mapping[type, str] = {
    e.NodeCompleted: "completed",
    e.NodeFailed: "failed",
    e.NodeSkipped: "skipped",
    e.NodeCancelled: "cancelled",
}
_COUNTED = frozenset({e.ExecutionStarted, e.RetryPlanned, e.TaskWasLost, e.SlaMissed})


class Metrics:
    """Implements the Telemetry port; `families` are read when somebody asks."""

    def __init__(self) -> None:
        self._included: list[Callable[[], Sequence[Family]]] = []
        self.users = UserMetrics()
        self._workflows, self._handlers, self._queues = (BoundedNames() for _ in range(3))
        self._begun = Tally("runnel_executions_started", "Executions that have begun.", "workflow")
        self._finished = Tally(
            "runnel_executions_finished", "Executions that are final.", "workflow", "state"
        )
        self._lasted = Spread(
            "runnel_execution_duration_seconds",
            "From the start of an execution to its end.",
            "workflow",
        )
        self._settled = Tally(
            "runnel_nodes_settled", "Nodes, and items of maps, that are final.", "handler", "state"
        )
        self._retries = Tally(
            "runnel_retries", "Attempts that failed and are tried again.", "handler"
        )
        self._losses = Tally(
            "runnel_losses", "Attempts that were lost with their worker.", "handler"
        )
        self._sla = Tally(
            "runnel_sla_misses", "Executions that took longer than their sla_seconds.", "workflow"
        )
        self._letters = Tally("runnel_dead_letters_written", "Dead letters.", "queue")
        self._unserved = Tally(
            "runnel_tasks_unserved", "Tasks that failed because no worker took them.", "queue"
        )
        self._ended = Tally(
            "runnel_tasks_ended", "Attempts whose code is over.", "handler", "outcome"
        )
        self._took = Spread(
            "runnel_task_duration_seconds", "How long the code of an attempt ran.", "handler"
        )
        self._handed_over = Spread(
            "runnel_handoff_seconds",
            "From the commit that issued a task, because its parents had settled, to its start.",
        )
        self._events = Tally("runnel_events", "What is told in the log, by name.", "event")
        self._counted = {name: Tally(*words) for name, words in _BY_EVENT.items()}
        self._refused = Tally(
            "runnel_commits_refused", "Partitions lost because another orchestrator has them."
        )
        self._lag = Tally(
            "runnel_archive_lag_seconds",
            "How far the archive is behind, of the worst partition that this process owns.",
            kind="gauge",
        )

    def event(self, name: str, **fields: object) -> None:
        if name == names.HANDLER_METRIC:
            self.users.measure(fields)
            return
        self._events.add(name)
        counted = self._counted.get(name)
        if counted is not None:
            counted.add()
        elif name == names.LETTER_WRITTEN:
            self._letters.add(self._queue(fields))
        elif name == names.TASKS_UNSERVED:
            self._unserved.add(self._queue(fields), n=_number(fields.get("rejected")))
        elif name == names.PARTITION_LOST and fields.get("is_fenced"):
            self._refused.add()

    def committed(
        self,
        execution_id: str,
        at: float,
        events: Sequence[AnyEvent],
        header: Header | None,
        graph: Graph | None = None,
    ) -> None:
        if header is not None and header.state in EXECUTION_FINAL:
            self._finish(header)
        if graph is None:
            return
        settled = self._settled.values
        for event in events:
            kind = type(event)
            state = _SETTLED.get(kind)
            if state is not None:
                key = (self._handler(graph, event), state)
                settled[key] = settled.get(key, 0.0) + 1
            elif kind in _COUNTED:
                self._count(graph, event)

    def started(self, task: Task, worker: str, at: float) -> None:
        self._handed_over.add(at - task.issued_at)

    def ended(self, task: Task, outcome: str, took_s: float) -> None:
        key = (self._handlers(task.handler), outcome)
        ended = self._ended.values
        ended[key] = ended.get(key, 0.0) + 1
        self._took.add(took_s, key[:1])

    def measured(self, name: str, value: float) -> None:
        if name == names.ARCHIVE_LAG_S:
            self._lag.set(value=value)

    def include(self, families: Callable[[], Sequence[Family]]) -> None:
        """What another part of the process counts by itself."""
        self._included.append(families)

    def families(self) -> list[Family]:
        others = [family for families in self._included for family in families()]
        own = [each.family() for each in vars(self).values() if isinstance(each, Tally | Spread)]
        counted = [each.family() for each in self._counted.values()]
        return [*own, *counted, *others, *self.users.families()]

    def _count(self, graph: Graph, event: AnyEvent) -> None:
        if isinstance(event, e.ExecutionStarted):
            self._begun.add(self._workflows(graph.workflow.name))
        elif isinstance(event, e.RetryPlanned):
            self._retries.add(self._handler(graph, event))
        elif isinstance(event, e.TaskWasLost):
            self._losses.add(self._handler(graph, event))
        elif isinstance(event, e.SlaMissed):
            self._sla.add(self._workflows(graph.workflow.name))

    def _finish(self, header: Header) -> None:
        workflow = self._workflows(header.workflow)
        self._finished.add(workflow, header.state.lower())
        began = header.started_at or header.created_at
        self._lasted.add((header.finished_at or began) - began, (workflow,))

    def _handler(self, graph: Graph, event: Any) -> str:
        return self._handlers(graph.nodes[graph.index[event.node]].node.handler)

    def _queue(self, fields: Mapping[str, object]) -> str:
        return self._queues(str(fields.get("queue", "")).removeprefix("tasks:"))


_BY_EVENT = {
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


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 1.0
