"""Child processes for CPU-bound user code: reused between tasks, killed when told to stop.

A child is the leader of its own session, so that Ctrl-C at a terminal reaches only the worker,
which decides what happens, and so that killing a child kills what it has started as well.
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
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

import msgspec

from runnel.authoring.calls import Call, ContextPlace, name_of
from runnel.authoring.context import LOGGER_PREFIX, Measurement
from runnel.core.effects import Task
from runnel.core.values import NO_DATA
from runnel.core.workflow import ErrorInfo
from runnel.engine.worker.outputs import encode
from runnel.engine.worker.task_run import Code
from runnel.errors import ProcessDiedError, SoftTimeoutError

# What a worker and its child processes say to each other: framed JSON over a socket.
#
# Nothing is pickled: the arguments are JSON already, a function travels as its name, a result is
# encoded by the process that made it, and an exception as what is reported of it.

HEADER = struct.Struct("!Q")
SOFT_TIMEOUT = signal.SIGUSR1


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """`main` is the file of the parent's `__main__`, for functions that are defined there."""

    function: str
    main: str | None
    positional: list[msgspec.Raw]
    named: dict[str, msgspec.Raw]
    place: ContextPlace
    task: Task
    log_level: int


class Done(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Exactly one of the three is set; `skipped` is what the code said when it raised Skip."""

    output: msgspec.Raw = NO_DATA
    error: ErrorInfo | None = None
    skipped: str | None = None


class Logged(msgspec.Struct, frozen=True, tag=True):
    logger: str
    level: int
    message: str


class Measured(msgspec.Struct, frozen=True, tag=True):
    measurement: Measurement


Answer: TypeAlias = Done | Logged | Measured

_encoder = msgspec.json.Encoder()
_job_decoder = msgspec.json.Decoder(Job)
_answer_decoder: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)


def frame(message: Job | Answer) -> bytes:
    body = _encoder.encode(message)
    return HEADER.pack(len(body)) + body


def decode_job(body: bytes) -> Job:
    return _job_decoder.decode(body)


def decode_answer(body: bytes) -> Answer:
    return _answer_decoder.decode(body)


_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[3]);"
    "from runnel.engine.worker.child_main import main; main(int(sys.argv[1]), int(sys.argv[2]))"
)

OnNews: TypeAlias = Callable[[Logged | Measured], None]


def job_of(call: Call, task: Task) -> Job:
    """Raises InputError when another process can't find the function by its name."""
    return Job(
        function=name_of(call.function),
        main=getattr(sys.modules["__main__"], "__file__", None),
        positional=[msgspec.Raw(encode(value)) for value in call.positional],
        named={name: msgspec.Raw(encode(value)) for name, value in call.named.items()},
        place=call.place,
        task=task,
        log_level=logging.getLogger(LOGGER_PREFIX + task.handler).getEffectiveLevel(),
    )


class Child:
    def __init__(
        self, process: Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    @classmethod
    async def start(cls) -> "Child":
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-c",
                    _BOOT,
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

    async def ask(self, job: Job, on_news: OnNews) -> Done:
        """Raises ProcessDiedError when the process ends before it has answered."""
        try:
            self._writer.write(frame(job))
            await self._writer.drain()
            while not isinstance(answer := await self._receive(), Done):
                on_news(answer)
            return answer
        except (asyncio.IncompleteReadError, ConnectionError):
            raise ProcessDiedError(await self._process.wait()) from None

    def signal_soft_timeout(self) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(SOFT_TIMEOUT)

    def kill(self) -> None:
        self._writer.close()
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def wait(self) -> None:
        await self._process.wait()

    async def _receive(self) -> Done | Logged | Measured:
        header = await self._reader.readexactly(HEADER.size)
        return decode_answer(await self._reader.readexactly(HEADER.unpack(header)[0]))


class ProcessCode(Code):
    """User code in a child; cancelling ends the wait for its answer, which kills the child."""

    __slots__ = ("_child",)

    def __init__(self, runner: asyncio.Task[None], child: Child) -> None:
        super().__init__(runner)
        self._child = child

    def soften(self, error: SoftTimeoutError) -> None:
        self._child.signal_soft_timeout()


class Processes:
    """As many children as tasks in `process` mode ever ran at once: the slots bound them."""

    def __init__(self) -> None:
        self._idle: list[Child] = []
        self._dying: list[Child] = []

    async def run(self, job: Job, on_news: OnNews, on_start: Callable[[Child], None]) -> Done:
        """When cancelled, the child is killed: that is the hard stop that threads lack."""
        child = self._reuse() or await Child.start()
        on_start(child)
        try:
            answer = await child.ask(job, on_news)
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

    def _reuse(self) -> Child | None:
        while self._idle:
            child = self._idle.pop()
            if child.is_usable:
                return child
            self._discard(child)
        return None

    def _discard(self, child: Child) -> None:
        child.kill()
        self._dying = [*(each for each in self._dying if not each.has_ended), child]
