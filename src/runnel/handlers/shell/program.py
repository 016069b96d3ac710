"""One program that runs, with everything that it has started: fed, heard, and ended as a group."""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from runnel.handlers.shell.capture import Capture

STDIN, STDOUT, STDERR = 0, 1, 2
# Says who it is to the guardian, which is its standard input till then, and becomes the program:
# at no moment is there a program that the guardian does not know of. A shell adds 1 ms.
STARTER = 'echo "+$$" >&0; exec "$@" <{stdin}'


class Program(asyncio.SubprocessProtocol):
    """`has_exited` is set when it has ended itself, `is_silent` when nobody can write any more: a
    program may leave children behind who still hold its output. `on_closed` is given its group.
    """

    def __init__(self, bytes_max: int, on_closed: Callable[[int], None]) -> None:
        self.stdout = Capture(bytes_max)
        self.stderr = Capture(bytes_max)
        self.has_started = asyncio.Event()
        self.has_exited = asyncio.Event()
        self.is_silent = asyncio.Event()
        self._open = {STDOUT, STDERR}
        self._on_closed = on_closed
        self._is_closed = False
        self._transport: asyncio.SubprocessTransport | None = None

    @property
    def exit_code(self) -> int:
        """The number of the signal, negative, that ended it, if one did."""
        code = None if self._transport is None else self._transport.get_returncode()
        return -signal.SIGKILL if code is None else code

    async def start(
        self, arguments: list[str], *, env: dict[str, str], cwd: str | None, lifeline: int
    ) -> None:
        """With nothing to read; the first of the arguments is a path."""
        await self._start(arguments, "/dev/null", env=env, cwd=cwd, lifeline=lifeline)

    async def start_with(
        self,
        text: str,
        arguments: list[str],
        *,
        env: dict[str, str],
        cwd: str | None,
        lifeline: int,
    ) -> None:
        """As `start`, with a text on its standard input: it may end before it has read it all."""
        theirs, ours = os.pipe()
        feeding = os.fdopen(ours, "wb", buffering=0)
        try:
            await self._start(
                arguments, f"/dev/fd/{theirs}", env=env, cwd=cwd, lifeline=lifeline, passed=theirs
            )
            loop = asyncio.get_running_loop()
            writing, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, feeding)
        except BaseException:
            feeding.close()
            raise
        finally:
            os.close(theirs)
        writing.write(text.encode())
        writing.close()

    async def _start(
        self,
        arguments: list[str],
        stdin: str,
        *,
        env: dict[str, str],
        cwd: str | None,
        lifeline: int,
        passed: int | None = None,
    ) -> None:
        """Cancelled, it still goes on to `connection_made`: who else would know what to end?"""
        loop = asyncio.get_running_loop()
        await asyncio.shield(
            loop.subprocess_exec(
                lambda: self,
                "/bin/sh",
                "-c",
                STARTER.format(stdin=stdin),
                "sh",
                *arguments,
                stdin=lifeline,
                cwd=cwd,
                env=env,
                pass_fds=() if passed is None else (passed,),
                start_new_session=True,
            )
        )

    def signal(self, number: int) -> None:
        """To all of its group, also when only its children are left."""
        if self._transport is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._transport.get_pid(), number)

    def close(self) -> None:
        """Ends by force what is left; if it is being started, as soon as it was."""
        self._is_closed = True
        if self._transport is not None:
            self.signal(signal.SIGKILL)
            self._transport.close()
            self._on_closed(self._transport.get_pid())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self.has_started.set()
        if self._is_closed:
            self.close()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        (self.stdout if fd == STDOUT else self.stderr).add(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open.discard(fd)
        if not self._open:
            self.is_silent.set()

    def process_exited(self) -> None:
        self.has_exited.set()
