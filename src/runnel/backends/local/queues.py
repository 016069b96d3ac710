"""Queued tasks, handed out in rotation over their queues; whoever waits is woken, none polls."""

import asyncio
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from runnel.backends.local.marks import NO_MARK
from runnel.core.effects import Task


@dataclass(slots=True, eq=False)
class Entry:
    """A task that the board knows: queued until a worker claims it.

    It `is_noted` once its worker has said that it runs for longer than a moment.
    """

    task: Task
    partition: int
    worker: str | None = None
    is_started: bool = False
    is_noted: bool = False
    is_gone: bool = False
    mark: int = NO_MARK
    beats_missed: int = 0


@dataclass(slots=True, eq=False)
class Waiter:
    wanted: Collection[str] | None
    event: asyncio.Event


class ReadyQueues:
    def __init__(self) -> None:
        # Only queues that are not empty, in the order in which they are served.
        self._queues: dict[str, deque[Entry]] = {}
        # A dict, because the order of a set of objects is another one in each run.
        self._waiters: dict[Waiter, None] = {}

    def push(self, entry: Entry) -> None:
        name = entry.task.queue
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = deque()
        queue.append(entry)
        for waiter in self._waiters:
            if waiter.wanted is None or name in waiter.wanted:
                waiter.event.set()

    def pop(self, wanted: Collection[str] | None, limit: int) -> list[Entry]:
        """Up to `limit`, one of each queue in turn; a queue that was served goes to the end."""
        taken: list[Entry] = []
        while len(taken) < limit:
            names = [name for name in self._queues if wanted is None or name in wanted]
            if not names:
                break
            for name in names[: limit - len(taken)]:
                entry = self._pop_one(name)
                if entry is not None:
                    taken.append(entry)
        return taken

    @contextmanager
    def waiting(self, wanted: Collection[str] | None) -> Iterator[asyncio.Event]:
        """An event that is set when a task for one of these queues arrives."""
        waiter = Waiter(wanted, asyncio.Event())
        self._waiters[waiter] = None
        try:
            yield waiter.event
        finally:
            del self._waiters[waiter]

    def wake(self) -> None:
        """Lets everybody who waits look again: what may be handed out has changed."""
        for waiter in self._waiters:
            waiter.event.set()

    def _pop_one(self, name: str) -> Entry | None:
        queue = self._queues.pop(name)
        found = None
        while queue and found is None:
            entry = queue.popleft()
            found = None if entry.is_gone else entry
        if queue:
            self._queues[name] = queue
        return found
