"""One task that this worker holds, from claim to acknowledged report, and its deadlines."""

import asyncio
from collections.abc import Iterable
from enum import StrEnum
from heapq import heapify, heappop, heappush, nsmallest
from itertools import count
from math import inf
from typing import Protocol

from runnel.authoring.context import Context
from runnel.core.effects import TaskMessage
from runnel.core.ids import TaskToken
from runnel.errors import SoftTimeoutError
from runnel.ports.clock import Clock
from runnel.ports.workers import RunningTaskInfo

# Running code and the three ways to interrupt it: softly, by cancelling, by force.


class RunningCode:
    """Code that only waits for something elsewhere (a blob, a thread): cancelling ends the wait.

    `runner` is the asyncio task of the slot; whoever runs there sees the CancelledError.
    """

    __slots__ = ("runner",)

    def __init__(self, runner: asyncio.Task[None]) -> None:
        self.runner = runner

    def raise_soft_timeout(self, error: SoftTimeoutError) -> None:
        """Raises `error` inside the code if that is possible; a thread can't be reached."""

    def cancel(self) -> None:
        self.runner.cancel()

    def kill(self) -> None:
        """Ends the code whatever it did with its cancellation."""
        self.runner.cancel()


# A task that takes longer than this is worth a message that shows it as RUNNING.
REPORT_STARTED_AFTER_S = 0.25


class StopReason(StrEnum):
    TIMEOUT = "timeout"
    DROPPED = "dropped"
    SHUTDOWN = "shutdown"


class TaskRun:
    """Times are monotonic and `inf` when they do not apply, but `started_at` is wall time.

    `check_at` is when a deadline is looked at next. A stopped run is over once its code has
    ended; what has not ended by `kill_at` is killed. `keeps_slot` marks a thread that can't be.
    """

    __slots__ = (
        "cache_key",
        "check_at",
        "code",
        "context",
        "has_rate_token",
        "is_finished",
        "is_parked",
        "keeps_slot",
        "kill_at",
        "note_at",
        "soft_at",
        "started_at",
        "stop_reason",
        "task",
        "timeout_at",
        "token",
    )

    def __init__(self, task: TaskMessage) -> None:
        self.task = task
        self.token: TaskToken = task.token
        self.code: RunningCode | None = None
        self.context: Context | None = None
        self.cache_key = ""
        self.started_at = 0.0
        self.stop_reason: StopReason | None = None
        self.is_finished = False
        self.keeps_slot = False
        self.has_rate_token = False
        self.is_parked = False
        self.check_at = self.note_at = self.soft_at = self.timeout_at = self.kill_at = inf

    def watch(self, *, since: float) -> float:
        """Sets the deadlines of an attempt that runs `since`; returns when to check first."""
        task = self.task
        self.note_at = since + REPORT_STARTED_AFTER_S
        self.timeout_at = since + task.timeout_s
        if task.soft_timeout_s is not None:
            self.soft_at = since + task.soft_timeout_s
        return self.next_check()

    @property
    def is_watched(self) -> bool:
        return self.stop_reason is not None or self.timeout_at != inf

    def next_check(self) -> float:
        return min(self.note_at, self.soft_at, self.timeout_at, self.kill_at)

    def stop(self, reason: StopReason, *, kill_at: float) -> None:
        """Tells the code to stop; only the first reason counts, its result is dropped."""
        if self.stop_reason is not None or self.is_finished:
            return
        self.stop_reason = reason
        self.note_at = self.soft_at = self.timeout_at = inf
        self.kill_at = kill_at
        if self.context is not None:
            self.context.cancel()
        if self.code is not None:
            self.code.cancel()

    def raise_soft_timeout(self) -> None:
        self.soft_at = inf
        if self.context is not None:
            self.context.soft_timeout = True
        if self.code is not None:
            self.code.raise_soft_timeout(SoftTimeoutError(self.task.soft_timeout_s or 0.0))

    def kill(self) -> None:
        self.kill_at = inf
        if self.code is not None and not self.is_finished:
            self.code.kill()


