"""Runs claimed tasks and reports their results, in one asyncio task per used slot; applies rate
limits.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from math import inf
from types import NoneType
from typing import Any

from runnel.authoring.calls import Mode
from runnel.core.commands import (
    TaskCompleted,
    TaskDeferred,
    TaskFailed,
    TaskLost,
    TaskSkipped,
    TaskStarted,
    TaskStopped,
)
from runnel.core.effects import TaskMessage
from runnel.core.retry import SUSPECT_LOSSES, ErrorInfo
from runnel.core.values import TaskLogLine, Value
from runnel.core.workflow import RateLimit
from runnel.engine.worker import WorkerDependencies
from runnel.engine.worker.attempt import AttemptPipeline, TaskNotRunnableError
from runnel.engine.worker.deadlines import Deadlines
from runnel.engine.worker.executor import ChildCodeError
from runnel.engine.worker.outputs import describe_exception
from runnel.engine.worker.refusals import Refusal
from runnel.engine.worker.reports import Report, Reporter
from runnel.engine.worker.secret_masking import redact_error, redact_log_lines
from runnel.engine.worker.slots import Slots
from runnel.engine.worker.task_run import HeldTasks, RunningCode, StopReason, TaskRun
from runnel.engine.worker.threads import ShortCall, ShortCalls
from runnel.errors import (
    BrokenInvariantError,
    ProcessDiedError,
    Skip,
    StoreError,
    TaskTimeoutError,
    TooManyWaitingTasksError,
)
from runnel.ports.store import TaskQueue
from runnel.ports.telemetry import TASK_LOST

# Rate limits: a worker takes a token just before user code runs, from a bucket that all workers
# share.

# The longest time that a task waits in the worker for a rate token, without a slot. For a longer
# wait, the worker returns the task to the store, which sets a timer.
PARK_S_MAX = 5.0


# The time after which a task begins again that could not wait for an execution, because too many
# tasks of its worker wait already.
WAITING_RETRY_S = 5.0


class RateLimiter:
    """Finds the rate limit of a task and takes tokens from the shared buckets.

    `limits` holds rate limits by resource tag. These limits apply to tags without a limit in the
    workflow itself.
    """

    def __init__(self, tasks: TaskQueue, limits: Mapping[str, RateLimit]) -> None:
        self._tasks = tasks
        self._limits = limits

    def find_limit(self, task: TaskMessage) -> RateLimit | None:
        """Returns the limit whose name is the resource tag as the workflow contains it."""
        if task.resource_tag is None:
            return None
        if task.rate_per_second is not None:
            return RateLimit(rate_per_second=task.rate_per_second, burst=task.burst)
        return self._limits.get(task.resource_tag)

    async def take_token(self, bucket: str, limit: RateLimit, *, may_park: bool) -> float:
        """Returns the seconds until the task may run.

        No token was taken if that time is longer than the task may wait in the worker.
        """
        return await self._tasks.take_token(
            bucket,
            rate_per_second=limit.rate_per_second,
            burst=limit.burst,
            wait_s_max=PARK_S_MAX if may_park else 0.0,
        )


# The most tasks per slot that wait in the worker for a rate token. Further tasks go back to the
# store.
PARKED_PER_SLOT = 10
STORE_RETRY_S = 1.0

# A suspect that no child process can run waits this long for the other tasks of its worker to end.
ALONE_WAIT_S = 60.0
ALONE_POLL_S = 0.05
SUSPECT_RETRY_S = 5.0
SUSPECT_REASON = "it has to run alone in its worker, because processes died while they held it"

_OUTCOME_NAMES: Mapping[type, str] = {
    TaskCompleted: "completed",
    TaskFailed: "failed",
    TaskSkipped: "skipped",
    TaskLost: "lost",
    TaskStopped: "stopped",
    TaskDeferred: "deferred",
    NoneType: "stopped",
}


class SuspectDeferredError(Exception):
    """A suspect goes back to the store, because it can't run alone now."""


