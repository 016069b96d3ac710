"""The handler `shell`: runs a program and returns its exit code and output.

The program runs with few environment variables and limited output, as the leader of its own
session. A timeout, a cancellation, or the death of the worker ends the program and its children.
"""

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

from runnel.authoring.calls import ContextPlace, FunctionCall, Mode
from runnel.core.message_text import ELLIPSIS
from runnel.core.values import Json
from runnel.errors import InputError, ProgramFailedError, ProgramRefusedError, TaskTimeoutError
from runnel.handlers import shell_guardian as guardian
from runnel.handlers.environment import HandlerEnvironment, check_config, convert_texts
from runnel.handlers.permissions import ProgramPermissions

TAIL_BYTES = 2_000


class ProgramOutput:
    """The output of a program: its first `bytes_max` bytes, and its last bytes for an error.

    `is_cut` is True if the program wrote more than `bytes_max` bytes.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._parts: list[bytes] = []
        self._size = 0
        self._tail = b""
        self._bytes_received = 0
        self.is_cut = False

    def add(self, chunk: bytes) -> None:
        kept = chunk[: self._bytes_max - self._size]
        if kept:
            self._parts.append(kept)
            self._size += len(kept)
        self._bytes_received += len(chunk)
        self.is_cut = self._bytes_received > self._bytes_max
        self._tail = (self._tail + chunk[-TAIL_BYTES:])[-TAIL_BYTES:]

    def data(self) -> bytes:
        return b"".join(self._parts)

    def text(self) -> str:
        """Returns the output as text; replaces bytes that are not UTF-8."""
        return self.data().decode(errors="replace")

    def tail(self) -> str:
        """Returns the end of the output, after an ellipsis if the beginning is left out."""
        text = self._tail.decode(errors="replace").strip()
        return ELLIPSIS + text if self._bytes_received > TAIL_BYTES else text


STDIN, STDOUT, STDERR = 0, 1, 2
# A shell runs this script. The script writes its process id to standard input, which is the pipe to
# the guardian, and then becomes the program. So the guardian knows the process id of every program
# before the program starts. The shell adds 1 ms.
STARTER_SCRIPT = 'echo "+$$" >&0; exec "$@" <{stdin}'


class Program(asyncio.SubprocessProtocol):
    """A running program with its output.

    `has_exited` is set when the program has ended. `output_closed` is set when no process can write
    to the output any more, because children may outlive the program. `close` calls `on_closed` with
    the id of the process group.
    """

    def __init__(self, bytes_max: int, on_closed: Callable[[int], None]) -> None:
        self.stdout = ProgramOutput(bytes_max)
        self.stderr = ProgramOutput(bytes_max)
        self.has_started = asyncio.Event()
        self.has_exited = asyncio.Event()
        self.output_closed = asyncio.Event()
        self._open = {STDOUT, STDERR}
        self._on_closed = on_closed
        self._is_closed = False
        self._transport: asyncio.SubprocessTransport | None = None

    @property
    def exit_code(self) -> int:
        """The exit code. If a signal ended the program, the negative number of the signal."""
        code = None if self._transport is None else self._transport.get_returncode()
        return -signal.SIGKILL if code is None else code

    async def start(
        self, arguments: list[str], *, env: dict[str, str], cwd: str | None, guardian_fd: int
    ) -> None:
        """Starts the program without input; the first argument is its path."""
        await self._start(arguments, "/dev/null", env=env, cwd=cwd, guardian_fd=guardian_fd)

    async def start_with_stdin(
        self,
        text: str,
        arguments: list[str],
        *,
        env: dict[str, str],
        cwd: str | None,
        guardian_fd: int,
    ) -> None:
        """Starts the program with a text as standard input, and ignores text that is not read."""
        read_fd, write_fd = os.pipe()
        write_end = os.fdopen(write_fd, "wb", buffering=0)
        try:
            await self._start(
                arguments,
                f"/dev/fd/{read_fd}",
                env=env,
                cwd=cwd,
                guardian_fd=guardian_fd,
                inherited_fd=read_fd,
            )
            loop = asyncio.get_running_loop()
            transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, write_end)
        except BaseException:
            write_end.close()
            raise
        finally:
            os.close(read_fd)
        transport.write(text.encode())
        transport.close()

    async def _start(
        self,
        arguments: list[str],
        stdin: str,
        *,
        env: dict[str, str],
        cwd: str | None,
        guardian_fd: int,
        inherited_fd: int | None = None,
    ) -> None:
        """Starts the process; after a cancellation, `connection_made` still runs and can end it."""
        loop = asyncio.get_running_loop()
        await asyncio.shield(
            loop.subprocess_exec(
                lambda: self,
                "/bin/sh",
                "-c",
                STARTER_SCRIPT.format(stdin=stdin),
                "sh",
                *arguments,
                stdin=guardian_fd,
                cwd=cwd,
                env=env,
                pass_fds=() if inherited_fd is None else (inherited_fd,),
                start_new_session=True,
            )
        )

    def send_signal(self, number: int) -> None:
        """Sends a signal to the process group, even if the program itself has ended."""
        if self._transport is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._transport.get_pid(), number)

    def close(self) -> None:
        """Kills the process group; kills a program that is still starting once it has started."""
        self._is_closed = True
        if self._transport is not None:
            self.send_signal(signal.SIGKILL)
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
            self.output_closed.set()

    def process_exited(self) -> None:
        self.has_exited.set()


class Guardian:
    """The worker's connection to the guardian process, which kills programs if the worker dies.

    The guardian starts with the first program and ends with the worker.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def open_pipe(self) -> int:
        """Returns the descriptor to which a new program first writes `+` and its process id.

        Starts the guardian if it does not run. The descriptor is valid until the next call.
        """
        process = self._process
        if process is None or process.poll() is not None:
            self.close()
            process = self._process = _start_guardian()
        return 0 if process.stdin is None else process.stdin.fileno()

    def report_ended(self, group: int) -> None:
        """Reports to the guardian that a process group has ended."""
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


