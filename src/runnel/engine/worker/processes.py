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
import sys
from asyncio.subprocess import Process
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

import msgspec

from runnel.authoring.calls import Call, name_of
from runnel.authoring.context import LOGGER_PREFIX
from runnel.core.effects import Task
from runnel.engine.worker.code import Code
from runnel.engine.worker.jobs import (
    HEADER,
    SOFT_TIMEOUT,
    Done,
    Job,
    Logged,
    Measured,
    decode_answer,
    frame,
)
from runnel.engine.worker.outputs import encode
from runnel.errors import ProcessDiedError, SoftTimeoutError

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[3]);"
    "from runnel.engine.worker.child import main; main(int(sys.argv[1]), int(sys.argv[2]))"
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