class HeldTasks:
    """Every task between its claim and the acknowledgement of its report: what a beat names.

    `claimed_at` is when the last ones were claimed, 0 before the first.
    """

    def __init__(self) -> None:
        self.claimed_at = 0.0
        self._runs: dict[TaskToken, TaskRun] = {}

    def add(self, task: TaskMessage) -> TaskRun:
        run = self._runs[task.token] = TaskRun(task)
        return run

    def find(self, token: TaskToken) -> TaskRun | None:
        return self._runs.get(token)

    def forget(self, token: TaskToken) -> None:
        self._runs.pop(token, None)

    def tokens(self) -> list[TaskToken]:
        return list(self._runs)

    def unfinished(self) -> Iterable[TaskRun]:
        return [run for run in self._runs.values() if not run.is_finished]

    def running(self, *, limit: int) -> tuple[RunningTaskInfo, ...]:
        """Those whose code runs, the longest first."""
        running = (run for run in self._runs.values() if run.started_at and not run.is_finished)
        longest = nsmallest(limit, running, key=lambda run: run.started_at)
        return tuple(_describe_run(run) for run in longest)

    def __len__(self) -> int:
        return len(self._runs)


def _describe_run(run: TaskRun) -> RunningTaskInfo:
    token, task = run.token, run.task
    return RunningTaskInfo(
        execution_id=token.execution_id,
        node_id=token.node_id,
        item=token.item,
        attempt=token.attempt,
        workflow=task.workflow,
        handler=task.handler,
        started_at=run.started_at,
    )


# One heap of deadlines for all runs of a worker, instead of a timer for each.
#
# Only a run that waits gets an entry, and most entries are due a fixed time after they were made:
# the loop sleeps until the oldest, so it seldom has to be woken. What is not needed any more
# stays behind until there is more of it than of the rest: a run that has ended would otherwise be
# kept, with its input, until its time-out. A timer of the event loop for each run would cost 2
# µs, this 0.7 µs.


class DeadlineChecker(Protocol):
    def check(self, run: TaskRun, now: float) -> float:
        """Does what is due for the run; returns when to look again, `inf` for never."""


class Deadlines:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, TaskRun]] = []
        self._stale = 0
        self._order = count()
        self._wakes_at = inf
        self._sooner = asyncio.Event()

    def arm(self, run: TaskRun, at: float) -> None:
        """The run is checked at `at` (monotonic), and at no time that it was armed for before."""
        if at == run.check_at:
            return
        if run.check_at != inf:
            self.forget(run)
        if at == inf:
            return
        run.check_at = at
        heappush(self._heap, (at, next(self._order), run))
        if at < self._wakes_at:
            self._sooner.set()

    def forget(self, run: TaskRun) -> None:
        """The run is not checked any more."""
        if run.check_at == inf:
            return
        run.check_at = inf
        self._stale += 1
        if 2 * self._stale > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].check_at == entry[0]]
            heapify(self._heap)
            self._stale = 0

    def __len__(self) -> int:
        return len(self._heap)

    async def run(self, checker: DeadlineChecker) -> None:
        """Ends when it is cancelled."""
        while True:
            self.tick(checker)
            self._sooner.clear()
            self._wakes_at = self._heap[0][0] if self._heap else inf
            seconds = None if self._wakes_at == inf else self._wakes_at - self._clock.monotonic()
            await self._clock.wait(self._sooner, seconds)

    def tick(self, checker: DeadlineChecker) -> int:
        """Checks every run that is due; returns how many."""
        now = self._clock.monotonic()
        checked = 0
        while self._heap and self._heap[0][0] <= now:
            at, _, run = heappop(self._heap)
            if run.check_at != at:
                self._stale -= 1
                continue
            run.check_at = inf
            if not run.is_finished:
                self.arm(run, checker.check(run, now))
                checked += 1
        return checked
