"""The main program of a child process: takes one job after another and answers each.

It dies with its parent. A thread reads the socket and ends the process when the other side is
gone, also while user code runs; on Linux the kernel does it too, in case that code never lets
another thread run.
"""

import ctypes
import importlib.util
import logging
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from queue import SimpleQueue
from types import FrameType
from typing import Any

import msgspec

from runnel.authoring.calls import AnyFunction, Call, Mode
from runnel.authoring.context import Context, Measurement
from runnel.authoring.functions import locate
from runnel.core.effects import Task
from runnel.engine.worker.child_process import (
    HEADER,
    SOFT_TIMEOUT,
    Answer,
    Done,
    Job,
    Logged,
    Measured,
    decode_job,
    frame,
)
from runnel.engine.worker.outputs import encode, error_info, storable
from runnel.engine.worker.task_values import Values
from runnel.errors import Skip, SoftTimeoutError

# The name under which a parent's script is run again here: its `if __name__ == "__main__"` is not.
MAIN = "__runnel_main__"
PR_SET_PDEATHSIG = 1
EXIT_PARENT_GONE = 70


def main(fd: int, parent: int) -> None:
    _die_with(parent)
    link = Link(socket.socket(fileno=fd))
    jobs: SimpleQueue[Job] = SimpleQueue()
    threading.Thread(target=link.read_into, args=(jobs,), daemon=True).start()
    signal.signal(SOFT_TIMEOUT, _on_soft_timeout)
    logging.getLogger().addHandler(Relay(link))
    while True:
        link.send(_answer(jobs.get(), link))


class Link:
    """The socket to the parent; user code may log from several threads at once."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def send(self, answer: Answer) -> None:
        """A soft timeout that comes meanwhile waits: it must not leave half a frame behind."""
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, {SOFT_TIMEOUT})
            with self._lock:
                self._connection.sendall(frame(answer))
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {SOFT_TIMEOUT})

    def read_into(self, jobs: "SimpleQueue[Job]") -> None:
        """Ends the process at the end of the stream, which is the end of the parent."""
        try:
            with self._connection.makefile("rb") as stream:
                while header := stream.read(HEADER.size):
                    jobs.put(decode_job(stream.read(HEADER.unpack(header)[0])))
        finally:
            os._exit(EXIT_PARENT_GONE)


class Relay(logging.Handler):
    """Log records of user code are written by the parent, with everything else."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link

    def emit(self, record: logging.LogRecord) -> None:
        self._link.send(Logged(record.name, record.levelno, storable(self.format(record))))


class _Running:
    """The job in hand, as the signal handler needs it: it has no other way to know."""

    job: Job | None = None


def _answer(job: Job, link: Link) -> Done:
    logging.getLogger().setLevel(job.log_level)
    try:
        function = _find(job)
        call = Call(
            function=function,
            mode=Mode.PROCESS,
            positional=tuple(msgspec.json.decode(value) for value in job.positional),
            named={name: msgspec.json.decode(value) for name, value in job.named.items()},
            place=job.place,
        )
        context = _context(job.task, link)
        _Running.job = job
        try:
            result = call.finish(context)
        finally:
            _Running.job = None
            _flush()
        return Done(output=msgspec.Raw(encode(result)))
    except Skip as skip:
        return Done(skipped=error_info(skip).message)
    except BaseException as error:  # noqa: BLE001  # SystemExit too is the task's error
        return Done(error=error_info(error))


def _flush() -> None:
    """What the code has printed would be lost when this process is killed."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()


def _context(task: Task, link: Link) -> Context:
    def emit(_task: Task, measurement: Measurement) -> None:
        link.send(Measured(measurement))

    return Context(task, Values(task), emit)


def _find(job: Job) -> AnyFunction:
    module, _, qualname = job.function.partition(":")
    if module == "__main__" and job.main is not None:
        _run_main_again(job.main)
        return locate(f"{MAIN}:{qualname}")
    return locate(job.function)


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
    if _Running.job is not None:
        raise SoftTimeoutError(_Running.job.task.soft_timeout_s or 0.0)


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        _libc: Any = ctypes.CDLL(None, use_errno=True)
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the kernel was asked
        os._exit(EXIT_PARENT_GONE)
