"""Programs as tasks: in a clean environment, with bounded output, ended as a whole group."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast

import msgspec

from runnel.authoring.calls import Call, ContextPlace, Mode
from runnel.core.values import Json
from runnel.errors import InputError, ProgramFailedError, ProgramRefusedError, TaskTimeoutError
from runnel.handlers import shell_guardian as guardian
from runnel.handlers.permissions import CUT, Means, Programs, check_config

# What a program writes: its beginning is kept, and its last words for an error.

TAIL_BYTES = 2_000


class Capture:
    """`is_cut` tells that the program wrote more than `bytes_max`."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._parts: list[bytes] = []
        self._size = 0
        self._tail = b""
        self._heard = 0
        self.is_cut = False

    def add(self, chunk: bytes) -> None:
        kept = chunk[: self._bytes_max - self._size]
        if kept:
            self._parts.append(kept)
            self._size += len(kept)
        self._heard += len(chunk)
        self.is_cut = self._heard > self._bytes_max
        self._tail = (self._tail + chunk[-TAIL_BYTES:])[-TAIL_BYTES:]

    def data(self) -> bytes:
        return b"".join(self._parts)

    def text(self) -> str:
        """What is no UTF-8 is replaced, not refused: a program may write anything."""
        return self.data().decode(errors="replace")

    def tail(self) -> str:
        """Marked if something stood before it."""
        text = self._tail.decode(errors="replace").strip()
        return CUT + text if self._heard > TAIL_BYTES else text


# One program that runs, with everything that it has started: fed, heard, and ended as a group.

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


# The worker's side of the guardian: who would be left behind if this process were killed now.


