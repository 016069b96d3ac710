"""What outlives the processes of one crash point: lines in files, each written by one system call.

Nothing is buffered, so a line is there if and only if the process got that far.
"""

import functools
import logging
import os
from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

from runnel.authoring.context import Context
from runnel.core.values import Json
from runnel.ports.telemetry import WORKER_DEAD

CUT_OFF_MESSAGE = "the sweep cut this call off"

AsyncHandler: TypeAlias = Callable[[Json, Context], Awaitable[Json]]


class JournalFile(StrEnum):
    RUNS = "runs"
    """`idempotency key, attempt`: one line for each time that a handler begins."""
    ANSWERS = "answers"
    """What the caller was told to be stored: he does not say it again."""
    WARNINGS = "warnings"
    POINTS = "moment"
    """At which something was done to the process: one line for each."""
    COUNTS = "count"
    SNAPSHOTS = "snapshots"


class RunJournal:
    """The folder of one crash point: its data dir, and a file for each thing that is noted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data_dir = folder / "data"

    def append(self, file: JournalFile, line: str) -> None:
        handle = os.open(self._path(file), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, line.replace("\n", "\\n").encode() + b"\n")
        finally:
            os.close(handle)

    def read(self, file: JournalFile) -> list[str]:
        path = self._path(file)
        return path.read_text().splitlines() if path.exists() else []

    def wrap_handler(self, function: AsyncHandler) -> AsyncHandler:
        """The same handler, which leaves a line each time that it begins."""

        @functools.wraps(function)
        async def call(config: Json, ctx: Context) -> Json:
            self.append(JournalFile.RUNS, f"{ctx.idempotency_key} {ctx.attempt}")
            return await function(config, ctx)

        return call

    def _path(self, file: JournalFile) -> Path:
        return self.folder / file


class WarningRecorder(logging.Handler):
    """Little that a disturbance leads to is worth a warning: each of the others is a problem.

    Expected are only the death of another worker than the one called `name`, and what a call that
    was made to fail led to.
    """

    def __init__(self, journal: RunJournal, worker: str) -> None:
        super().__init__(logging.WARNING)
        self._journal = journal
        self._worker = worker

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, object] = getattr(record, "fields", {})
        line = " ".join(
            [self.format(record), *(f"{name}={value}" for name, value in fields.items())]
        )
        is_of_the_dead = line.startswith(WORKER_DEAD) and self._worker not in line
        if not is_of_the_dead and CUT_OFF_MESSAGE not in line:
            self._journal.append(JournalFile.WARNINGS, line)