def _start_guardian() -> "subprocess.Popen[bytes]":
    path = str(Path(guardian.__file__))
    return subprocess.Popen(  # noqa: S603  # a file of Runnel, with the interpreter of this process
        [sys.executable, "-I", "-S", path],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        start_new_session=True,
    )


HANDLER_NAME = "shell"
SHELL_PATH = "/bin/sh"
OUTPUT_BYTES_MAX = 1024 * 1024
# The variables that a program inherits from the worker. The worker's other variables may contain
# secrets.
INHERITED_VARIABLES = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
)
INHERITED_PREFIX = "LC_"
# Exit codes of shells: the program can't be executed (126), or does not exist (127).
NOT_RUNNABLE_EXIT_CODES = (126, 127)
# Time between SIGTERM and SIGKILL, shorter than the grace period of a worker's tasks.
GRACE_S = 2.0


class ShellHandler:
    """Runs programs that the operator allows."""

    def __init__(self, environment: HandlerEnvironment) -> None:
        self._programs: ProgramPermissions = environment.programs
        self._clock = environment.clock
        self._guardian = Guardian()

    def plan(self, config: Json) -> FunctionCall:
        """Plans the call of one task.

        Raises InputError for an invalid config, NotAllowedError for a program that the operator
        does not allow, and ProgramNotFoundError for a program that does not exist.
        """
        config = convert_texts(config, ("stdin",))
        check_config(HANDLER_NAME, config)
        cwd = Path(config.get("cwd", "."))
        if not cwd.is_dir():
            raise InputError(f"handler 'shell': config.cwd: there is no directory '{cwd}'")
        self._programs.check_variables(list(config.get("env", {})))
        arguments = _build_arguments(config)
        path = self._programs.find(arguments[0], cwd=cwd.absolute())
        return FunctionCall(
            function=self._run,
            mode=Mode.LOOP,
            positional=(config, path, arguments),
            place=ContextPlace.NONE,
        )

    async def close(self) -> None:
        self._guardian.close()

    async def _run(self, config: Mapping[str, Json], path: str, arguments: list[str]) -> Json:
        """Runs the program and returns its output. No process of the program outlives the call."""
        bytes_max = config.get("max_output_bytes", OUTPUT_BYTES_MAX)
        program = Program(bytes_max, on_closed=self._guardian.report_ended)
        try:
            await self._start(program, config, [path, *arguments[1:]])
            await self._wait_until_finished(program, config.get("timeout_seconds"))
        except asyncio.CancelledError:
            await self._terminate(program)
            raise
        finally:
            program.close()
        return _build_output(config, arguments[0], program)

    async def _start(
        self, program: Program, config: Mapping[str, Json], arguments: list[str]
    ) -> None:
        env, cwd, stdin = _build_environment(config), config.get("cwd"), config.get("stdin")
        guardian_fd = self._guardian.open_pipe()
        try:
            if stdin is None:
                await program.start(arguments, env=env, cwd=cwd, guardian_fd=guardian_fd)
            else:
                await program.start_with_stdin(
                    stdin, arguments, env=env, cwd=cwd, guardian_fd=guardian_fd
                )
        except OSError as error:
            if error.errno != errno.E2BIG:
                raise
            raise InputError(
                "handler 'shell': command and env are longer than this system allows; pass long "
                "texts through stdin"
            ) from error

    async def _wait_until_finished(self, program: Program, limit_s: float | None) -> None:
        if limit_s is None:
            await program.has_exited.wait()
        else:
            try:
                async with self._clock.timeout(limit_s):
                    await program.has_exited.wait()
            except TimeoutError as error:
                await self._terminate(program)
                raise TaskTimeoutError(limit_s) from error
        program.send_signal(signal.SIGKILL)  # remaining children keep the output open
        with suppress(TimeoutError):
            async with self._clock.timeout(GRACE_S):
                await program.output_closed.wait()

    async def _terminate(self, program: Program) -> None:
        """Sends SIGTERM and waits for the grace period, so that the program can clean up."""
        with suppress(TimeoutError):
            async with self._clock.timeout(GRACE_S):
                await program.has_started.wait()
                program.send_signal(signal.SIGTERM)
                await program.has_exited.wait()


