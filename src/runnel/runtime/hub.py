"""Telemetry inside one process: log lines, and word to whoever watches an execution."""

from collections.abc import Callable, Sequence
from weakref import WeakValueDictionary

import msgspec

from runnel.core.events import AnyEvent
from runnel.core.ids import Token
from runnel.core.states import EXECUTION_FINAL
from runnel.endings import Ending
from runnel.ports import telemetry as names
from runnel.ports.store import Header
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
        self._watchers: list[Watcher] = []
        # Weak: an entry is gone when nobody waits for that execution any more.
        self._endings: WeakValueDictionary[str, Ending] = WeakValueDictionary()
        self.on_awaited: Callable[[], None] | None = None
        """Called when somebody waits for one more, by whoever tells of what others run: then each
        ending that is awaited will be told here, behind all that happened before it."""

    def event(self, name: str, **fields: object) -> None:
        if name in _TIMES_TO_LOOK:
            for ending in self._endings.values():
                ending.news.set()
        self._logs.event(name, **fields)

    def committed(
        self, execution_id: str, at: float, events: Sequence[AnyEvent], header: Header | None
    ) -> None:
        if header is not None and header.state in EXECUTION_FINAL:
            ending = self._endings.get(execution_id)
            if ending is not None:
                ending.header = header
                ending.news.set()
        for watcher in self._watchers:
            watcher(Happened(execution_id, at, events))

    def started(self, token: Token, worker: str, at: float) -> None:
        for watcher in self._watchers:
            watcher(Started(token, worker, at))

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
