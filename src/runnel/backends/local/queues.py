"""Queued tasks, handed out in rotation over their queues; whoever waits is woken, none polls."""

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from runnel.backends.local.marks import NO_MARK
from runnel.core.effects import Task
from runnel.core.ids import Token


@dataclass(slots=True, eq=False)
class Entry:
    """A task that the board knows: queued until a worker claims it."""

    task: Task
    partition: int
    worker: str | None = None
    is_started: bool = False
    mark: int = NO_MARK
    beats_missed: int = 0


@dataclass(slots=True, eq=False)
class Waiter:
    wanted: Collection[str] | None
    event: asyncio.Event


class ReadyQueues:
    def __init__(self) -> None:
        # Only queues that are not empty, in the order in which they are served.
        self._queues: dict[str, OrderedDict[Token, Entry]] = {}
        # A dict, because the order of a set of objects is another one in each run.
        self._waiters: dict[Waiter, None] = {}

    def push(self, entry: Entry) -> None:
        name = entry.task.queue
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = OrderedDict()
        queue[entry.task.token] = entry
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
            if len(names) == 1:
                taken += self._pop_many(names[0], limit - len(taken))
            else:
                taken += [self._pop_one(name) for name in names[: limit - len(taken)]]
        return taken

    def discard(self, entry: Entry) -> None:
        """Nobody gets it any more, whether or not anybody serves its queue."""
        queue = self._queues.get(entry.task.queue)
        if queue is not None:
            queue.pop(entry.task.token, None)
            if not queue:
                del self._queues[entry.task.queue]

    def names(self) -> list[str]:
        """Of the queues in which something waits."""
        return sorted(self._queues)

    def waiting_in(self, queue: str) -> list[Entry]:
        return list(self._queues.get(queue, {}).values())

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    @contextmanager
    def waiting(self, wanted: Collection[str] | None) -> Iterator[asyncio.Event]:
        """An event that is set when a task for one of these queues arrives."""
        waiter = Waiter(wanted, asyncio.Event())
        self._waiters[waiter] = None
        try:
            yield waiter.event
        finally:
            del self._waiters[waiter]

    def _pop_many(self, name: str, limit: int) -> list[Entry]:
        """Of a queue that shares with no other."""
        queue = self._queues[name]
        taken = [queue.popitem(last=False)[1] for _ in range(min(limit, len(queue)))]
        if not queue:
            del self._queues[name]
        return taken

    def _pop_one(self, name: str) -> Entry:
        queue = self._queues.pop(name)
        _, entry = queue.popitem(last=False)
        if queue:
            self._queues[name] = queue
        return entry
