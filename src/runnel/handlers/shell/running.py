"""`shell`: runs a program and gives its exit code and what it wrote.

A program is the leader of a session of its own: it is ended with everything that it has started,
when it takes too long, when its node is cancelled, and when its worker dies.
"""

import asyncio
import errno
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from runnel.authoring.calls import Call, ContextPlace, Mode
from runnel.core.json_types import Json
from runnel.errors import (
    InputError,
    ProgramFailedError,
    ProgramRefusedError,
    TaskTimeoutError,
)
from runnel.handlers.means import Means, check_config
from runnel.handlers.permissions import Programs
from runnel.handlers.shell.capture import Capture
from runnel.handlers.shell.guarding import Guardian
from runnel.handlers.shell.program import Program

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
