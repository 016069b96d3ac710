"""The program `runnel` in a process of its own, with a data directory of its own.

Most tests are about what it does once it has started: these processes are forks of one that has
(tests/fork_server.py). `command` is what a shell would start.
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
    """Runs commands in `folder`, which holds the flows, their steps and the data."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log.txt"
        (folder / "steps.py").write_text(STEPS)
        for name, flow in FLOWS.items():
            (folder / f"{name}.json").write_text(json.dumps({"name": name, **flow}))

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        found = clean_environment(**environment)
        done = get_fork_server().run(arguments, self.folder, found, deadline_s=DEADLINE_S)
        return subprocess.CompletedProcess(arguments, *done)

    def run_started(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """As `run`, by a start of Python: for what happens before its commands are there."""
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
        """What a command prints with --json, one object per line."""
        done = self.run(*arguments, "--json", **environment)
        if done.returncode not in {0, 1}:
            raise AssertionError(done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "runnel", *arguments]

    def begin(self, *arguments: str, streams: Streams, **environment: str) -> ForkedCommand:
        """In the background; to be ended by who began it."""
        return get_fork_server().begin(
            arguments, self.folder, clean_environment(**environment), streams
        )

    @contextlib.asynccontextmanager
    async def running(self, *arguments: str, **environment: str) -> AsyncIterator["RunningProgram"]:
        """In the background; killed at the end if it still runs."""
        async with contextlib.AsyncExitStack() as stack:
            out, out_end = await stack.enter_async_context(open_pipe())
            err, err_end = await stack.enter_async_context(open_pipe())
            with Path(os.devnull).open() as nothing, out_end, err_end:
                streams = Streams(nothing.fileno(), out_end.fileno(), err_end.fileno())
                fork = self.begin(*arguments, streams=streams, **environment)
            try:
                yield RunningProgram(fork, out, err)
            finally:
                fork.kill()
                await asyncio.to_thread(fork.wait, DEADLINE_S)


class RunningProgram:
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
        """None while it runs."""
        return self._fork.poll()

    async def says(self, text: str) -> str:
        """Reads stderr up to the line that holds `text`."""
        async with asyncio.timeout(DEADLINE_S):
            while line := await self._err.readline():
                self.lines.append(line.decode().rstrip())
                if text in self.lines[-1]:
                    return self.lines[-1]
        raise AssertionError(f"it never said '{text}', only: {self.lines}")

    async def prints(self) -> str:
        """The next line of stdout."""
        async with asyncio.timeout(DEADLINE_S):
            return (await self._out.readline()).decode().rstrip()

    def send(self, number: signal.Signals) -> None:
        self._fork.send(number)

    async def ends(self) -> tuple[int, str, str]:
        """Exit code, stdout, and the rest of stderr."""
        async with asyncio.timeout(DEADLINE_S):
            out, err = await asyncio.gather(self._out.read(), self._err.read())
        code = await asyncio.to_thread(self._fork.wait, DEADLINE_S)
        return code, out.decode(), err.decode()


@contextlib.asynccontextmanager
async def open_pipe() -> AsyncIterator[tuple[asyncio.StreamReader, BinaryIO]]:
    """What is read here, and where others write."""
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
    """As it is, without what would change how the program looks or where it stores."""
    unwanted = {
        *("RUNNEL_DEBUG", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "PYTHONUNBUFFERED"),
        *VARIABLES,
    }
    kept = {key: value for key, value in os.environ.items() if key not in unwanted}
    return {**kept, **extra}