def _build_output(config: Mapping[str, Json], name: str, program: Program) -> Json:
    if program.exit_code not in config.get("ok_exit_codes", (0,)):
        raise _build_failure(config, name, program)
    return {
        "exit_code": program.exit_code,
        "stdout": _parse_output(program.stdout, config.get("parse", "text"), name),
        "stderr": program.stderr.text(),
        "is_cut": program.stdout.is_cut or program.stderr.is_cut,
    }


def _build_arguments(config: Mapping[str, Json]) -> list[str]:
    command = config["command"]
    return (
        [SHELL_PATH, "-c", command]
        if isinstance(command, str)
        else [str(argument) for argument in command]
    )


def _build_environment(config: Mapping[str, Json]) -> dict[str, str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name in INHERITED_VARIABLES or name.startswith(INHERITED_PREFIX)
    }
    return inherited | {name: str(value) for name, value in config.get("env", {}).items()}


def _build_failure(config: Mapping[str, Json], name: str, program: Program) -> ProgramFailedError:
    code = program.exit_code
    ending = f"exit code {code}" if code >= 0 else f"signal {_get_signal_name(-code)}"
    is_final = code in config.get("no_retry_exit_codes", NOT_RUNNABLE_EXIT_CODES)
    kind = ProgramRefusedError if is_final else ProgramFailedError
    return kind(name, ending, stderr=program.stderr.tail())


def _get_signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _parse_output(stdout: ProgramOutput, kind: str, program: str) -> Json:
    if kind == "lines":
        return stdout.text().splitlines()
    if kind == "text":
        return stdout.text()
    try:
        return msgspec.json.decode(stdout.data())
    except (msgspec.DecodeError, RecursionError) as error:
        hint = "; the program wrote more than max_output_bytes" if stdout.is_cut else ""
        raise ProgramRefusedError(program, f"output that is not JSON: {error}{hint}") from error
