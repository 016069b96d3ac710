"""The tasks that a process keeps in memory, by state, and the last heartbeat of each worker."""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Protocol, TypeAlias

import msgspec

from runnel.core.commands import Command, TaskFailed, TaskLost, TaskStopped
from runnel.core.effects import TaskMessage
from runnel.core.ids import TaskToken
from runnel.core.retry import ErrorInfo
from runnel.ports.workers import HeartbeatReply, WorkerInfo, WorkerRecord

# -- running tasks, recorded for the process that starts after a crash --------------------------

NO_SLOT = -1


class RunningTaskTracker(Protocol):
    """Records which tasks of one partition run, for the process that starts after a crash."""

    def add(self, token: TaskToken) -> int:
        """Records that an attempt started; returns its slot, or NO_SLOT if it could not be
        recorded.
        """

    def isolate(self, slot: int) -> None:
        """Records that the attempt runs in a child process, so it can't crash this process."""

    def remove(self, slot: int) -> None: ...

    def mark_clean_shutdown(self) -> None:
        """Records that the process was asked to stop.

        If the process dies after this call, no running task counts as the cause.
        """


# -- queued tasks, claimed in rotation over their queues; waiting workers are woken ------------


@dataclass(slots=True, eq=False)
class TaskEntry:
    """A task on the board. The task is queued until a worker claims it."""

    task: TaskMessage
    partition: int
    worker: str | None = None
    is_started: bool = False
    is_stopping: bool = False
    running_slot: int = NO_SLOT
    beats_missed: int = 0


@dataclass(slots=True, eq=False)
class Waiter:
    queues: Collection[str] | None
    event: asyncio.Event


# A waiting task of one workflow. Tasks are sorted by their place, their execution, whether they are
# first attempts, and the order of arrival, which is unique.
SortedEntry: TypeAlias = tuple[float, str, bool, int, TaskEntry]
WorkflowHeaps: TypeAlias = OrderedDict[str, list[SortedEntry]]


class ReadyQueue:
    """The waiting tasks of one queue.

    The highest priority comes first, and the workflows of that priority take turns. Within a
    workflow, tasks are sorted by place and execution, so the oldest execution comes first. A task
    that is issued again comes first within its execution.
    """

    def __init__(self) -> None:
        # All waiting tasks, in the order of arrival.
        self.entries: dict[TaskToken, TaskEntry] = {}
        # A heap per workflow, in the order of turns, by priority. A discarded task stays in its
        # heap until it comes first or until `_compact` removes it.
        self._heaps: dict[int, WorkflowHeaps] = {}
        self._arrivals = count()
        self._discarded = 0

    def push(self, entry: TaskEntry) -> None:
        task, token = entry.task, entry.task.token
        self.entries[token] = entry
        is_first = token.attempt == 1
        item = task.place, token.execution_id, is_first, next(self._arrivals), entry
        heaps = self._heaps.get(task.priority)
        if heaps is None:
            heaps = self._heaps[task.priority] = OrderedDict()
        heap = heaps.get(task.workflow)
        if heap is None:
            heaps[task.workflow] = [item]
        else:
            heappush(heap, item)

    def pop(self, limit: int) -> list[TaskEntry]:
        """Removes and returns up to `limit` tasks, one from each workflow in turn."""
        taken: list[TaskEntry] = []
        while self.entries and len(taken) < limit:
            priority = max(self._heaps)
            heaps = self._heaps[priority]
            if not heaps:
                del self._heaps[priority]
                continue
            workflow = next(iter(heaps))
            heap = heaps[workflow]
            taken += self._pop_from(heap, 1 if len(heaps) > 1 else limit - len(taken))
            if heap:
                heaps.move_to_end(workflow)
            else:
                del heaps[workflow]
        return taken

    def _pop_from(self, heap: list[SortedEntry], limit: int) -> list[TaskEntry]:
        """Removes and returns up to `limit` tasks of one workflow, without discarded tasks."""
        entries = self.entries
        taken: list[TaskEntry] = []
        while heap and len(taken) < limit:
            entry = heappop(heap)[-1]
            if entries.pop(entry.task.token, None) is None:
                self._discarded -= 1
            else:
                taken.append(entry)
        return taken

    def discard(self, entry: TaskEntry) -> None:
        if self.entries.pop(entry.task.token, None) is not None:
            self._discarded += 1
            if self._discarded > len(self.entries):
                self._compact()

    def _compact(self) -> None:
        """Removes discarded tasks from the heaps, so that they use at most half of the memory."""
        for heaps in self._heaps.values():
            for workflow, heap in list(heaps.items()):
                heap[:] = [item for item in heap if item[-1].task.token in self.entries]
                heapify(heap)
                if not heap:
                    del heaps[workflow]
        self._discarded = 0


