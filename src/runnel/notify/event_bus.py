"""Telemetry of one process: logs events, and notifies code that follows executions."""

from collections.abc import Callable, Sequence
from weakref import WeakValueDictionary

import msgspec

from runnel.core.effects import TaskMessage
from runnel.core.events import AnyEvent, find_end
from runnel.core.graph import Graph
from runnel.core.ids import TaskToken
from runnel.core.states import FINAL_EXECUTION_STATES
from runnel.notify.waiter import Completion
from runnel.ports import telemetry as names
from runnel.ports.store import ExecutionHeader
from runnel.ports.telemetry import FanOutTelemetry
from runnel.telemetry.logs import LogTelemetry

# After these events, another process may end the executions that callers in this process wait for.
_RECHECK_EVENTS = frozenset(
    {names.PARTITION_ACQUIRED, names.PARTITION_LOST, names.PARTITION_RELEASED}
)


class CommittedEvents(msgspec.Struct, frozen=True):
    execution_id: str
    at: float
    events: Sequence[AnyEvent]


class StartedTask(msgspec.Struct, frozen=True):
    token: TaskToken
    worker: str
    at: float


Watcher = Callable[[CommittedEvents | StartedTask], None]


class EventBus(FanOutTelemetry):
    """Logs events, and fans telemetry out to sinks, watchers and waiters.

    Watchers are called on the event loop and must not block.
    """

    def __init__(self) -> None:
        super().__init__()
        self._logs = LogTelemetry()
        self._logs_executions = False
        self._watchers: list[Watcher] = []
        # An entry disappears when no caller waits for its execution any more, because the values
        # are weak references.
        self._completions: WeakValueDictionary[str, Completion] = WeakValueDictionary()

    def log_executions(self) -> None:
        """Also logs the ends of executions and, at level debug, their nodes and tasks.

        A command that shows the progress of its executions does not need these lines.
        """
        self._logs_executions = True

    def event(self, name: str, **fields: object) -> None:
        if name in _RECHECK_EVENTS:
            for completion in self._completions.values():
                completion.notify()
        self._logs.event(name, **fields)
        super().event(name, **fields)

    def committed(
        self,
        execution_id: str,
        at: float,
        events: Sequence[AnyEvent],
        header: ExecutionHeader | None,
        graph: Graph | None = None,
    ) -> None:
        if header is not None and header.state in FINAL_EXECUTION_STATES:
            completion = self._completions.get(execution_id)
            if completion is not None:
                completion.header = header
                completion.end = find_end(events)
                completion.notify()
        for watcher in self._watchers:
            watcher(CommittedEvents(execution_id, at, events))
        if self._logs_executions:
            self._logs.committed(execution_id, at, events, header, graph)
        super().committed(execution_id, at, events, header, graph)

    def started(self, task: TaskMessage, worker: str, at: float) -> None:
        for watcher in self._watchers:
            watcher(StartedTask(task.token, worker, at))
        if self._logs_executions:
            self._logs.started(task, worker, at)
        super().started(task, worker, at)

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Calls `watcher` with each notification; returns the function that ends the watch."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def get_completion(self, execution_id: str) -> Completion:
        """Returns the completion that gets the header when this process ends the execution.

        The completion is notified without a header when another process may have ended the
        execution.
        """
        completion = self._completions.get(execution_id)
        if completion is None:
            completion = self._completions[execution_id] = Completion()
        return completion
