"""The tasks that a worker holds, each from its claim to its acknowledged report."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from enum import StrEnum
from heapq import nsmallest
from math import inf

from runnel.authoring.context import Context
from runnel.core.effects import TaskMessage
from runnel.core.ids import TaskToken
from runnel.core.values import Value
from runnel.errors import BrokenInvariantError, SoftTimeoutError
from runnel.ports.workers import RunningTaskInfo

# Running code, and the three ways to interrupt running code: soft timeout, cancellation, kill.


class RunningCode:
    """The code of a run while it waits for a blob, a thread or a rate token.

    A cancellation ends the wait of the code. Subclasses represent user code on the event loop and
    in a child process.

    `runner` is the asyncio task of the slot. A cancellation of `runner` raises CancelledError in
    the code.
    """

    __slots__ = ("runner",)

    def __init__(self, runner: asyncio.Task[None]) -> None:
        self.runner = runner

    def raise_soft_timeout(self, error: SoftTimeoutError) -> None:
        """Raises `error` inside the code if possible.

        Does nothing for code in a thread, which can't be interrupted.
        """

    def cancel(self) -> None:
        self.runner.cancel()

    def kill(self) -> None:
        """Ends the code even if the code has swallowed its cancellation."""
        self.runner.cancel()


# The worker reports a task as RUNNING if it takes longer than this.
REPORT_STARTED_AFTER_S = 0.25


class StopReason(StrEnum):
    TIMEOUT = "timeout"
    DROPPED = "dropped"
    SHUTDOWN = "shutdown"


class TaskRun:
    """One claimed task and the state of its run.

    All times are monotonic and `inf` if unset, except `started_at`, which is wall time.

    `check_at` is the time of the next deadline check. A stopped run is finished once its code has
    ended. Code that has not ended by `kill_at` is killed. `is_abandoned` marks a run that has ended
    while its thread, which can't be killed, continues. If `keeps_slot` is also True, that thread
    occupies the slot of the run. `finish` is set if the call of the run has ended and its result
    takes further steps, which return the output. `is_isolated` marks a suspect: its code runs
    alone in a child process, because processes died with earlier attempts of its task.
    `is_in_child` also marks a suspect that runs in a child process anyway.
    """

    __slots__ = (
        "cache_key",
        "check_at",
        "code",
        "context",
        "finish",
        "has_rate_token",
        "is_abandoned",
        "is_finished",
        "is_in_child",
        "is_isolated",
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
        self.finish: Callable[[], Awaitable[Value]] | None = None
        self.is_abandoned = False
        self.is_finished = False
        self.is_in_child = False
        self.is_isolated = False
        self.keeps_slot = False
        self.has_rate_token = False
        self.is_parked = False
        self.check_at = self.note_at = self.soft_at = self.timeout_at = self.kill_at = inf

    def watch(self, *, since: float) -> float:
        """Sets the deadlines of an attempt that started at `since`.

        Returns the earliest deadline.
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
        """Cancels the code of the run and drops its result. Only the first call has an effect."""
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


def get_code(run: TaskRun) -> RunningCode:
    if run.code is None:
        raise BrokenInvariantError(f"task {run.token} runs without a worker slot")
    return run.code


class HeldTasks:
    """The tasks that this worker holds: claimed, and without an acknowledged report.

    Heartbeats list these tasks.

    `claimed_at` is the time of the last claim, and 0 before the first claim. `abandoned_threads` is
    the number of threads that continue although their task has ended.
    """

    def __init__(self) -> None:
        self.claimed_at = 0.0
        self.abandoned_threads = 0
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

    def has_company(self, run: TaskRun) -> bool:
        """Returns True if this worker holds another task that could kill its process."""
        return any(other is not run and not other.is_in_child for other in self._runs.values())

    def unfinished(self) -> Iterable[TaskRun]:
        return [run for run in self._runs.values() if not run.is_finished]

    def running(self, *, limit: int) -> tuple[RunningTaskInfo, ...]:
        """Returns up to `limit` tasks whose code is running, the longest running first."""
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
