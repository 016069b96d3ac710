"""Telemetry inside one process: log lines, and word to whoever watches an execution."""

from collections.abc import Callable, Sequence
from weakref import WeakValueDictionary

import msgspec

from runnel.core.effects import Task
from runnel.core.events import AnyEvent
from runnel.core.graph import Graph
from runnel.core.ids import Token
from runnel.core.states import EXECUTION_FINAL
from runnel.notify.waiter import Ending
from runnel.ports import telemetry as names
from runnel.ports.store import Header
from runnel.ports.telemetry import Telemetry
from runnel.telemetry.logs import LogTelemetry

# Around these, somebody else may end the executions that are waited for here, or have ended them.
_TIMES_TO_LOOK = frozenset(
    {names.PARTITION_ACQUIRED, names.PARTITION_LOST, names.PARTITION_RELEASED}
)


class Happened(msgspec.Struct, frozen=True):
    execution_id: str
    at: float
    events: Sequence[AnyEvent]


class Started(msgspec.Struct, frozen=True):
    token: Token
    worker: str
    at: float


Watcher = Callable[[Happened | Started], None]


class Hub:
    """Implements the Telemetry port. Watchers are called on the loop and must not block."""

    def __init__(self) -> None:
        self._logs = LogTelemetry()
        self._counting: list[Telemetry] = []
        self._watchers: list[Watcher] = []
        # Weak: an entry is gone when nobody waits for that execution any more.
        self._endings: WeakValueDictionary[str, Ending] = WeakValueDictionary()
        self.on_awaited: Callable[[], None] | None = None
        """Called when somebody waits for one more, by whoever tells of what others run: then each
        ending that is awaited will be told here, behind all that happened before it."""

    def event(self, name: str, **fields: object) -> None:
        if name in _TIMES_TO_LOOK:
            for ending in self._endings.values():
                ending.tell()
        self._logs.event(name, **fields)
        for other in self._counting:
            other.event(name, **fields)

    def committed(
        self,
        execution_id: str,
        at: float,
        events: Sequence[AnyEvent],
        header: Header | None,
        graph: Graph | None = None,
    ) -> None:
        if header is not None and header.state in EXECUTION_FINAL:
            ending = self._endings.get(execution_id)
            if ending is not None:
                ending.header = header
                ending.tell()
        for watcher in self._watchers:
            watcher(Happened(execution_id, at, events))
        for other in self._counting:
            other.committed(execution_id, at, events, header, graph)

    def started(self, task: Task, worker: str, at: float) -> None:
        for watcher in self._watchers:
            watcher(Started(task.token, worker, at))
        for other in self._counting:
            other.started(task, worker, at)

    def ended(self, task: Task, outcome: str, took_s: float) -> None:
        for other in self._counting:
            other.ended(task, outcome, took_s)

    def measured(self, name: str, value: float) -> None:
        for other in self._counting:
            other.measured(name, value)

    def count_by(self, telemetry: Telemetry) -> None:
        """It is told all that happens here, from now on."""
        self._counting.append(telemetry)

    def awaited(self) -> list[str]:
        """The executions whose ending somebody waits for."""
        return list(self._endings)

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Returns the function that ends the watch."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def ending(self, execution_id: str) -> Ending:
        """Gets the header when this process ends the execution; news when it may not hear of it."""
        ending = self._endings.get(execution_id)
        if ending is None:
            ending = self._endings[execution_id] = Ending()
            if self.on_awaited is not None:
                self.on_awaited()
        return ending
