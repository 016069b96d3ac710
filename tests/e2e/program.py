"""Runs the program `runnel` in a separate process with its own data directory.

Most tests do not test the start of Python. Their processes are forks of one process that has
imported everything (tests/fork_server.py). `command` returns the command for a real start.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, BinaryIO

from runnel.settings.variables import VARIABLES
from tests.fork_server import ForkedCommand, Streams, get_fork_server

DEADLINE_S = 20.0 * float(os.environ.get("RUNNEL_BUDGET_FACTOR", "1"))

STEPS = """
import asyncio
from pathlib import Path

def note(file, text):
    with Path(file).open("a") as log:
        print(text, file=log)
    print("said by user code", flush=True)
    return text

async def until(file, gate):
    note(file, "begun")
    while not Path(gate).exists():
        await asyncio.sleep(0.02)
    note(file, "ended")

async def hold(file):
    note(file, "held")
    await asyncio.Event().wait()

def boom():
    raise ValueError("it broke")
"""

FLOWS: dict[str, dict[str, Any]] = {
    "chain": {
        "nodes": [
            {"id": "a", "handler": "input", "config": {"x": 1}},
            {"id": "b", "handler": "output", "config": {"y": "{{ a.x }}"}},
        ]
    },
    "failing": {
        "nodes": [
            {"id": "a", "handler": "python", "config": {"function": "steps:boom"}},
            {"id": "b", "handler": "output", "dependencies": ["a"]},
        ]
    },
    "noted": {
        "nodes": [
            {
                "id": "first",
                "handler": "python",
                "config": {
                    "function": "steps:note",
                    "args": {"file": "{{ input.file }}", "text": "first"},
                },
            },
            {
                "id": "approve",
                "handler": "wait_for_signal",
                "dependencies": ["first"],
                "config": {"signal": "approve"},
            },
            {
                "id": "last",
                "handler": "output",
                "config": {"by": "{{ approve.by }}"},
            },
        ]
    },
    "holding": {
        "nodes": [
            {
                "id": "hold",
                "handler": "python",
                "config": {"function": "steps:hold", "args": {"file": "{{ input.file }}"}},
            },
            {"id": "after", "handler": "output", "dependencies": ["hold"]},
        ]
    },
    "gated": {
        "nodes": [
            {
                "id": "first",
                "handler": "python",
                "config": {
                    "function": "steps:until",
                    "args": {"file": "{{ input.file }}", "gate": "{{ input.gate }}"},
                },
            },
            {"id": "last", "handler": "output", "dependencies": ["first"]},
        ]
    },
    "tidied": {
        "nodes": [
            {"id": "approve", "handler": "wait_for_signal", "config": {"signal": "approve"}},
            {
                "id": "tidy",
                "handler": "output",
                "dependencies": ["approve"],
                "run_when": "all_settled",
                "config": {"tidied": True},
            },
        ]
    },
}


class Program:
    """Runs commands in `folder`, which holds the workflows, their functions and the data."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log.txt"
        (folder / "steps.py").write_text(STEPS)
        for name, flow in FLOWS.items():
            (folder / f"{name}.json").write_text(json.dumps({"name": name, **flow}))

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        complete_environment = clean_environment(**environment)
        done = get_fork_server().run(
            arguments, self.folder, complete_environment, deadline_s=DEADLINE_S
        )
        return subprocess.CompletedProcess(arguments, *done)

    def run_started(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Starts Python instead of forking, for tests of code that runs before the imports."""
        return self._run(self.command(*arguments), environment)

    def run_shell(self, line: str) -> subprocess.CompletedProcess[str]:
        return self._run(["sh", "-c", line], {})

    def _run(
        self, command: list[str], environment: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env=clean_environment(**environment),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    def documents(self, *arguments: str, **environment: str) -> list[dict[str, Any]]:
        """Returns the objects that a command prints with --json, one per line."""
        done = self.run(*arguments, "--json", **environment)
        if done.returncode not in {0, 1}:
            raise AssertionError(done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "runnel", *arguments]

    def begin(self, *arguments: str, streams: Streams, **environment: str) -> ForkedCommand:
        """Starts a command in the background. The caller has to end it."""
        return get_fork_server().begin(
            arguments, self.folder, clean_environment(**environment), streams
        )

    @contextlib.asynccontextmanager
    async def running(self, *arguments: str, **environment: str) -> AsyncIterator["RunningProgram"]:
        """Runs a command in the background and kills it at the end if it still runs."""
        async with contextlib.AsyncExitStack() as stack:
            out, out_end = await stack.enter_async_context(open_pipe())
            err, err_end = await stack.enter_async_context(open_pipe())
            with Path(os.devnull).open() as devnull, out_end, err_end:
                streams = Streams(devnull.fileno(), out_end.fileno(), err_end.fileno())
                fork = self.begin(*arguments, streams=streams, **environment)
            try:
                yield RunningProgram(fork, out, err)
            finally:
                fork.kill()
                await asyncio.to_thread(fork.wait, DEADLINE_S)


class RunningProgram:
    """A command in the background. `lines` holds the lines of stderr that were read."""

    def __init__(
        self, fork: ForkedCommand, out: asyncio.StreamReader, err: asyncio.StreamReader
    ) -> None:
        self._fork = fork
        self._out = out
        self._err = err
        self.lines: list[str] = []

    @property
    def pid(self) -> int:
        return self._fork.pid

    @property
    def code(self) -> int | None:
        """The exit code, or None while the command runs."""
        return self._fork.poll()

    async def read_until(self, text: str) -> str:
        """Reads stderr up to the first line that contains `text`, and returns that line."""
        async with asyncio.timeout(DEADLINE_S):
            while line := await self._err.readline():
                self.lines.append(line.decode().rstrip())
                if text in self.lines[-1]:
                    return self.lines[-1]
        raise AssertionError(f"stderr has no line with '{text}', only: {self.lines}")

    async def read_line(self) -> str:
        """Returns the next line of stdout."""
        async with asyncio.timeout(DEADLINE_S):
            return (await self._out.readline()).decode().rstrip()

    def send(self, number: signal.Signals) -> None:
        self._fork.send(number)

    async def wait(self) -> tuple[int, str, str]:
        """Waits for the end; returns the exit code, stdout and the unread part of stderr."""
        async with asyncio.timeout(DEADLINE_S):
            out, err = await asyncio.gather(self._out.read(), self._err.read())
        code = await asyncio.to_thread(self._fork.wait, DEADLINE_S)
        return code, out.decode(), err.decode()


@contextlib.asynccontextmanager
async def open_pipe() -> AsyncIterator[tuple[asyncio.StreamReader, BinaryIO]]:
    """Opens a pipe; yields its read end as a stream, and its write end as a file."""
    reading, writing = os.pipe()
    stream = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(reading, "rb", buffering=0)
    )
    try:
        yield stream, os.fdopen(writing, "wb", buffering=0)
    finally:
        transport.close()


def clean_environment(**extra: str) -> dict[str, str]:
    """Returns the environment without variables that change the output or the store."""
    removed = {
        *("RUNNEL_DEBUG", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "PYTHONUNBUFFERED"),
        *VARIABLES,
    }
    kept = {key: value for key, value in os.environ.items() if key not in removed}
    return {**kept, **extra}
