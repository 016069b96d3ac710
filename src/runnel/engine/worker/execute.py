"""Runs one call where its mode says, and answers with the result as JSON bytes."""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from functools import partial
from inspect import iscoroutine
from typing import Any, TypeAlias

from runnel.authoring.calls import Call, Mode
from runnel.authoring.context import Context
from runnel.core.retry import ErrorInfo
from runnel.engine.worker.code import Code
from runnel.engine.worker.driver import Driver
from runnel.engine.worker.jobs import Logged, Measured
from runnel.engine.worker.outputs import encode
from runnel.engine.worker.processes import Child, ProcessCode, Processes, job_of
from runnel.engine.worker.runs import Run
from runnel.engine.worker.threads import Threads
from runnel.engine.worker.values import Values
from runnel.errors import BrokenInvariantError, Skip

AnyCoroutine: TypeAlias = Coroutine[Any, Any, Any]
OnRun: TypeAlias = Callable[[Run], None]


class ChildCodeError(Exception):
    """User code in a child process raised; `info` is what is reported of it."""

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(str(info))
        self.info = info


class Executor:
    """`on_suspend` is called for each run that does not end at once, before it waits.

    `on_abandoned` is called when a run ends while its thread goes on, `on_returned` when that
    thread has come back after all.
    """

    def __init__(
        self,
        threads: Threads,
        processes: Processes,
        *,
        on_suspend: OnRun,
        on_abandoned: OnRun,
        on_returned: OnRun,
    ) -> None:
        self._threads = threads
        self._processes = processes
        self._on_suspend = on_suspend
        self._on_abandoned = on_abandoned
        self._on_returned = on_returned

    async def run(self, run: Run, call: Call, context: Context, values: Values) -> bytes:
        """Raises whatever the code raises, and CancelledError once the run was stopped."""
        if call.mode is Mode.LOOP:
            enter = copy_context().run
            result = enter(call.invoke, context)
            if iscoroutine(result):
                result = await self._drive(run, result, enter)
            return encode(result)
        self._on_suspend(run)
        if call.mode is Mode.THREAD:
            return await self._in_thread(run, call, context)
        return await self._in_process(run, call, context, values)

    async def _drive(self, run: Run, coroutine: AnyCoroutine, enter: Callable[..., Any]) -> Any:
        """Many handlers never wait: they have ended after this first step."""
        try:
            awaited = enter(coroutine.send, None)
        except StopIteration as stop:
            return stop.value
        self._on_suspend(run)
        waits = _code(run)
        code = run.code = Driver(coroutine, awaited, waits.runner, enter)
        try:
            return await code
        finally:
            run.code = waits

    async def _in_thread(self, run: Run, call: Call, context: Context) -> bytes:
        job = self._threads.start(partial(_finish, call, context), partial(self._returned, run))
        try:
            result, error = await job.outcome
        except asyncio.CancelledError:
            if not job.has_returned:
                run.keeps_slot = True
                self._on_abandoned(run)
            raise
        if error is not None:
            raise error
        if iscoroutine(result):
            return encode(await self._drive(run, result, copy_context().run))
        return bytes(result)

    def _returned(self, run: Run) -> None:
        if run.keeps_slot:
            self._on_returned(run)

    async def _in_process(self, run: Run, call: Call, context: Context, values: Values) -> bytes:
        waits = _code(run)

        def started(child: Child) -> None:
            run.code = ProcessCode(waits.runner, child)

        def news(message: Logged | Measured) -> None:
            _relay(message, context)

        try:
            answer = await self._processes.run(job_of(call, values.carried()), news, started)
        finally:
            run.code = waits  # the child may be another task's in a moment
        if answer.error is not None:
            raise ChildCodeError(answer.error)
        if answer.skipped is not None:
            raise Skip(answer.skipped)
        if not answer.output:
            raise BrokenInvariantError("a child process answered with neither result nor error")
        return bytes(answer.output)


def _finish(call: Call, context: Context) -> Any:
    """In the thread, so that writing a large result as JSON does not hold up the loop.

    A coroutine, such as a lambda around an async function returns, is left for the loop to run.
    """
    result = call.finish(context)
    return result if iscoroutine(result) else encode(result)


def _relay(message: Logged | Measured, context: Context) -> None:
    if isinstance(message, Measured):
        context.emit(message.measurement)
    else:
        context.relay_log(message.logger, message.level, message.message)


def _code(run: Run) -> Code:
    if run.code is None:
        raise BrokenInvariantError(f"{run.token} runs without a slot")
    return run.code
