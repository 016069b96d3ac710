"""One task that this worker holds, from its claim to the acknowledged report, with its
deadlines.
"""

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

# Running code, and the three ways to interrupt it: soft timeout, cancellation, kill.


class RunningCode:
    """Code that only waits for something else (a blob, a thread). Cancelling ends the wait.

    `runner` is the asyncio task of the slot. The code that runs there receives the CancelledError.
    """

    __slots__ = ("runner",)

    def __init__(self, runner: asyncio.Task[None]) -> None:
        self.runner = runner

    def raise_soft_timeout(self, error: SoftTimeoutError) -> None:
        """Raises `error` inside the code if possible. A thread can't be reached."""

    def cancel(self) -> None:
        self.runner.cancel()

    def kill(self) -> None:
        """Ends the code even if it has swallowed its cancellation."""
        self.runner.cancel()


# A task that takes longer than this is reported as RUNNING.
REPORT_STARTED_AFTER_S = 0.25


class StopReason(StrEnum):
    TIMEOUT = "timeout"
    DROPPED = "dropped"
    SHUTDOWN = "shutdown"


class TaskRun:
    """One claimed task. All times are monotonic and `inf` if unset, except `started_at` (wall
    time).

    `check_at` is the time of the next deadline check. A stopped run is finished once its code has
    ended; code that has not ended by `kill_at` is killed. `keeps_slot` marks a run whose thread
    can't be killed.
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
        """Sets the deadlines of an attempt that started at `since`; returns the time of the first
        check.
        """
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
        """Stops the code and drops its result. Only the first reason counts."""
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
    """Every task between its claim and the acknowledged report. Heartbeats list them.

    `claimed_at` is the time of the last claim, 0 before the first.
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
        """Returns the tasks whose code is running, longest first."""
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
# Only a run that waits gets an entry, and most entries are due a fixed time after they were made.
# The loop sleeps until the earliest one, so it seldom has to be woken. Stale entries stay until
# they outnumber the others, and are then removed. Otherwise a finished run would stay in memory,
# with its input, until its timeout. A timer of the event loop would cost 2 µs for each run, this
# costs 0.7 µs.


class DeadlineChecker(Protocol):
    """Decides what happens at the deadline of a run."""

    def check(self, run: TaskRun, now: float) -> float:
        """Performs what is due for the run; returns the time of the next check, `inf` for never."""


class Deadlines:
    """Calls a checker at the deadline of each run."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, TaskRun]] = []
        self._stale = 0
        self._order = count()
        self._wakes_at = inf
        self._sooner = asyncio.Event()

    def arm(self, run: TaskRun, at: float) -> None:
        """Has the run checked at `at` (monotonic), instead of at any earlier set time."""
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
        """Cancels the check of the run."""
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
        """Checks runs until cancelled."""
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
