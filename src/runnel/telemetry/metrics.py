"""The Telemetry port as numbers for Prometheus: what this process decided, ran and was told."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runnel.core import events as e
from runnel.core.effects import Task
from runnel.core.events import AnyEvent
from runnel.core.graph import Graph
from runnel.core.states import EXECUTION_FINAL
from runnel.ports import telemetry as names
from runnel.ports.store import Header
from runnel.telemetry.families import BoundedNames, Family, Spread, Tally
from runnel.telemetry.user_metrics import UserMetrics

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
