"""The main program of a child process: runs one job after another and returns each result.

The child process ends when its parent ends. A thread reads the socket and ends the process as soon
as the parent has closed it, even while user code runs. On Linux, the kernel also kills the child,
in case user code never lets another thread run.

The child process ignores SIGTERM and SIGINT, because a service manager may send them to all
processes of a service. The parent then decides when the child ends.
"""

import asyncio
import ctypes
import importlib.util
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from queue import SimpleQueue
from types import FrameType
from typing import Any

import msgspec

from runnel.authoring.calls import AnyFunction, FunctionCall, Mode
from runnel.authoring.context import Context, Measurement
from runnel.authoring.functions import import_function
from runnel.authoring.signatures import compile_signature
from runnel.core.effects import TaskMessage
from runnel.core.ids import ExecutionId
from runnel.engine.worker.child_process import (
    FRAME_HEADER,
    SOFT_TIMEOUT_SIGNAL,
    ChildJob,
    ChildMessage,
    JobResult,
    LogMessage,
    MetricMessage,
    WaitAnswer,
    WaitMessage,
    decode_parent_message,
    encode_frame,
)
from runnel.engine.worker.outputs import describe_exception, encode_result, escape_text
from runnel.engine.worker.slots import current_slot
from runnel.engine.worker.task_values import TaskInputs
from runnel.errors import Skip, SoftTimeoutError, TooManyWaitingTasksError

# The module name under which a child process runs the parent's script again. With this name, the
# script's `if __name__ == "__main__"` block does not run.
MAIN = "__runnel_main__"
PR_SET_PDEATHSIG = 1
EXIT_PARENT_GONE = 70
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def main(fd: int, parent: int) -> None:
    """Runs jobs from the socket `fd` until the process `parent` ends."""
    _exit_with_parent(parent)
    _ignore_stop_signals()
    link = ParentConnection(socket.socket(fileno=fd))
    jobs: SimpleQueue[ChildJob] = SimpleQueue()
    threading.Thread(target=link.read_into, args=(jobs,), daemon=True).start()
    signal.signal(SOFT_TIMEOUT_SIGNAL, _on_soft_timeout)
    logging.getLogger().addHandler(LogForwarder(link))
    while True:
        link.send(_run_job(jobs.get(), link))


