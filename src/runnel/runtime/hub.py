"""Telemetry inside one process: log lines, and word to whoever watches an execution."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from weakref import WeakValueDictionary

import msgspec

from runnel.core.events import AnyEvent, ExecutionFinished
from runnel.core.ids import Token
from runnel.ports import telemetry as names

_log = logging.getLogger("runnel")
_WARNINGS = frozenset(
    {
        names.COMMAND_POISONED,
        names.MESSAGE_UNREADABLE,
        names.PARTITION_LOST,
        names.STORE_FAILED,
        names.THREAD_ABANDONED,
        names.WORKER_DEAD,
    }
)
# After these, somebody else may end the executions that are waited for here.
_NEWS_ENDS = frozenset({names.PARTITION_LOST, names.PARTITION_RELEASED})


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
        self._watchers: list[Watcher] = []
        # Weak: an entry is gone when nobody waits for that execution any more.
        self._finished: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()

    def event(self, name: str, **fields: object) -> None:
        if name in _NEWS_ENDS:
            for event in self._finished.values():
                event.set()
        level = logging.WARNING if name in _WARNINGS else logging.DEBUG
        if _log.isEnabledFor(level):
            shown = " ".join(f"{key}={value}" for key, value in fields.items())
            _log.log(level, "%s %s", name, shown)

    def committed(self, execution_id: str, at: float, events: Sequence[AnyEvent]) -> None:
        if isinstance(events[-1], ExecutionFinished):
            event = self._finished.get(execution_id)
            if event is not None:
                event.set()
        for watcher in self._watchers:
            watcher(Happened(execution_id, at, events))

    def started(self, token: Token, worker: str, at: float) -> None:
        for watcher in self._watchers:
            watcher(Started(token, worker, at))

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Returns the function that ends the watch."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def finished(self, execution_id: str) -> asyncio.Event:
        """Set when this process commits the end of the execution, or may not hear of it."""
        event = self._finished.get(execution_id)
        if event is None:
            event = self._finished[execution_id] = asyncio.Event()
        return event
