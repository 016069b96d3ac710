"""The program `runnel` in a process of its own, with a data directory of its own."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from runnel.settings import VARIABLES

DEADLINE_S = 20.0 * float(os.environ.get("RUNNEL_BUDGET_FACTOR", "1"))

STEPS = """
import asyncio
from pathlib import Path

def note(file, text):
    with Path(file).open("a") as log:
        print(text, file=log)
    print("said by user code")
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
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=clean_environment(**environment),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    def run_shell(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", line],
            cwd=self.folder,
            env=clean_environment(),
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

    @contextlib.asynccontextmanager
    async def running(self, *arguments: str, **environment: str) -> AsyncIterator["Running"]:
        """In the background; killed at the end if it still runs."""
        process = await asyncio.create_subprocess_exec(
            *self.command(*arguments),
            cwd=self.folder,
            env=clean_environment(**environment),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            yield Running(process)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


class Running:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.lines: list[str] = []

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        """None while it runs."""
        return self._process.returncode

    async def says(self, text: str) -> str:
        """Reads stderr up to the line that holds `text`."""
        if self._process.stderr is None:
            raise AssertionError("stderr is not read")
        async with asyncio.timeout(DEADLINE_S):
            while line := await self._process.stderr.readline():
                self.lines.append(line.decode().rstrip())
                if text in self.lines[-1]:
                    return self.lines[-1]
        raise AssertionError(f"it never said '{text}', only: {self.lines}")

    async def prints(self) -> str:
        """The next line of stdout."""
        if self._process.stdout is None:
            raise AssertionError("stdout is not read")
        async with asyncio.timeout(DEADLINE_S):
            return (await self._process.stdout.readline()).decode().rstrip()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def ends(self) -> tuple[int, str, str]:
        """Exit code, stdout, and the rest of stderr."""
        async with asyncio.timeout(DEADLINE_S):
            out, err = await self._process.communicate()
        return self._process.returncode or 0, out.decode(), err.decode()


def clean_environment(**extra: str) -> dict[str, str]:
    """As it is, without what would change how the program looks or where it stores."""
    unwanted = {"RUNNEL_DEBUG", "NO_COLOR", "FORCE_COLOR", "COLUMNS", *VARIABLES}
    kept = {key: value for key, value in os.environ.items() if key not in unwanted}
    return {**kept, **extra}