class ReadyQueues:
    def __init__(self) -> None:
        # Only non-empty queues, in the order in which they are served.
        self._queues: dict[str, ReadyQueue] = {}
        # The waiters are in a dict, because the iteration order of a set of objects differs between
        # runs.
        self._waiters: dict[Waiter, None] = {}

    def push(self, entry: TaskEntry) -> None:
        name = entry.task.queue
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = ReadyQueue()
        queue.push(entry)
        for waiter in self._waiters:
            if waiter.queues is None or name in waiter.queues:
                waiter.event.set()

    def pop(self, queues: Collection[str] | None, limit: int) -> list[TaskEntry]:
        """Removes and returns up to `limit` tasks, one from each queue in rotation.

        A queue that has served a task moves to the end of the rotation.
        """
        taken: list[TaskEntry] = []
        while len(taken) < limit:
            names = [name for name in self._queues if queues is None or name in queues]
            if not names:
                break
            if len(names) == 1:
                taken += self._pop_many(names[0], limit - len(taken))
            else:
                taken += [self._pop_one(name) for name in names[: limit - len(taken)]]
        return taken

    def discard(self, entry: TaskEntry) -> None:
        """Removes the task from its queue, so that no worker can claim it."""
        queue = self._queues.get(entry.task.queue)
        if queue is not None:
            queue.discard(entry)
            if not queue.entries:
                del self._queues[entry.task.queue]

    def names(self) -> list[str]:
        """Returns the sorted names of the queues that have waiting tasks."""
        return sorted(self._queues)

    def list_waiting(self, queue: str) -> list[TaskEntry]:
        """Returns the waiting tasks of the queue in the order of arrival."""
        ready = self._queues.get(queue)
        return [] if ready is None else list(ready.entries.values())

    def __len__(self) -> int:
        return sum(len(queue.entries) for queue in self._queues.values())

    @contextmanager
    def subscribe(self, queues: Collection[str] | None) -> Iterator[asyncio.Event]:
        """Yields an event that is set when a task arrives in one of these queues."""
        waiter = Waiter(queues, asyncio.Event())
        self._waiters[waiter] = None
        try:
            yield waiter.event
        finally:
            del self._waiters[waiter]

    def _pop_many(self, name: str, limit: int) -> list[TaskEntry]:
        """Removes and returns up to `limit` tasks from the only queue that the caller serves."""
        queue = self._queues[name]
        taken = queue.pop(limit)
        if not queue.entries:
            del self._queues[name]
        return taken

    def _pop_one(self, name: str) -> TaskEntry:
        queue = self._queues.pop(name)
        [entry] = queue.pop(1)
        if queue.entries:
            self._queues[name] = queue
        return entry


BEATS_MISSED_MAX = 2
DEAD_WORKERS_MAX = 100

DeliverCommand = Callable[[int, Command], None]


@dataclass(slots=True, eq=False)
class WorkerEntry:
    """The state of one worker on the board.

    `dropped` has the tokens of tasks that the worker must still be told to stop. The value of a
    token is True after one heartbeat that did not list the token. `is_listed` becomes True with the
    first heartbeat, or with the first claim that returned a task.
    """

    counter: int
    is_listed: bool = False
    is_drain_requested: bool = False
    about: WorkerInfo | None = None
    seen_at: float = 0.0
    held: dict[TaskToken, TaskEntry] = field(default_factory=dict)
    dropped: dict[TaskToken, bool] = field(default_factory=dict)
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)


