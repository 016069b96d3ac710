"""Telemetry inside one process: log lines, and word to whoever watches an execution."""

from collections.abc import Callable, Sequence
from weakref import WeakValueDictionary

import msgspec

from runnel.core.effects import TaskMessage
from runnel.core.events import AnyEvent
from runnel.core.graph import Graph
from runnel.core.ids import TaskToken
from runnel.core.states import FINAL_EXECUTION_STATES
from runnel.notify.waiter import Completion
from runnel.ports import telemetry as names
from runnel.ports.store import ExecutionHeader
from runnel.ports.telemetry import Telemetry
from runnel.telemetry.logs import LogTelemetry

# Around these, somebody else may end the executions that are waited for here, or have ended them.
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


class EventBus:
    """Implements the Telemetry port. Watchers are called on the loop and must not block."""

    def __init__(self) -> None:
        self._logs = LogTelemetry()
        self._sinks: list[Telemetry] = []
        self._watchers: list[Watcher] = []
        # Weak: an entry is gone when nobody waits for that execution any more.
        self._completions: WeakValueDictionary[str, Completion] = WeakValueDictionary()
        self.on_awaited: Callable[[], None] | None = None
        """Called when somebody waits for one more, by whoever tells of what others run: then each
        ending that is awaited will be told here, behind all that happened before it."""

    def event(self, name: str, **fields: object) -> None:
        if name in _RECHECK_EVENTS:
            for ending in self._completions.values():
                ending.notify()
        self._logs.event(name, **fields)
        for other in self._sinks:
            other.event(name, **fields)

    def committed(
        self,
        execution_id: str,
        at: float,
        events: Sequence[AnyEvent],
        header: ExecutionHeader | None,
        graph: Graph | None = None,
    ) -> None:
        if header is not None and header.state in FINAL_EXECUTION_STATES:
            ending = self._completions.get(execution_id)
            if ending is not None:
                ending.header = header
                ending.notify()
        for watcher in self._watchers:
            watcher(CommittedEvents(execution_id, at, events))
        for other in self._sinks:
            other.committed(execution_id, at, events, header, graph)

    def started(self, task: TaskMessage, worker: str, at: float) -> None:
        for watcher in self._watchers:
            watcher(StartedTask(task.token, worker, at))
        for other in self._sinks:
            other.started(task, worker, at)

    def ended(self, task: TaskMessage, outcome: str, took_s: float) -> None:
        for other in self._sinks:
            other.ended(task, outcome, took_s)

    def measured(self, name: str, value: float) -> None:
        for other in self._sinks:
            other.measured(name, value)

    def add_sink(self, telemetry: Telemetry) -> None:
        """It is told all that happens here, from now on."""
        self._sinks.append(telemetry)

    def list_awaited(self) -> list[str]:
        """The executions whose ending somebody waits for."""
        return list(self._completions)

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Returns the function that ends the watch."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def get_completion(self, execution_id: str) -> Completion:
        """Gets the header when this process ends the execution; news when it may not hear of it."""
        ending = self._completions.get(execution_id)
        if ending is None:
            ending = self._completions[execution_id] = Completion()
            if self.on_awaited is not None:
                self.on_awaited()
        return ending
