"""The runners: one asyncio task per slot in use, taking one run after another to its report."""

import asyncio
from math import inf

from runnel.core.commands import (
    TaskCompleted,
    TaskDeferred,
    TaskFailed,
    TaskSkipped,
    TaskStarted,
)
from runnel.core.retry import ErrorInfo
from runnel.core.values import Value
from runnel.core.workflow import RateLimit
from runnel.engine.worker.attempt import Attempts
from runnel.engine.worker.code import Code
from runnel.engine.worker.deadlines import Deadlines
from runnel.engine.worker.execute import ChildCodeError
from runnel.engine.worker.failures import error_info
from runnel.engine.worker.rate_limits import PARK_S_MAX, RateLimits
from runnel.engine.worker.reports import Report, Reporter
from runnel.engine.worker.runs import Held, Run, StopReason
from runnel.engine.worker.slots import Slots
from runnel.engine.worker.surroundings import Surroundings
from runnel.errors import Skip, StoreError, TaskTimeoutError

# Tasks that wait for a rate token without a slot, per slot; more are sent back to the store.
PARKED_PER_SLOT = 10
STORE_RETRY_S = 1.0


class Runners:
    def __init__(
        self,
        around: Surroundings,
        slots: Slots,
        attempts: Attempts,
        reporter: Reporter,
        *,
        held: Held,
        deadlines: Deadlines,
        rate_limits: RateLimits,
        grace_s: float,
    ) -> None:
        self._slots = slots
        self._attempts = attempts
        self._reporter = reporter
        self._held = held
        self._deadlines = deadlines
        self._rate_limits = rate_limits
        self._clock = around.clock
        self._telemetry = around.telemetry
        self._worker = around.worker
        self._grace_s = grace_s
        self._parked: set[Run] = set()
        self._active = 0
        self._is_closed = False
        self._is_draining = False
        self.is_quiet = asyncio.Event()

    async def run(self, runner: asyncio.Task[None]) -> None:
        """One runner, which is the asyncio task `runner`; ends after `close` and a cancel."""
        waits = Code(runner)
        while not self._is_closed:
            run = await self._slots.take()
            run.code = waits
            self._active += 1
            report = None
            try:
                report = await self._report(run, runner)
            finally:
                self._active -= 1
                self._finish(run, report)

    def stop(self, run: Run, reason: StopReason, *, grace_s: float | None = None) -> None:
        """The code has `grace_s` to end after it was cancelled; then it is killed."""
        kill_at = self._clock.monotonic() + (self._grace_s if grace_s is None else grace_s)
        run.stop(reason, kill_at=kill_at)
        if run.code is not None:
            self._deadlines.arm(run, run.next_check())
        elif reason is StopReason.DROPPED:
            self._held.forget(run.token)

    def drain(self) -> None:
        """Runs that have not begun go back to the store, counted as neither run nor lost.

        `is_quiet` is set as soon as the others have ended.
        """
        self._is_draining = True
        self._note_quiet()
        now = self._clock.now()
        for run in (*self._slots.drain_ready(), *self._parked):
            run.is_over = True
            if run.stop_reason is None:
                self._reporter.put(
                    TaskDeferred(token=run.token, until=now, reason="its worker ended")
                )
        self._parked.clear()

    def close(self) -> None:
        """Nothing more is run; a runner that is cancelled from now on ends."""
        self._is_closed = True

    def check(self, run: Run, now: float) -> float:
        if run.is_parked:
            run.is_parked = False
            self._parked.discard(run)
            if run.stop_reason is None:
                self._slots.put_first(run)
            return inf
        if now >= run.note_at:
            run.note_at = inf
            self._reporter.put(
                TaskStarted(token=run.token, worker=self._worker, started_at=run.started_at)
            )
        if now >= run.soft_at:
            run.soften()
        if now >= run.timeout_at:
            run.stop(StopReason.TIMEOUT, kill_at=now + self._grace_s)
        if now >= run.kill_at:
            run.kill()
        return run.next_check()

    async def _report(self, run: Run, runner: asyncio.Task[None]) -> Report | None:
        """None when there is nothing to say: parked, no longer wanted, or lost by a shutdown."""
        try:
            if run.task.resource_tag is not None and not run.has_rate_token:
                deferred = await self._admit(run)
                if deferred is not None or run.is_parked:
                    return deferred
            run.started_at = self._clock.now()
            self._telemetry.started(run.token, self._worker, run.started_at)
            output = await self._attempts.output(run)
            return self._completed(run, output)
        except GeneratorExit:
            raise
        except BaseException as error:  # user code may raise anything
            is_ended = isinstance(error, asyncio.CancelledError) and runner.cancelling()
            if is_ended and run.stop_reason is None:
                raise  # it is the worker that was cancelled, not the run
            return self._failed(run, error)
        finally:
            if run.stop_reason is not None:
                while runner.cancelling():
                    runner.uncancel()

    async def _admit(self, run: Run) -> TaskDeferred | None:
        """None when the run may go on now, or was parked until it may."""
        limit = self._rate_limits.limit_of(run.task)
        if limit is None:
            return None
        self._slots.pass_on()
        try:
            wait_s = await self._take(run, limit)
        except StoreError as error:
            until = self._clock.now() + STORE_RETRY_S
            return TaskDeferred(token=run.token, until=until, reason=str(error))
        if run.stop_reason is not None or wait_s <= 0:
            return None
        if not run.has_rate_token or self._is_draining:
            return TaskDeferred(token=run.token, until=self._clock.now() + wait_s)
        self._park(run, wait_s)
        return None

    async def _take(self, run: Run, limit: RateLimit) -> float:
        may_park = len(self._parked) < PARKED_PER_SLOT * self._slots.count
        wait_s = await self._rate_limits.take(run.task, limit, may_park=may_park)
        run.has_rate_token = wait_s <= (PARK_S_MAX if may_park else 0.0)
        return wait_s

    def _park(self, run: Run, wait_s: float) -> None:
        run.code = None
        run.is_parked = True
        self._parked.add(run)
        self._deadlines.arm(run, self._clock.monotonic() + wait_s)

    def _completed(self, run: Run, output: Value) -> Report | None:
        if run.stop_reason is not None:
            return self._stopped(run)
        return TaskCompleted(
            token=run.token, output=output, worker=self._worker, started_at=run.started_at
        )

    def _failed(self, run: Run, error: BaseException) -> Report | None:
        if run.stop_reason is not None:
            return self._stopped(run)
        if isinstance(error, Skip):
            return TaskSkipped(
                token=run.token,
                reason=error_info(error).message,
                worker=self._worker,
                started_at=run.started_at,
            )
        info = error.info if isinstance(error, ChildCodeError) else error_info(error)
        return self._failure(run, info)

    def _stopped(self, run: Run) -> Report | None:
        if run.stop_reason is not StopReason.TIMEOUT:
            return None
        return self._failure(run, error_info(TaskTimeoutError(run.task.timeout_s)))

    def _failure(self, run: Run, info: ErrorInfo) -> TaskFailed:
        return TaskFailed(
            token=run.token, error=info, worker=self._worker, started_at=run.started_at
        )

    def _finish(self, run: Run, report: Report | None) -> None:
        if not run.keeps_slot:
            self._slots.release()
        if not run.is_parked:
            run.is_over = True
            if report is not None:
                self._reporter.put(report)
            elif run.stop_reason is StopReason.DROPPED:
                self._held.forget(run.token)
        if self._is_draining:
            self._note_quiet()

    def _note_quiet(self) -> None:
        if not self._active:
            self.is_quiet.set()
