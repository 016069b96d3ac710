"""Child processes for CPU-bound user code: reused between tasks, killed to stop a task.

Each child leads a session of its own. As a result, Ctrl-C at a terminal reaches only the worker.
Killing a child also kills the processes that the child has started.
"""

import asyncio
import json
import logging
import os
import signal
import socket
import struct
import sys
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

import msgspec

from runnel.authoring.calls import ContextPlace, FunctionCall
from runnel.authoring.context import LOGGER_PREFIX, Measurement
from runnel.authoring.functions import get_import_name
from runnel.core.effects import TaskMessage
from runnel.core.retry import ErrorInfo
from runnel.core.values import NO_DATA
from runnel.engine.worker.outputs import encode_result
from runnel.engine.worker.task_run import RunningCode
from runnel.errors import ProcessDiedError, SoftTimeoutError, TooManyWaitingTasksError

# The protocol between a worker and its child processes: framed JSON over a socket.
# The protocol does not use pickle. Arguments and results are sent as JSON, a function by its name,
# and an exception as its description.

FRAME_HEADER = struct.Struct("!Q")
SOFT_TIMEOUT_SIGNAL = signal.SIGUSR1


class ChildJob(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One function call that a child process has to run.

    `main` is the file of the parent's `__main__` module. The child runs this file if the function
    is defined there. With `is_typed`, the child converts arguments and result by the annotations.
    """

    function: str
    main: str | None
    positional: list[msgspec.Raw]
    named: dict[str, msgspec.Raw]
    place: ContextPlace
    is_typed: bool = False
    task: TaskMessage
    log_level: int


class JobResult(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The result of a job: exactly one field is set. `skipped` is the message of a raised Skip."""

    output: msgspec.Raw = NO_DATA
    error: ErrorInfo | None = None
    skipped: str | None = None


class LogMessage(msgspec.Struct, frozen=True, tag=True):
    logger: str
    level: int
    message: str


class MetricMessage(msgspec.Struct, frozen=True, tag=True):
    measurement: Measurement


class WaitMessage(msgspec.Struct, frozen=True, tag=True):
    """The code begins to wait for an execution, or has waited for one and asks for its slot.

    The parent answers each WaitMessage with a WaitAnswer.
    """

    has_begun: bool
    level: int = 1


class WaitAnswer(msgspec.Struct, frozen=True, tag=True):
    """The slot is lent or taken back. `problem` says why it can't be lent."""

    problem: str = ""


NoteMessage: TypeAlias = LogMessage | MetricMessage | WaitMessage
ChildMessage: TypeAlias = JobResult | NoteMessage
ParentMessage: TypeAlias = ChildJob | WaitAnswer

_encoder = msgspec.json.Encoder()
_parent_decoder: msgspec.json.Decoder[ParentMessage] = msgspec.json.Decoder(ParentMessage)
_answer_decoder: msgspec.json.Decoder[ChildMessage] = msgspec.json.Decoder(ChildMessage)


def encode_frame(message: ParentMessage | ChildMessage) -> bytes:
    body = _encoder.encode(message)
    return FRAME_HEADER.pack(len(body)) + body


def decode_parent_message(body: bytes) -> ParentMessage:
    return _parent_decoder.decode(body)


def decode_child_message(body: bytes) -> ChildMessage:
    return _answer_decoder.decode(body)


_BOOT_CODE = (
    "import json, signal, sys; sys.path[:] = json.loads(sys.argv[3]);"
    "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT});"
    "from runnel.engine.worker.child_main import main; main(int(sys.argv[1]), int(sys.argv[2]))"
)

MessageCallback: TypeAlias = Callable[[NoteMessage], Awaitable[None]]


def make_job(call: FunctionCall, task: TaskMessage) -> ChildJob:
    """Returns the job for a call.

    Raises InputError if a child process can't import the function by its name.
    """
    return ChildJob(
        function=get_import_name(call.function),
        main=getattr(sys.modules["__main__"], "__file__", None),
        positional=[msgspec.Raw(encode_result(value)) for value in call.positional],
        named={name: msgspec.Raw(encode_result(value)) for name, value in call.named.items()},
        place=call.place,
        is_typed=call.signature is not None,
        task=task,
        log_level=logging.getLogger(LOGGER_PREFIX + task.handler).getEffectiveLevel(),
    )


class ChildProcess:
    """A running child process and the connection to it."""

    def __init__(
        self, process: Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    @classmethod
    async def start(cls) -> "ChildProcess":
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-c",
                    _BOOT_CODE,
                    str(theirs.fileno()),
                    str(os.getpid()),
                    json.dumps(sys.path),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        return cls(process, reader, writer)

    @property
    def has_ended(self) -> bool:
        return self._process.returncode is not None

    @property
    def is_usable(self) -> bool:
        return not self.has_ended and not self._reader.at_eof()

    async def run_job(self, job: ChildJob, on_message: MessageCallback) -> JobResult:
        """Runs a job in the child and returns its result.

        Raises ProcessDiedError if the child ends without a result.
        """
        try:
            self._writer.write(encode_frame(job))
            await self._writer.drain()
            while not isinstance(answer := await self._receive(), JobResult):
                await self._handle_note(answer, on_message)
            return answer
        except (asyncio.IncompleteReadError, ConnectionError):
            raise ProcessDiedError(await self._process.wait()) from None

    async def _handle_note(self, note: NoteMessage, on_message: MessageCallback) -> None:
        if not isinstance(note, WaitMessage):
            await on_message(note)
            return
        problem = ""
        try:
            await on_message(note)
        except TooManyWaitingTasksError as error:
            problem = str(error)
        self._writer.write(encode_frame(WaitAnswer(problem)))
        await self._writer.drain()

    def signal_soft_timeout(self) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(SOFT_TIMEOUT_SIGNAL)

    def kill(self) -> None:
        self._writer.close()
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def wait(self) -> None:
        await self._process.wait()

    async def _receive(self) -> ChildMessage:
        header = await self._reader.readexactly(FRAME_HEADER.size)
        return decode_child_message(await self._reader.readexactly(FRAME_HEADER.unpack(header)[0]))


class ProcessCode(RunningCode):
    """User code in a child process.

    A cancellation ends the wait for the result, and the pool then kills the child.
    """

    __slots__ = ("_child",)

    def __init__(self, runner: asyncio.Task[None], child: ChildProcess) -> None:
        super().__init__(runner)
        self._child = child

    def raise_soft_timeout(self, error: SoftTimeoutError) -> None:
        self._child.signal_soft_timeout()


class ChildProcessPool:
    """A pool of child processes.

    The pool grows to the largest number of `process` tasks that ran at the same time.

    The slots of the worker bound the size of the pool.
    """

    def __init__(self) -> None:
        self._idle: list[ChildProcess] = []
        self._dying: list[ChildProcess] = []

    async def run(
        self, job: ChildJob, on_message: MessageCallback, on_start: Callable[[ChildProcess], None]
    ) -> JobResult:
        """Runs a job in an idle or new child process; returns its result.

        A cancellation kills the child process, unlike a thread, which can't be killed.
        """
        child = self._reuse() or await ChildProcess.start()
        on_start(child)
        try:
            answer = await child.run_job(job, on_message)
        except BaseException:
            self._discard(child)
            raise
        self._idle.append(child)
        return answer

    async def close(self) -> None:
        for child in (*self._idle, *self._dying):
            child.kill()
            await child.wait()
        self._idle.clear()
        self._dying.clear()

    def _reuse(self) -> ChildProcess | None:
        while self._idle:
            child = self._idle.pop()
            if child.is_usable:
                return child
            self._discard(child)
        return None

    def _discard(self, child: ChildProcess) -> None:
        child.kill()
        self._dying = [*(dying for dying in self._dying if not dying.has_ended), child]