class ParentConnection:
    """The socket to the parent.

    A lock protects the socket, because user code may log from several threads at once.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self.wait_answers: SimpleQueue[WaitAnswer] = SimpleQueue()

    def send(self, answer: ChildMessage) -> None:
        """Sends a message to the parent.

        Blocks the soft timeout signal, which would otherwise interrupt a frame.
        """
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, {SOFT_TIMEOUT_SIGNAL})
            with self._lock:
                self._connection.sendall(encode_frame(answer))
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {SOFT_TIMEOUT_SIGNAL})

    def read_into(self, jobs: "SimpleQueue[ChildJob]") -> None:
        """Puts received jobs into the queue, and other messages into `wait_answers`.

        Ends the process when the parent has closed the socket.
        """
        try:
            with self._connection.makefile("rb") as stream:
                while header := stream.read(FRAME_HEADER.size):
                    message = decode_parent_message(stream.read(FRAME_HEADER.unpack(header)[0]))
                    if isinstance(message, ChildJob):
                        jobs.put(message)
                    else:
                        self.wait_answers.put(message)
        finally:
            os._exit(EXIT_PARENT_GONE)


class ParentSlot:
    """The slot of the job in the worker, which is the parent of this process."""

    def __init__(self, execution_id: ExecutionId, connection: ParentConnection) -> None:
        self.execution_id = execution_id
        self._connection = connection
        self._lock = threading.Lock()

    @asynccontextmanager
    async def lend(self, level: int = 1) -> AsyncIterator[None]:
        begun = WaitMessage(has_begun=True, level=level)
        answer = await asyncio.to_thread(self._ask, begun)
        if answer.problem:
            raise TooManyWaitingTasksError(answer.problem)
        try:
            yield
        finally:
            await asyncio.to_thread(self._ask, WaitMessage(has_begun=False))

    def _ask(self, message: WaitMessage) -> WaitAnswer:
        with self._lock:
            self._connection.send(message)
            return self._connection.wait_answers.get()


class LogForwarder(logging.Handler):
    """Forwards log records of user code to the parent process, which writes them to its own log."""

    def __init__(self, connection: ParentConnection) -> None:
        super().__init__()
        self._connection = connection

    def emit(self, record: logging.LogRecord) -> None:
        self._connection.send(
            LogMessage(record.name, record.levelno, escape_text(self.format(record)))
        )


class _CurrentJob:
    """Holds the job that is running, for the signal handler, which has no other access to it."""

    job: ChildJob | None = None


def _run_job(job: ChildJob, connection: ParentConnection) -> JobResult:
    logging.getLogger().setLevel(job.log_level)
    try:
        function = _find_function(job)
        call = FunctionCall(
            function=function,
            mode=Mode.PROCESS,
            positional=tuple(msgspec.json.decode(value) for value in job.positional),
            named={name: msgspec.json.decode(value) for name, value in job.named.items()},
            place=job.place,
            signature=compile_signature(function) if job.is_typed else None,
        )
        context = _make_context(job.task, connection)
        current_slot.set(ParentSlot(job.task.token.execution_id, connection))
        _CurrentJob.job = job
        try:
            result = call.finish(context)
        finally:
            _CurrentJob.job = None
            _flush()
        return JobResult(output=msgspec.Raw(encode_result(result, call.signature)))
    except Skip as skip:
        return JobResult(skipped=describe_exception(skip).message)
    except BaseException as error:  # noqa: BLE001  # SystemExit too is the task's error
        return JobResult(error=describe_exception(error))


def _flush() -> None:
    """Flushes stdout and stderr.

    Buffered output of user code would be lost if the process is killed.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()


def _make_context(task: TaskMessage, connection: ParentConnection) -> Context:
    def emit(_task: TaskMessage, measurement: Measurement) -> None:
        connection.send(MetricMessage(measurement))

    return Context(task, TaskInputs(task), emit)


def _find_function(job: ChildJob) -> AnyFunction:
    module, _, qualname = job.function.partition(":")
    if module == "__main__" and job.main is not None:
        _run_main_again(job.main)
        return import_function(f"{MAIN}:{qualname}")
    return import_function(job.function)


def _run_main_again(path: str) -> None:
    if MAIN in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(MAIN, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} can't be run again in a child process")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MAIN] = module
    spec.loader.exec_module(module)


def _on_soft_timeout(_signal: int, _frame: FrameType | None) -> None:
    if _CurrentJob.job is not None:
        raise SoftTimeoutError(_CurrentJob.job.task.soft_timeout_s or 0.0)


def _ignore_stop_signals() -> None:
    """Ignores the signals that ask a service to stop, which were blocked until now.

    Processes that user code starts do not ignore them: a program gets the default handlers, and a
    fork gets the former handlers. The signals are blocked during a fork: Python forgets a signal
    that reaches the new process before the process is ready.
    """
    former = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    masks = threading.local()

    def block() -> None:
        masks.former = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.former)

    def stop_ignoring() -> None:
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is _ignore:  # not a handler of user code
                signal.signal(number, former[number])
        unblock()

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=stop_ignoring)
    for number in STOP_SIGNALS:
        signal.signal(number, _ignore)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def _ignore(_signal: int, _frame: FrameType | None) -> None:
    """Does nothing. Unlike SIG_IGN, a program that user code starts does not inherit it."""


def _exit_with_parent(parent: int) -> None:
    if sys.platform == "linux":
        _libc: Any = ctypes.CDLL(None, use_errno=True)
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before prctl was called
        os._exit(EXIT_PARENT_GONE)
