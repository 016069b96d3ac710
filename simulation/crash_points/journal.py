"""Files that outlive the processes of one crash point.

Each line is written with one system call and without a buffer. A line therefore exists if and only
if the process reached the write.
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

CUT_OFF_MESSAGE = "the sweep made this call fail"

AsyncHandler: TypeAlias = Callable[[Json, Context], Awaitable[Json]]


class JournalFile(StrEnum):
    RUNS = "runs"
    """One line per start of a handler, with idempotency key and attempt."""
    ANSWERS = "answers"
    """The calls that the store has confirmed; the caller does not repeat them."""
    WARNINGS = "warnings"
    POINTS = "moment"
    """One line for each crash point at which a fault was injected."""
    COUNTS = "count"
    SNAPSHOTS = "snapshots"


class RunJournal:
    """The folder of one crash point: its data directory and one file per JournalFile."""

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
        """Returns a handler that writes a line to the journal at each start, then calls
        `function`.
        """

        @functools.wraps(function)
        async def call(config: Json, ctx: Context) -> Json:
            self.append(JournalFile.RUNS, f"{ctx.idempotency_key} {ctx.attempt}")
            return await function(config, ctx)

        return call

    def _path(self, file: JournalFile) -> Path:
        return self.folder / file


class WarningRecorder(logging.Handler):
    """A log handler that records unexpected warnings, because each of them is a problem.

    Two kinds are expected: the death of a worker other than `worker`, and the consequences of a
    call that was made to fail.
    """

    def __init__(self, journal: RunJournal, worker: str) -> None:
        super().__init__(logging.WARNING)
        self._journal = journal
        self._worker = worker

    def emit(self, record: logging.LogRecord) -> None:
        event = str(getattr(record, "event", None) or self.format(record))
        fields: dict[str, object] = getattr(record, "fields", {})
        line = " ".join([event, *(f"{name}={value}" for name, value in fields.items())])
        is_other_dead_worker = line.startswith(WORKER_DEAD) and self._worker not in line
        if not is_other_dead_worker and CUT_OFF_MESSAGE not in line:
            self._journal.append(JournalFile.WARNINGS, line)