class RunnerPool:
    """The runners of a worker.

    Each runner takes runs from the slots, executes them and reports the results.
    """

    def __init__(
        self,
        dependencies: WorkerDependencies,
        slots: Slots,
        attempts: AttemptPipeline,
        reporter: Reporter,
        *,
        held: HeldTasks,
        deadlines: Deadlines,
        rate_limits: RateLimiter,
        short_calls: ShortCalls,
        grace_s: float,
    ) -> None:
        self._slots = slots
        self._attempts = attempts
        self._reporter = reporter
        self._held = held
        self._deadlines = deadlines
        self._rate_limits = rate_limits
        self._short_calls = short_calls
        short_calls.owner = self
        self._refusals = dependencies.refusals
        self._clock = dependencies.clock
        self._tasks = dependencies.tasks
        self._store_retry = dependencies.store_retry
        self._telemetry = dependencies.telemetry
        self._worker = dependencies.worker
        self._secrets = dependencies.secrets
        self._grace_s = grace_s
        self._parked: dict[TaskRun, None] = {}
        self._alone: TaskRun | None = None
        self._active = 0
        self._main: asyncio.Task[Any] | None = None
        self._cancels_of_main = 0
        self._is_closed = False
        self._is_draining = False
        self.is_quiet = asyncio.Event()

    def open(self, main: asyncio.Task[Any] | None) -> None:
        """Sets the asyncio task of the worker. A cancellation of `main` ends the runners too."""
        self._main = main
        self._cancels_of_main = main.cancelling() if main is not None else 0

    async def run(self) -> None:
        """Executes runs until `close` is called and the runner is cancelled.

        User code runs in this asyncio task and may cancel the task. Such a cancellation ends at
        most the current run. This method must be the outermost coroutine of its asyncio task. A
        GeneratorExit from a future closes all inner coroutines. Only here can that GeneratorExit
        become the error of the code that awaited the future.
        """
        runner = _get_current_task()
        waiting_code = RunningCode(runner)
        while not self.is_ending:
            run = self._slots.take_at_once()
            if run is None:
                self._short_calls.run_next()  # before the next claim, which counts the free slots
                run = await self._take_run(runner)
            run.code = waiting_code
            self._active += 1
            report = None
            try:
                report = await self._run_and_report(run)
            except GeneratorExit as error:
                if not _is_current(runner):
                    raise  # the runner itself is being closed
                report = self._make_failed_or_skipped(run, error)
            finally:
                self._active -= 1
                if not isinstance(run.code, ShortCall):
                    self._release(run)
                    self._finish(run, report)
            del run, report  # an idle runner must not keep its last run in memory
            if runner.cancelling():
                await self._forget_cancels(runner)

    def stop(self, run: TaskRun, reason: StopReason, *, grace_s: float | None = None) -> None:
        """Cancels the code of the run, and kills the code if it has not ended after `grace_s`."""
        if run.stop_reason is not None or run.is_finished:
            return
        kill_at = self._clock.monotonic() + (self._grace_s if grace_s is None else grace_s)
        has_code = run.code is not None
        run.stop(reason, kill_at=kill_at)
        if has_code:
            if not run.is_finished:
                self._deadlines.arm(run, run.next_check())
        elif reason is StopReason.DROPPED:
            self._reporter.put(TaskStopped(token=run.token))
        if self._is_draining:
            self._update_quiet()

    def report_returned(self, run: TaskRun) -> None:
        """Reports the end of a stopped task whose thread has returned at last."""
        if run.stop_reason is StopReason.DROPPED:
            self._reporter.put(TaskStopped(token=run.token))

    def drain(self) -> None:
        """Returns tasks that have not begun to the store.

        These tasks count as neither run nor lost.

        `is_quiet` is set as soon as all runs that have begun have ended.
        """
        self._is_draining = True
        for run in (*self._slots.drain_ready(), *self._parked):
            self._hand_back(run)
        self._parked.clear()
        self._update_quiet()

    def _hand_back(self, run: TaskRun) -> None:
        run.is_finished = True
        if run.stop_reason is None:
            until = self._clock.now()
            self._reporter.put(
                TaskDeferred(token=run.token, until=until, wait_s=0.0, reason="its worker ended")
            )

    def close(self) -> None:
        """Ends each runner that is cancelled from now on."""
        self._is_closed = True

    def check(self, run: TaskRun, now: float) -> float:
        """Performs the actions that are due for the run; returns the time of its next check.

        The actions are the start report, soft timeout, timeout, kill and end of parking.
        """
        if run.is_parked:
            run.is_parked = False
            self._parked.pop(run, None)
            if run.stop_reason is None:
                self._slots.put_resumed(run)
            return inf
        if isinstance(run.code, ShortCall) and not run.is_watched:
            return self._short_calls.check(run.code, now)
        if now >= run.note_at:
            run.note_at = inf
            self._reporter.put(
                TaskStarted(token=run.token, worker=self._worker, started_at=run.started_at)
            )
        if now >= run.soft_at:
            run.raise_soft_timeout()
        if now >= run.timeout_at:
            run.stop(StopReason.TIMEOUT, kill_at=now + self._grace_s)
        if now >= run.kill_at:
            run.kill()
        return inf if run.is_finished else run.next_check()

    # -- calls in batches: the methods of ShortCallOwner

    def end_short_call(self, call: ShortCall) -> None:
        run = call.run
        run.code = None
        self._active -= 1
        if run.stop_reason is not None or call.outcome is None:
            self._finish(run, self._make_stopped(run))
            return
        result, error = call.outcome
        if error is not None:
            self._finish(run, self._make_failed_or_skipped(run, error))
            return
        output = self._attempts.finish_at_once(call.prepared, result)
        if output is not None:
            self._finish(run, self._make_completed(run, output))
            return
        run.finish = partial(self._attempts.finish, call.prepared, result)
        self._slots.put_first(run)

    def watch_short_call(self, call: ShortCall, at: float) -> None:
        if not call.run.is_finished:
            self._deadlines.arm(call.run, at)

    def return_short_call(self, call: ShortCall) -> None:
        run = call.run
        run.code = run.context = None
        self._active -= 1
        self._telemetry.ended(run.task, _OUTCOME_NAMES[TaskDeferred], 0.0)
        run.started_at = 0.0
        if self._is_draining:
            self._hand_back(run)
            self._update_quiet()
        else:
            self._slots.put_first(run)

    @property
    def is_ending(self) -> bool:
        """True if `close` was called, or if the worker was cancelled and has not called `close`
        yet.
        """
        main = self._main
        return self._is_closed or (main is not None and main.cancelling() > self._cancels_of_main)

    async def _take_run(self, runner: asyncio.Task[Any]) -> TaskRun:
        while True:
            try:
                return await self._slots.take()
            except asyncio.CancelledError:
                if self.is_ending:
                    raise
            await self._forget_cancels(runner)  # an earlier run's code caused the cancellation

    async def _forget_cancels(self, runner: asyncio.Task[Any]) -> None:
        """Clears cancellations that the last run caused, so that they do not reach the next run."""
        while runner.cancelling():
            runner.uncancel()
        try:
            # Before Python 3.13, a cancellation that is not delivered yet survives `uncancel`.
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if self.is_ending:
                raise

    async def _run_and_report(self, run: TaskRun) -> Report | None:
        """Runs the task and returns its report.

        Returns None if the run is parked, dropped or ended by a shutdown.
        """
        try:
            if run.finish is not None:
                return self._make_completed(run, await run.finish())
            if run.task.cache_key:
                cached_report = await self._report_cached(run)
                if cached_report is not None:
                    return cached_report
            if run.task.resource_tag is not None and not run.has_rate_token:
                deferred = await self._admit(run)
                if deferred is not None or run.is_parked:
                    return deferred
            output = await self._execute(run)
            return None if output is None else self._make_completed(run, output)
        except SuspectDeferredError:
            until, wait_s = self._clock.now() + SUSPECT_RETRY_S, SUSPECT_RETRY_S
            return TaskDeferred(token=run.token, until=until, wait_s=wait_s, reason=SUSPECT_REASON)
        except TaskNotRunnableError as error:
            return await self._report_not_runnable(run, error.reason)
        except GeneratorExit:
            raise  # `run` decides whether the code or the runner is closed
        except BaseException as error:  # user code may raise anything
            is_cancel = isinstance(error, asyncio.CancelledError)
            if is_cancel and run.stop_reason is None and self.is_ending:
                raise  # the worker was cancelled, not the run
            return self._make_failed_or_skipped(run, error)

    async def _execute(self, run: TaskRun) -> Value | None:
        """Runs the code of the task and returns its output; None if a batch runs it.

        The store records which code runs, and counts a crash against this task. So a call that
        waits in a batch is not recorded yet. Its function is known, so its plan runs no user code.
        """
        run.started_at = self._clock.now()
        self._telemetry.started(run.task, self._worker, run.started_at)
        plan = self._attempts.find_plan(run.task)
        is_short = plan.duration.is_short and run.task.losses < SUSPECT_LOSSES
        if not is_short:
            self._tasks.begin(run.token)
        prepared = await self._attempts.prepare(run, plan)
        if is_short:
            if prepared.call.mode is Mode.THREAD:
                run.code = call = self._attempts.make_short_call(prepared)
                self._active += 1
                self._short_calls.add(call)
                return None
            self._tasks.begin(run.token)
        return await self._attempts.execute(prepared)

    async def admit_suspect(self, run: TaskRun) -> None:
        """Returns when a suspect may run: in a child process, or while nothing else runs here.

        After ALONE_WAIT_S, the suspect runs beside other tasks, such as one that waits for another
        execution. Raises SuspectDeferredError if another suspect has to run alone first, or if the
        worker shuts down.
        """
        if run.is_in_child:
            self._slots.discard_suspect(run)
            await self._store_retry.run(
                lambda: self._tasks.isolate(self._worker, run.token), "isolate"
            )
            return
        if self._alone is not None:
            raise SuspectDeferredError
        self._alone = run
        self._slots.add_suspects((run,))
        ends_at = self._clock.monotonic() + ALONE_WAIT_S
        while self._held.has_company(run):
            if self._is_draining:
                raise SuspectDeferredError
            if self._clock.monotonic() >= ends_at:
                self._slots.discard_suspect(run)
                return
            await self._clock.sleep(ALONE_POLL_S)

    async def _report_not_runnable(self, run: TaskRun, reason: Refusal) -> Report | None:
        reason = self._refusals.explain(reason)
        if run.stop_reason is None:
            problem, name = (self._secrets.redact(text) for text in (str(reason), reason.name))
            deferred = await self._refusals.hand_back(run, problem, name=name)
            if deferred is not None:
                return deferred
        return self._make_failed_or_skipped(run, reason)

    async def _report_cached(self, run: TaskRun) -> Report | None:
        """Returns the report of a cached result, or None if there is none.

        This step precedes the rate limit, because a cached result needs no rate token.
        """
        run.started_at = self._clock.now()
        self._slots.wake_runner()
        output = await self._attempts.find_cached_output(run)
        return None if output is None else self._make_completed(run, output, is_cached=True)

    async def _admit(self, run: TaskRun) -> TaskDeferred | None:
        """Takes a rate token for the run. A task that this worker can't run takes no token.

        Returns None if the run may continue now or is parked, and a TaskDeferred if the task goes
        back to the store.
        """
        limit = self._rate_limits.find_limit(run.task)
        if limit is None:
            return None
        self._slots.wake_runner()
        await self._attempts.check_runnable(run.task)
        try:
            bucket = await self._attempts.resolve_resource_tag(run.task)
            wait_s = await self._take_rate_token(run, bucket, limit)
        except StoreError as error:
            until = self._clock.now() + STORE_RETRY_S
            reason = describe_exception(error).message
            return TaskDeferred(token=run.token, until=until, wait_s=STORE_RETRY_S, reason=reason)
        if run.stop_reason is not None or wait_s <= 0:
            return None
        if not run.has_rate_token or self._is_draining:
            until = self._clock.now() + wait_s
            return TaskDeferred(token=run.token, until=until, wait_s=wait_s)
        self._park(run, wait_s)
        return None

    async def _take_rate_token(self, run: TaskRun, bucket: str, limit: RateLimit) -> float:
        may_park = len(self._parked) < PARKED_PER_SLOT * self._slots.count
        wait_s = await self._rate_limits.take_token(bucket, limit, may_park=may_park)
        run.has_rate_token = wait_s <= (PARK_S_MAX if may_park else 0.0)
        return wait_s

    def _park(self, run: TaskRun, wait_s: float) -> None:
        run.code = None
        run.is_parked = True
        self._parked[run] = None
        self._deadlines.arm(run, self._clock.monotonic() + wait_s)

    def _make_completed(
        self, run: TaskRun, output: Value, *, is_cached: bool = False
    ) -> Report | None:
        if run.stop_reason is not None:
            return self._make_stopped(run)
        is_cached = is_cached or (run.context is not None and run.context.is_cached)
        return TaskCompleted(
            token=run.token,
            output=output,
            worker=self._worker,
            started_at=run.started_at,
            is_cached=is_cached,
            logs=self._collect_logs(run),
        )

    def _make_failed_or_skipped(self, run: TaskRun, error: BaseException) -> Report | None:
        if run.stop_reason is not None:
            return self._make_stopped(run)
        if isinstance(error, Skip):
            return TaskSkipped(
                token=run.token,
                reason=self._secrets.redact(describe_exception(error).message),
                worker=self._worker,
                started_at=run.started_at,
                logs=self._collect_logs(run),
            )
        if run.is_isolated and isinstance(error, ProcessDiedError):
            return self._make_lost(run, error)
        info = error.info if isinstance(error, ChildCodeError) else describe_exception(error)
        if info.types[:1] == (TooManyWaitingTasksError.__name__,):
            # Nothing was submitted yet, so the task may begin again once other tasks have ended.
            until = self._clock.now() + WAITING_RETRY_S
            return TaskDeferred(
                token=run.token, until=until, wait_s=WAITING_RETRY_S, reason=info.message
            )
        return self._make_failure(run, info)

    def _make_lost(self, run: TaskRun, error: ProcessDiedError) -> TaskLost:
        """Returns the report of a suspect whose child process died: no other task is to blame.

        While the worker shuts down, the task is not to blame either. A signal to all processes of a
        service ends the child too.
        """
        reason, is_crash = str(error), not self._is_draining
        self._telemetry.event(TASK_LOST, token=run.token, reason=reason)
        return TaskLost(token=run.token, reason=reason, was_started=is_crash, was_alone=is_crash)

    def _make_stopped(self, run: TaskRun) -> Report | None:
        if run.stop_reason is StopReason.DROPPED:
            return TaskStopped(token=run.token)
        if run.stop_reason is not StopReason.TIMEOUT:
            return None
        return self._make_failure(run, describe_exception(TaskTimeoutError(run.task.timeout_s)))

    def _make_failure(self, run: TaskRun, info: ErrorInfo) -> TaskFailed:
        return TaskFailed(
            token=run.token,
            error=redact_error(info, self._secrets),
            worker=self._worker,
            started_at=run.started_at,
            logs=self._collect_logs(run),
        )

    def _collect_logs(self, run: TaskRun) -> tuple[TaskLogLine, ...]:
        """Returns the masked log lines of the run.

        For code without log lines, this method costs one attribute access.
        """
        lines = () if run.context is None else run.context.log_lines
        return redact_log_lines(lines, self._secrets) if lines else ()

    def _release(self, run: TaskRun) -> None:
        if run.task.losses >= SUSPECT_LOSSES:
            self._end_suspect(run)
        if not run.keeps_slot:
            self._slots.release(has_waited=run.is_watched or run.is_parked)

    def _finish(self, run: TaskRun, report: Report | None) -> None:
        if not run.is_parked:
            run.is_finished = True
            self._deadlines.forget(run)
            if run.started_at:
                took_s = self._clock.now() - run.started_at
                self._telemetry.ended(run.task, _OUTCOME_NAMES[type(report)], took_s)
            # A thread continues after its run has ended. `report_returned` reports its end.
            if report is not None and not (run.is_abandoned and type(report) is TaskStopped):
                if type(report) is not TaskDeferred:
                    self._refusals.refusals_in_a_row = 0
                self._reporter.put(report)
        if self._is_draining:
            self._update_quiet()

    def _end_suspect(self, run: TaskRun) -> None:
        if self._alone is run:
            self._alone = None
        self._slots.discard_suspect(run)

    def _update_quiet(self) -> None:
        if not self._active and not self._slots.has_ended_calls:
            self.is_quiet.set()


def _get_current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    if task is None:
        raise BrokenInvariantError("a runner has to be an asyncio task")
    return task


def _is_current(runner: asyncio.Task[Any]) -> bool:
    """Returns True if `runner` is the current asyncio task.

    False means that other code closes the runner's coroutine after its event loop has ended.
    """
    try:
        return asyncio.current_task() is runner
    except RuntimeError:  # no event loop is running
        return False
