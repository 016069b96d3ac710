"""The telemetry port: event names, the protocol, a no-op base class and a fan-out."""

from collections.abc import Sequence
from typing import Protocol

from runnel.core.effects import TaskMessage
from runnel.core.events import AnyEvent
from runnel.core.graph import Graph
from runnel.ports.store import ExecutionHeader

EXECUTION_STARTED = "execution.started"
EXECUTION_FINISHED = "execution.finished"
EXECUTION_FAILED = "execution.failed"
NODE_SETTLED = "node.settled"
SETTING_UNKNOWN = "setting.unknown"
STORE_OPENED = "store.opened"
PROCESS_STARTED = "process.started"
PROCESS_ENDED = "process.ended"
TASK_STARTED = "task.started"
TASK_LOST = "task.lost"
TASK_HANDED_BACK = "task.handed_back"
REPORT_REFUSED = "report.refused"
PARTITION_ACQUIRED = "partition.acquired"
PARTITION_TAKEN_OVER = "partition.taken_over"
PARTITION_LOST = "partition.lost"
PARTITION_RELEASED = "partition.released"
LETTER_WRITTEN = "letter.written"
COMMAND_POISONED = "command.poisoned"
MESSAGE_UNREADABLE = "message.unreadable"
THREAD_ABANDONED = "thread.abandoned"
WORKER_DRAINED = "worker.drained"
WORKER_DEAD = "worker.dead"
TASKS_UNSERVED = "tasks.unserved"
WORKERS_MISSING = "workers.missing"
EXECUTION_REPAIRED = "execution.repaired"
INBOX_STALE = "inbox.stale"
ORCHESTRATOR_DEAD = "orchestrator.dead"
STORE_FAILED = "store.failed"
SERVER_AWAITED = "server.awaited"
ARCHIVE_LATE = "archive.late"
ARCHIVE_CAUGHT_UP = "archive.caught_up"
ARCHIVE_SET_ASIDE = "archive.set_aside"
ARCHIVE_FENCED = "archive.fenced"
ARCHIVE_GAP = "archive.gap"
COMMAND_RESENT = "command.resent"
RETENTION_DELETED = "retention.deleted"
BLOBS_DELETED = "blobs.deleted"
SCHEDULE_FIRED = "schedule.fired"
SCHEDULE_SKIPPED = "schedule.skipped"
SCHEDULE_MISSED = "schedule.missed"
SCHEDULE_FAILED = "schedule.failed"
WEBHOOK_REFUSED = "webhook.refused"
SHUTDOWN_STARTED = "shutdown.started"
HANDLER_LOG = "handler.log"
HANDLER_METRIC = "handler.metric"

ARCHIVE_LAG_S = "archive.lag_s"


class Telemetry(Protocol):
    """Receives the engine's reports to operators. Logs and metrics implement this protocol."""

    def event(self, name: str, **fields: object) -> None:
        """Reports an event. `name` is one of the constants of this module."""

    def committed(
        self,
        execution_id: str,
        at: float,
        events: Sequence[AnyEvent],
        header: ExecutionHeader | None,
        graph: Graph | None = None,
    ) -> None:
        """Reports the events of one commit after the store has written the commit.

        `header` is set if the events ended the execution. `graph` is the execution's graph. `graph`
        is None for the events of a concurrency key, and if the graph can't be read.
        """

    def started(self, task: TaskMessage, worker: str, at: float) -> None:
        """Reports that a worker begins to run the code of a task."""

    def ended(self, task: TaskMessage, outcome: str, took_s: float) -> None:
        """Reports that the code of a task has ended.

        `outcome` is completed, failed, skipped, deferred or stopped.
        """

    def measured(self, name: str, value: float) -> None:
        """Reports the current value of a gauge.

        `name` is a constant of this module that ends in a unit.
        """


class NullTelemetry:
    """Implements the Telemetry port and does nothing.

    A subclass overrides the methods that it needs.
    """

    def event(self, name: str, **fields: object) -> None:
        pass

    def committed(
        self,
        execution_id: str,
        at: float,
        events: Sequence[AnyEvent],
        header: ExecutionHeader | None,
        graph: Graph | None = None,
    ) -> None:
        pass

    def started(self, task: TaskMessage, worker: str, at: float) -> None:
        pass

    def ended(self, task: TaskMessage, outcome: str, took_s: float) -> None:
        pass

    def measured(self, name: str, value: float) -> None:
        pass


class FanOutTelemetry:
    """Implements the Telemetry port: passes each call on to every sink, in order."""

    def __init__(self, *sinks: Telemetry) -> None:
        self._sinks = list(sinks)

    def add_sink(self, sink: Telemetry) -> None:
        """Passes every later call on to `sink` as well."""
        self._sinks.append(sink)

    def event(self, name: str, **fields: object) -> None:
        for sink in self._sinks:
            sink.event(name, **fields)

    def committed(
        self,
        execution_id: str,
        at: float,
        events: Sequence[AnyEvent],
        header: ExecutionHeader | None,
        graph: Graph | None = None,
    ) -> None:
        for sink in self._sinks:
            sink.committed(execution_id, at, events, header, graph)

    def started(self, task: TaskMessage, worker: str, at: float) -> None:
        for sink in self._sinks:
            sink.started(task, worker, at)

    def ended(self, task: TaskMessage, outcome: str, took_s: float) -> None:
        for sink in self._sinks:
            sink.ended(task, outcome, took_s)

    def measured(self, name: str, value: float) -> None:
        for sink in self._sinks:
            sink.measured(name, value)