class TaskBoard:
    """All tasks of a process and the workers that hold them.

    `deliver` puts a command into the inbox of a partition.
    """

    def __init__(self, deliver: DeliverCommand) -> None:
        self.ready = ReadyQueues()
        self._deliver = deliver
        self._entries: dict[TaskToken, TaskEntry] = {}
        self._workers: dict[str, WorkerEntry] = {}
        self._dead: dict[str, WorkerRecord] = {}
        self._trackers: dict[int, RunningTaskTracker] = {}
        # A thread of a worker may call `mark_running` while the event loop removes the task.
        self._running_lock = threading.Lock()
        # All workers share one heartbeat counter, so a worker that returns never gets a number that
        # was used before.
        self._heartbeats = count(1)

    def copy(self, deliver: DeliverCommand) -> "TaskBoard":
        """Returns a copy without the waiting workers, for a store that can be rolled back.

        Trackers of running tasks are not copied: only stores that record running tasks in a file
        have them.
        """
        board = TaskBoard(deliver)
        board._heartbeats = copy(self._heartbeats)
        for name, worker in self._workers.items():
            dropped = dict(worker.dropped)
            board._workers[name] = replace(worker, held={}, dropped=dropped, wakeup=asyncio.Event())
        board._dead.update(self._dead)
        for token, entry in self._entries.items():
            kept = board._entries[token] = replace(entry)
            if kept.worker is None:
                board.ready.push(kept)
            else:
                board.get_or_add_worker(kept.worker).held[token] = kept
        return board

    def track_running(self, partition: int, tracker: RunningTaskTracker) -> None:
        """Starts to record in `tracker` which tasks of the partition are running."""
        self._trackers[partition] = tracker

    def issue(self, partition: int, task: TaskMessage) -> None:
        entry = TaskEntry(task, partition)
        self._entries[task.token] = entry
        self.ready.push(entry)

    def drop(self, token: TaskToken) -> None:
        entry = self._remove(token)
        if entry is not None and entry.worker is not None:
            worker = self.get_or_add_worker(entry.worker)
            worker.dropped[token] = False
            worker.wakeup.set()

    def stop(self, token: TaskToken) -> None:
        """Removes a queued task and reports that it stopped. Makes the worker of a claimed task
        stop it; the worker keeps the task until it reports the end.
        """
        entry = self._entries.get(token)
        if entry is None:
            return
        if entry.worker is None:
            self.finish(entry, TaskStopped(token=token))
            return
        entry.is_stopping = True
        worker = self.get_or_add_worker(entry.worker)
        worker.dropped[token] = False
        worker.wakeup.set()

    def drop_partition(self, partition: int) -> None:
        """Drops all tasks of the partition, and notifies the workers that run one of
        these tasks.
        """
        with self._running_lock:
            self._trackers.pop(partition, None)
        tokens = [token for token, entry in self._entries.items() if entry.partition == partition]
        for token in tokens:
            self.drop(token)

    def count(self) -> int:
        return len(self._entries)

    def has_task(self, token: TaskToken) -> bool:
        return token in self._entries

    def get_or_add_worker(self, name: str) -> WorkerEntry:
        worker = self._workers.get(name)
        if worker is None:
            worker = self._workers[name] = WorkerEntry(next(self._heartbeats))
        return worker

    def assign(self, name: str, entries: Iterable[TaskEntry], *, starts: bool) -> list[TaskMessage]:
        worker = self.get_or_add_worker(name)
        tasks: list[TaskMessage] = []
        for entry in entries:
            entry.worker = name
            entry.is_started = starts
            worker.held[entry.task.token] = entry
            tasks.append(entry.task)
        worker.is_listed = worker.is_listed or bool(tasks)
        return tasks

    def start(self, name: str, token: TaskToken) -> bool:
        entry = self.find_held(name, token)
        if entry is None or entry.is_stopping:
            return False
        entry.is_started = True
        return True

    def mark_running(self, token: TaskToken) -> None:
        """Records that the code of the task starts to run now.

        The code can start later than the call of `start`, because a worker runs the tasks of one
        claim one after the other. Any thread may call this method.
        """
        with self._running_lock:
            entry = self._entries.get(token)
            tracker = None if entry is None else self._trackers.get(entry.partition)
            if entry is not None and tracker is not None and entry.running_slot == NO_SLOT:
                entry.running_slot = tracker.add(token)

    def mark_ended(self, token: TaskToken) -> None:
        """Records that the code of the task does not run any more. Any thread may call this."""
        with self._running_lock:
            entry = self._entries.get(token)
            if entry is not None:
                self._remove_running(entry)

    def isolate(self, name: str, token: TaskToken) -> None:
        """Records that the code of the task runs in a child process of its worker."""
        entry = self.find_held(name, token)
        if entry is None:
            return
        entry.is_started = False
        with self._running_lock:
            tracker = self._trackers.get(entry.partition)
            if tracker is not None and entry.running_slot != NO_SLOT:
                tracker.isolate(entry.running_slot)

    def find_held(self, name: str, token: TaskToken) -> TaskEntry | None:
        entry = self._entries.get(token)
        return entry if entry is not None and entry.worker == name else None

    def finish(self, entry: TaskEntry, report: Command) -> None:
        """Removes the task from the board and delivers the report, in one step."""
        self._remove(entry.task.token)
        self._deliver(entry.partition, report)

    def forward_report(self, entry: TaskEntry, report: Command) -> None:
        """Delivers a report that does not end the task; the worker keeps the task."""
        self._deliver(entry.partition, report)

    def beat(
        self,
        name: str,
        holds: Sequence[TaskToken],
        *,
        about: WorkerInfo | None = None,
        now: float = 0.0,
    ) -> HeartbeatReply:
        worker = self.get_or_add_worker(name)
        worker.counter = next(self._heartbeats)
        worker.is_listed = True
        worker.about, worker.seen_at = about, now
        if about is not None and about.is_draining:
            for tracker in self._trackers.values():
                tracker.mark_clean_shutdown()
        self._dead.pop(name, None)
        listed = set(holds)
        self._lose_missing(worker, listed)
        for token in [token for token in worker.dropped if token not in listed]:
            if worker.dropped[token]:
                del worker.dropped[token]
            else:
                worker.dropped[token] = True
        held = worker.held
        stop = [token for token in holds if token not in held or held[token].is_stopping]
        return HeartbeatReply(stop=stop, drains=worker.is_drain_requested)

    def drain(self, name: str) -> bool:
        worker = self._workers.get(name)
        if worker is None or not worker.is_listed:
            return False
        worker.is_drain_requested = True
        return True

    def remove_dead_worker(self, judged: WorkerRecord) -> int:
        worker = self._workers.get(judged.worker)
        if worker is None or worker.counter != judged.counter:
            return 0
        self._dead[judged.worker] = msgspec.structs.replace(judged, is_dead=True, holds=0)
        while len(self._dead) > DEAD_WORKERS_MAX:
            del self._dead[next(iter(self._dead))]
        return self.remove_worker(judged.worker, "its worker is dead", is_crash=judged.is_crash)

    def remove_worker(self, name: str, reason: str, *, is_crash: bool = True) -> int:
        """Removes the worker and reports each task that it held as TaskLost; returns their number.

        Without `is_crash`, none of the tasks counts as started, because a regular shutdown is not
        evidence that a task kills its workers.
        """
        worker = self._workers.pop(name, None)
        if worker is None:
            return 0
        held = list(worker.held.values())
        was_alone = is_crash and sum(entry.is_started for entry in held) == 1
        for entry in held:
            self._lose(entry, reason, is_crash=is_crash, was_alone=was_alone)
        worker.wakeup.set()
        return len(held)

    def list_workers(self, now: float, *, with_dead: bool = False) -> list[WorkerRecord]:
        live = [
            WorkerRecord(
                worker=name,
                counter=worker.counter,
                holds=len(worker.held),
                about=worker.about,
                silent_s=now - worker.seen_at,
            )
            for name, worker in self._workers.items()
            if worker.is_listed
        ]
        return [*live, *self._dead.values()] if with_dead else live

    def reject_unclaimed(
        self, queue: str, error: ErrorInfo, *, issued_before: float, limit: int
    ) -> int:
        """Fails the oldest unclaimed tasks of the queue, at most `limit`; returns their number."""
        waiting = self.ready.list_waiting(queue)
        old = [entry for entry in waiting if entry.task.issued_at <= issued_before][:limit]
        for entry in old:
            self.finish(entry, TaskFailed(token=entry.task.token, error=error))
        return len(old)

    def _lose_missing(self, worker: WorkerEntry, listed: set[TaskToken]) -> None:
        for token, entry in list(worker.held.items()):
            entry.beats_missed = 0 if token in listed else entry.beats_missed + 1
            if entry.beats_missed >= BEATS_MISSED_MAX:
                self._lose(entry, "its worker is alive but does not hold it", is_crash=False)

    def _lose(
        self, entry: TaskEntry, reason: str, *, is_crash: bool, was_alone: bool = False
    ) -> None:
        was_started = is_crash and entry.is_started
        lost = TaskLost(
            token=entry.task.token,
            reason=reason,
            was_started=was_started,
            was_alone=was_started and was_alone,
        )
        self.finish(entry, lost)

    def _remove(self, token: TaskToken) -> TaskEntry | None:
        entry = self._entries.pop(token, None)
        if entry is None:
            return None
        if entry.worker is None:
            self.ready.discard(entry)
        with self._running_lock:
            self._remove_running(entry)
        worker = None if entry.worker is None else self._workers.get(entry.worker)
        if worker is not None:
            worker.held.pop(token, None)
        return entry

    def _remove_running(self, entry: TaskEntry) -> None:
        tracker = self._trackers.get(entry.partition)
        if tracker is not None and entry.running_slot != NO_SLOT:
            tracker.remove(entry.running_slot)
            entry.running_slot = NO_SLOT
