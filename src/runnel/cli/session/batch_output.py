"""Writes the result of a batch: the file of `--output`, and the summary at the end."""

import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from runnel.cli.render.text import format_count, format_duration, to_compact_json
from runnel.cli.session.batch_tally import BatchTally
from runnel.cli.session.hints import CommandHints
from runnel.cli.session.inputs import get_file_path
from runnel.cli.streams import print_to_stderr
from runnel.client.batch import BatchOutcome, load_result
from runnel.client.protocol import Client
from runnel.core.values import Json
from runnel.errors import InputError, StoreError

PART_SUFFIX = ".part"
STDOUT = "-"
FAILURES_SHOWN_MAX = 10


def check_output(path: Path | None, sources: Iterable[Path]) -> None:
    """Raises InputError for an output that would overwrite the workflow or the inputs."""
    if path is None:
        return
    if str(path) == STDOUT:
        raise InputError("--output -: stdout is for the summary; name a file")
    for source in map(get_file_path, sources):
        if _is_same_file(path, source):
            raise InputError(
                f"--output {path}: the results would overwrite {source}; name another file"
            )


class OutputFile:
    """The file of `--output`; an earlier file stays until all lines are written.

    Lines are written to a part file, `NAME.part`, which `commit` renames. The part file of a killed
    process is overwritten. A path that is not a regular file is written directly.

    Raises InputError if the file can't be opened, and StoreError if a write fails.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._target = path.resolve()
        self._part: Path | None = None
        try:
            self._file = self._open()
        except OSError as error:
            raise InputError(self._format_error(error)) from error

    def write(self, line: str) -> None:
        try:
            print(line, file=self._file, flush=True)
        except OSError as error:
            raise StoreError(
                f"{self._format_error(error)}; finished documents are stored: continue with the "
                "same command"
            ) from error

    def commit(self) -> None:
        if self._part is not None and not self._file.closed:
            os.fsync(self._file.fileno())
            self._part.replace(self._target)
        self._file.close()

    def close_unfinished(self) -> Path:
        """Closes the file and returns the path of the part file."""
        self._file.close()
        if self._part is None or self._path.is_symlink():
            return self._part or self._path
        return self._path.with_name(self._part.name)

    def discard(self) -> None:
        """Removes the part file, unless `commit` or `close_unfinished` was called."""
        if self._part is not None and not self._file.closed:
            self._part.unlink(missing_ok=True)
        with suppress(OSError):  # the disk is full: `write` has reported the error
            self._file.close()

    def _open(self) -> TextIO:
        if self._path.exists() and not self._path.is_file():
            return self._path.open("w", encoding="utf-8")
        self._part = self._target.with_name(self._target.name + PART_SUFFIX)
        while True:
            file = self._part.open("a", encoding="utf-8")
            if not _try_lock(file):
                file.close()
                raise InputError(
                    f"--output {self._path}: another process writes this file; name another one"
                )
            if _is_current_file(file, self._part):
                file.truncate(0)
                if self._target.exists():
                    os.fchmod(file.fileno(), self._target.stat().st_mode)
                return file
            file.close()

    def _format_error(self, error: OSError) -> str:
        return f"--output {self._path}: the file can't be written: {error.strerror}"


def _is_same_file(path: Path, source: Path) -> bool:
    try:
        return path.samefile(source)
    except OSError:
        return False  # a file does not exist or can't be read; opening the file reports the error


def _try_lock(file: TextIO) -> bool:
    """Locks the file until it is closed; returns False if another process holds the lock.

    Forked processes do not share the lock.
    """
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _is_current_file(file: TextIO, path: Path) -> bool:
    """Returns True if `path` is still the open file; another process may have renamed it."""
    return path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())


class BatchResults:
    """Writes a line for each document that has ended; without a path, writes nothing.

    Each run writes the lines of all documents, including documents that ended in an earlier run.
    """

    def __init__(self, path: Path | None, client: Client) -> None:
        self._client = client
        self._file = None if path is None else OutputFile(path)

    async def add(self, outcome: BatchOutcome) -> None:
        if self._file is not None:
            self._file.write(to_compact_json(await self._build_record(outcome)))

    def finish(self, *, is_complete: bool) -> Path | None:
        """Closes the file; returns the path of the part file of an incomplete batch, else None.

        Returns None as well if there is no output file.
        """
        if self._file is None:
            return None
        if not is_complete:
            return self._file.close_unfinished()
        self._file.commit()
        return None

    def discard(self) -> None:
        """Removes the part file after an error, so that the earlier file stays.

        Does nothing after `finish`.
        """
        if self._file is not None:
            self._file.discard()

    async def _build_record(self, outcome: BatchOutcome) -> dict[str, Json]:
        result = await load_result(self._client, outcome)
        return {
            "line": result.index,
            "key": result.key,
            "execution_id": result.execution_id,
            "status": result.status.value,
            "took_s": result.took_s,
            "output": result.output,
            "error": result.error,
        }


def print_summary(name: str, tally: BatchTally, now: float, out: TextIO) -> None:
    took = format_duration(now - tally.started_at)
    counts = [
        f"{tally.states[state]:,} {state.lower()}"
        for state in ("COMPLETED", "FAILED", "CANCELLED")
        if tally.states[state]
    ]
    unfinished = tally.total - tally.done
    counts += [f"{unfinished:,} unfinished"] if unfinished else []
    print(f"{name}: {format_count(tally.total, 'document')}: {', '.join(counts)}", file=out)
    if tally.done_earlier:
        print(f"  {tally.done_earlier:,} had ended before this run", file=out)
    p50, p95 = tally.quantile_s(0.5), tally.quantile_s(0.95)
    if p50 is not None and p95 is not None:
        done = format_count(tally.done_now, "document")
        pace = f"{done} in {took}, {tally.per_hour(now):,.0f} per hour"
        print(f"  {pace}; p50 {format_duration(p50)}, p95 {format_duration(p95)}", file=out)


def print_failures(tally: BatchTally, hints: CommandHints) -> None:
    """Prints the first failures of a batch, and the command that shows one of them."""
    if not tally.failures:
        return
    shown = sorted(tally.failures, key=lambda outcome: outcome.item.number)[:FAILURES_SHOWN_MAX]
    for outcome in shown:
        summary = outcome.summary
        error = " ".join((summary.error or summary.status.lower()).split())
        print_to_stderr(f"line {outcome.item.number} ({summary.execution_id}): {error}")
    hidden = len(tally.failures) - len(shown)
    if hidden:
        print_to_stderr(f"and {hidden:,} more; --output writes all of them to a file")
    command = hints.show(shown[0].summary.execution_id)
    print_to_stderr(
        f"see: {command}; to retry failed documents, add --retry-failed to the same command"
    )


def print_continue_hint(partial_output: Path | None) -> None:
    results = "" if partial_output is None else f"; results so far: {partial_output}"
    print_to_stderr(f"continue with the same command{results}")