class Guardian:
    """Started with the first program, ended with the worker."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def lifeline(self) -> int:
        """A descriptor to which a program writes `+` and its id before it does anything else.

        Valid until the next call: a guardian that was killed is replaced.
        """
        process = self._process
        if process is None or process.poll() is not None:
            self.close()
            process = self._process = _started()
        return 0 if process.stdin is None else process.stdin.fileno()

    def forget(self, group: int) -> None:
        process = self._process
        if process is not None and process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.write(f"-{group}\n".encode())

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.stdin is not None:
                process.stdin.close()
            process.wait()


def _started() -> "subprocess.Popen[bytes]":
    path = str(Path(guardian.__file__))
    return subprocess.Popen(  # noqa: S603  # our own file, by our own interpreter
        [sys.executable, "-I", "-S", path],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        start_new_session=True,
    )


# `shell`: runs a program and gives its exit code and what it wrote.
#
# A program is the leader of a session of its own: it is ended with everything that it has
# started, when it takes too long, when its node is cancelled, and when its worker dies.

NAME = "shell"
SH = "/bin/sh"
OUTPUT_BYTES = 1024 * 1024
# Of the worker's environment a program sees these; the rest may hold what is none of its business.
PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR")
PASSED_ON_PREFIX = "LC_"
# Found but not runnable, and not found at all, as shells say it.
NO_USE = (126, 127)
# Between a request to end and the end: less than a worker gives its tasks.
GRACE_S = 2.0


class Shell:
    def __init__(self, means: Means) -> None:
        self._programs: Programs = means.programs
        self._clock = means.clock
        self._guardian = Guardian()

    def plan(self, config: Json) -> Call:
        """Raises InputError for a config with problems, NotAllowedError for a program that the
        operator has not allowed, ProgramNotFoundError for one that is not there.
        """
        check_config(NAME, config)
        cwd = Path(config.get("cwd", "."))
        if not cwd.is_dir():
            raise InputError(f"handler 'shell': config.cwd: there is no folder '{cwd}'")
        self._programs.check_variables(list(config.get("env", {})))
        arguments = _arguments(config)
        path = self._programs.find(arguments[0], cwd=cwd.absolute())
        return Call(
            function=self._run,
            mode=Mode.LOOP,
            positional=(config, path, arguments),
            place=ContextPlace.NONE,
        )

    async def close(self) -> None:
        self._guardian.close()

    async def _run(self, config: Mapping[str, Json], path: str, arguments: list[str]) -> Json:
        """Nothing that the program has started is left when this ends, however it ends."""
        bytes_max = config.get("max_output_bytes", OUTPUT_BYTES)
        program = Program(bytes_max, on_closed=self._guardian.forget)
        try:
            await self._start(program, config, [path, *arguments[1:]])
            await self._until_over(program, config.get("timeout_seconds"))
        except asyncio.CancelledError:
            await self._end_gently(program)
            raise
        finally:
            program.close()
        return _output(config, arguments[0], program)

    async def _start(
        self, program: Program, config: Mapping[str, Json], arguments: list[str]
    ) -> None:
        env, cwd, stdin = _environment(config), config.get("cwd"), config.get("stdin")
        lifeline = self._guardian.lifeline()
        try:
            if stdin is None:
                await program.start(arguments, env=env, cwd=cwd, lifeline=lifeline)
            else:
                await program.start_with(stdin, arguments, env=env, cwd=cwd, lifeline=lifeline)
        except OSError as error:
            if error.errno != errno.E2BIG:
                raise
            raise InputError(
                "handler 'shell': command and env are longer than this system allows; give long "
                "texts to stdin"
            ) from error

    async def _until_over(self, program: Program, limit_s: float | None) -> None:
        if limit_s is None:
            await program.has_exited.wait()
        else:
            try:
                async with self._clock.timeout(limit_s):
                    await program.has_exited.wait()
            except TimeoutError as error:
                await self._end_gently(program)
                raise TaskTimeoutError(limit_s) from error
        program.signal(signal.SIGKILL)  # children that it has left behind hold its output
        with suppress(TimeoutError):
            async with self._clock.timeout(GRACE_S):
                await program.is_silent.wait()

    async def _end_gently(self, program: Program) -> None:
        """SIGTERM first: what it has begun, it may put in order."""
        with suppress(TimeoutError):
            async with self._clock.timeout(GRACE_S):
                await program.has_started.wait()
                program.signal(signal.SIGTERM)
                await program.has_exited.wait()


def _output(config: Mapping[str, Json], name: str, program: Program) -> Json:
    if program.exit_code not in config.get("ok_exit_codes", (0,)):
        raise _failure(config, name, program)
    return {
        "exit_code": program.exit_code,
        "stdout": _parsed(program.stdout, config.get("parse", "text"), name),
        "stderr": program.stderr.text(),
        "is_cut": program.stdout.is_cut or program.stderr.is_cut,
    }


def _arguments(config: Mapping[str, Json]) -> list[str]:
    command = config["command"]
    return [SH, "-c", command] if isinstance(command, str) else [str(each) for each in command]


def _environment(config: Mapping[str, Json]) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in PASSED_ON or name.startswith(PASSED_ON_PREFIX)
    }
    return kept | {name: str(value) for name, value in config.get("env", {}).items()}


def _failure(config: Mapping[str, Json], name: str, program: Program) -> ProgramFailedError:
    code = program.exit_code
    ending = f"exit code {code}" if code >= 0 else f"signal {_name(-code)}"
    is_final = code in config.get("no_retry_exit_codes", NO_USE)
    kind = ProgramRefusedError if is_final else ProgramFailedError
    return kind(name, ending, stderr=program.stderr.tail())


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _parsed(stdout: Capture, kind: str, program: str) -> Json:
    if kind == "lines":
        return stdout.text().splitlines()
    if kind == "text":
        return stdout.text()
    try:
        return msgspec.json.decode(stdout.data())
    except (msgspec.DecodeError, RecursionError) as error:
        cut = "; it wrote more than max_output_bytes" if stdout.is_cut else ""
        raise ProgramRefusedError(program, f"output that is no JSON: {error}{cut}") from error
