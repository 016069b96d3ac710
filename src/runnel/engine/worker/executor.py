"""Runs one call according to its mode: on the event loop, in a thread or in a child process."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import copy_context
from functools import partial
from inspect import iscoroutine
from typing import Any, TypeAlias

from runnel.authoring.calls import Mode
from runnel.authoring.context import Context
from runnel.core.retry import ErrorInfo
from runnel.engine.worker.child_process import (
    ChildProcess,
    ChildProcessPool,
    LogMessage,
    MetricMessage,
    NoteMessage,
    ProcessCode,
    WaitMessage,
    make_job,
)
from runnel.engine.worker.node_plan import PreparedCall
from runnel.engine.worker.outputs import encode_result
from runnel.engine.worker.slots import RunSlot, Slots, current_slot
from runnel.engine.worker.task_run import RunningCode, TaskRun, get_code
from runnel.engine.worker.threads import RunCallback, ShortCall, ThreadJob, ThreadPool
from runnel.errors import BrokenInvariantError, Skip, SoftTimeoutError
from runnel.ports.clock import Clock

# The CoroutineDriver steps a coroutine of user code inside the slot's own asyncio task. A separate
# asyncio task per coroutine would cost 6 µs. A plain `await` could neither raise a soft timeout at
# the point where the code waits, nor end code that swallows its cancellation. The driver is between
# the asyncio task and the coroutine, and avoids all three problems. The executor makes the
# coroutine's first step at once. `asyncio.current_task()` stays the same after each suspension, so
# `asyncio.timeout` and task groups in user code work. Context variables that the code sets do not
# leak into the slot's next task.


class CoroutineDriver(RunningCode):
    """Steps a coroutine of user code. The first step is done: the coroutine waits for `awaited`.

    `enter` is the `run` method of the contextvars.Context in which the code runs.
    """

    __slots__ = ("_awaited", "_coroutine", "_enter", "_is_killed", "_soft")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        awaited: Any,
        runner: asyncio.Task[None],
        enter: Callable[..., Any],
    ) -> None:
        super().__init__(runner)
        self._coroutine = coroutine
        self._awaited = awaited
        self._enter = enter
        self._soft: SoftTimeoutError | None = None
        self._is_killed = False

    def __await__(self) -> Generator[Any, None, Any]:
        enter, step, awaited = self._enter, self._coroutine.send, self._awaited
        try:
            while True:
                try:
                    yield awaited
                except BaseException as error:  # noqa: BLE001  # thrown into the coroutine
                    awaited = self._throw(error)
                else:
                    awaited = enter(step, None)
        except StopIteration as stop:
            return stop.value

    def raise_soft_timeout(self, error: SoftTimeoutError) -> None:
        """Raises `error` at the await where the code waits.

        The code may catch `error` and continue.
        """
        self._soft = error
        self.runner.cancel()

    def cancel(self) -> None:
        self._soft = None
        self.runner.cancel()

    def kill(self) -> None:
        """Closes the coroutine.

        The `finally` blocks of the coroutine run up to their first await. The coroutine is never
        resumed.
        """
        self._is_killed = True
        self.runner.cancel()

    def _throw(self, error: BaseException) -> Any:
        if self._is_killed or isinstance(error, GeneratorExit):
            self._enter(self._coroutine.close)
            raise error
        if self._soft is not None and isinstance(error, asyncio.CancelledError):
            error, self._soft = self._soft, None
            self.runner.uncancel()
        return self._enter(self._coroutine.throw, error)


AnyCoroutine: TypeAlias = Coroutine[Any, Any, Any]


class ChildCodeError(Exception):
    """User code in a child process raised an exception. `info` describes that exception."""

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(str(info))
        self.info = info


class Executor:
    """Runs calls in their mode and reports changes of a run through callbacks.

    `on_suspend` is called before a run waits for the first time. `on_abandoned` is called when a
    run ends while its thread continues, and `on_returned` when that thread returns after all.
    """

    def __init__(
        self,
        threads: ThreadPool,
        processes: ChildProcessPool,
        slots: Slots,
        clock: Clock,
        *,
        on_suspend: RunCallback,
        on_abandoned: RunCallback,
        on_returned: RunCallback,
    ) -> None:
        self._threads = threads
        self._clock = clock
        self._processes = processes
        self._slots = slots
        self._on_suspend = on_suspend
        self._on_abandoned = on_abandoned
        self._on_returned = on_returned

    async def run(self, prepared: PreparedCall) -> bytes:
        """Runs the call and returns its encoded result.

        Raises the exception of the code, or CancelledError if the run was stopped.
        """
        run, call, context = prepared.run, prepared.call, prepared.context
        if call.mode is Mode.LOOP:
            enter = copy_context().run
            result = enter(call.invoke, context)
            if iscoroutine(result):
                result = await self._drive(run, result, enter)
            return encode_result(result, call.signature)
        self._on_suspend(run)
        if call.mode is Mode.THREAD:
            return await self._in_thread(prepared)
        return await self._in_process(prepared)

    async def _drive(self, run: TaskRun, coroutine: AnyCoroutine, enter: Callable[..., Any]) -> Any:
        """Runs the coroutine and returns its result.

        Many handlers never wait and end in the first step.
        """
        slot = RunSlot(self._slots, run)
        enter(current_slot.set, slot)
        try:
            awaited = enter(coroutine.send, None)
        except StopIteration as stop:
            return stop.value
        self._on_suspend(run)
        outer_code = get_code(run)
        code = run.code = CoroutineDriver(coroutine, awaited, outer_code.runner, enter)
        try:
            return await code
        finally:
            run.code = outer_code
            slot.close()

    def make_short_call(self, prepared: PreparedCall) -> ShortCall:
        """Makes a call for a batch. `finish` takes its result."""
        slot = RunSlot(self._slots, prepared.run)
        return ShortCall(prepared, slot, partial(_run_in_thread, prepared, slot))

    async def finish(self, prepared: PreparedCall, result: Any) -> bytes:
        """Returns the encoded result of a call in a thread, which may have returned a coroutine."""
        if iscoroutine(result):
            result = await self._drive(prepared.run, result, copy_context().run)
            return encode_result(result, prepared.call.signature)
        return bytes(result)

    async def _in_thread(self, prepared: PreparedCall) -> bytes:
        run = prepared.run
        slot = RunSlot(self._slots, run)
        job = ThreadJob(
            partial(_run_in_thread, prepared, slot),
            prepared.plan.duration,
            self._clock,
            partial(self._on_thread_returned, run),
        )
        self._threads.start(job)
        try:
            result, error = await job.outcome
        except asyncio.CancelledError:
            if not job.has_returned:
                self._on_abandoned(run)
            raise
        finally:
            slot.close()
        if error is not None:
            raise error
        return await self.finish(prepared, result)

    def _on_thread_returned(self, run: TaskRun) -> None:
        self._threads.add_idle()
        if run.is_abandoned:
            self._on_returned(run)

    async def _in_process(self, prepared: PreparedCall) -> bytes:
        run, context = prepared.run, prepared.context
        outer_code = get_code(run)
        slot = RunSlot(self._slots, run)

        def on_start(child: ChildProcess) -> None:
            run.code = ProcessCode(outer_code.runner, child)

        async def on_message(message: NoteMessage) -> None:
            if isinstance(message, WaitMessage):
                await (slot.begin_wait(message.level) if message.has_begun else slot.end_wait())
            else:
                _forward_message(message, context)

        try:
            answer = await self._processes.run(
                make_job(prepared.call, prepared.values.make_portable_task()), on_message, on_start
            )
        finally:
            run.code = outer_code  # the child may run another task next
            slot.close()
        if answer.error is not None:
            raise ChildCodeError(answer.error)
        if answer.skipped is not None:
            raise Skip(answer.skipped)
        if not answer.output:
            raise BrokenInvariantError("a child process returned neither a result nor an error")
        return bytes(answer.output)


def _run_in_thread(prepared: PreparedCall, slot: RunSlot) -> Any:
    """Runs the call and returns its encoded result.

    The thread encodes the result, so that a large result does not block the event loop.

    If the call returns a coroutine, as a lambda around an async function does, returns that
    coroutine. The event loop then runs that coroutine.
    """
    current_slot.set(slot)
    call = prepared.call
    result = call.finish(prepared.context)
    return result if iscoroutine(result) else encode_result(result, call.signature)


def _forward_message(message: LogMessage | MetricMessage, context: Context) -> None:
    if isinstance(message, MetricMessage):
        context.emit(message.measurement)
    else:
        context.relay_log(message.logger, message.level, message.message)
