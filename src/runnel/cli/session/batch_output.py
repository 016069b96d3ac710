"""The file of `--output`: what was there stays until all that is to be in it is written."""

import fcntl
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from runnel.cli.render.text import format_count, format_duration, to_compact_json
from runnel.cli.session.batch_feeder import BatchTally, DocumentOutcome
from runnel.cli.session.hints import CommandHints
from runnel.cli.session.inputs import get_file_path
from runnel.client.protocol import Client
from runnel.core.values import Json
from runnel.errors import InputError, StoreError

PART_SUFFIX = ".part"
STDOUT = "-"


def check_output(path: Path | None, sources: Iterable[Path]) -> None:
    """Raises InputError for an output that would overwrite what the batch is made from."""
    if path is None:
        return
    if str(path) == STDOUT:
        raise InputError("--output -: stdout is for the sum of all; name a file")
    for source in map(get_file_path, sources):
        if _is_same_file(path, source):
            raise InputError(f"--output {path}: it would overwrite {source}; name another file")


class OutputFile:
    """Lines go to a file next to it, `NAME.part`, which `commit` puts in its place.

    One that a killed process left is begun anew. What is no plain file is written to directly.
    Raises InputError when it can't be opened, StoreError when it can't be written any more.
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
                f"{self._format_error(error)}; what is done is stored: go on with the same command"
            ) from error

    def commit(self) -> None:
        if self._part is not None and not self._file.closed:
            os.fsync(self._file.fileno())
            self._part.replace(self._target)
        self._file.close()

    def close_unfinished(self) -> Path:
        """Where the lines are for now."""
        self._file.close()
        if self._part is None or self._path.is_symlink():
            return self._part or self._path
        return self._path.with_name(self._part.name)

    def discard(self) -> None:
        """Of what was kept or left, nothing is removed."""
        if self._part is not None and not self._file.closed:
            self._part.unlink(missing_ok=True)
        with suppress(OSError):  # what is still buffered has no room, as was told
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
                    f"--output {self._path}: another process writes it; name another file"
                )
            if _is_current_file(file, self._part):
                file.truncate(0)
                if self._target.exists():
                    os.fchmod(file.fileno(), self._target.stat().st_mode)
                return file
            file.close()

    def _format_error(self, error: OSError) -> str:
        return f"--output {self._path}: it can't be written: {error.strerror}"


def _is_same_file(path: Path, source: Path) -> bool:
    try:
        return path.samefile(source)
    except OSError:
        return False  # one of them can't be looked at: that is told by who opens it


def _try_lock(file: TextIO) -> bool:
    """Until it is closed; not shared with processes that are forked meanwhile."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _is_current_file(file: TextIO, path: Path) -> bool:
    """Another process may have put it in place after it was opened here."""
    return path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())


# What is left of a batch: a line of JSON for each document, and the sum of them.

FAILURES_SHOWN_MAX = 10


class BatchResults:
    """Written anew by each run, as the documents end; without a path, nothing is.

    What an earlier run has brought to an end is written again: its results are in the store.
    """

    def __init__(self, path: Path | None, client: Client) -> None:
        self._client = client
        self._file = None if path is None else OutputFile(path)

    async def add(self, outcome: DocumentOutcome) -> None:
        if self._file is not None:
            self._file.write(to_compact_json(await self._build_record(outcome)))

    def finish(self, *, is_complete: bool) -> Path | None:
        """Where the lines of an unfinished batch are; None of a complete one, or without a path."""
        if self._file is None:
            return None
        if not is_complete:
            return self._file.close_unfinished()
        self._file.commit()
        return None

    def discard(self) -> None:
        """After an error: an earlier file stays as it was. After an end it changes nothing."""
        if self._file is not None:
            self._file.discard()

    async def _build_record(self, outcome: DocumentOutcome) -> dict[str, Json]:
        header = outcome.header
        view = await self._client.get(header.execution_id) if outcome.is_completed else None
        return {
            "line": outcome.document.line,
            "key": outcome.document.key,
            "execution_id": header.execution_id,
            "status": header.state.value,
            "took_s": round(outcome.took_s, 3),
            "output": None if view is None else view.output,
            "error": header.error,
        }


def print_summary(name: str, tally: BatchTally, now: float, out: TextIO) -> None:
    took = format_duration(now - tally.started_at)
    counts = [
        f"{tally.states[state]:,} {state.lower()}"
        for state in ("COMPLETED", "FAILED", "CANCELLED")
        if tally.states[state]
    ]
    left = tally.total - tally.done
    counts += [f"{left:,} unfinished"] if left else []
    print(f"{name}: {format_count(tally.total, 'document')}: {', '.join(counts)}", file=out)
    if tally.done_earlier:
        print(f"  {tally.done_earlier:,} were done before", file=out)
    p50, p95 = tally.quantile_s(0.5), tally.quantile_s(0.95)
    if p50 is not None and p95 is not None:
        done = format_count(tally.done_now, "document")
        pace = f"{done} in {took}, {tally.per_hour(now):,.0f} per hour"
        print(f"  {pace}; p50 {format_duration(p50)}, p95 {format_duration(p95)}", file=out)


def print_failures(tally: BatchTally, hints: CommandHints) -> None:
    """The first ones, with what to look at."""
    if not tally.failures:
        return
    shown = sorted(tally.failures, key=lambda each: each.document.line)[:FAILURES_SHOWN_MAX]
    for each in shown:
        error = " ".join((each.header.error or each.header.state.lower()).split())
        _print_to_stderr(f"line {each.document.line} ({each.header.execution_id}): {error}")
    rest = len(tally.failures) - len(shown)
    if rest:
        _print_to_stderr(f"and {rest:,} more; --output writes all of them to a file")
    see = hints.show(shown[0].header.execution_id)
    _print_to_stderr(f"see: {see}; run what failed again: the same command with --retry-failed")


def print_continue_hint(partial_output: Path | None) -> None:
    where = "" if partial_output is None else f"; results so far: {partial_output}"
    _print_to_stderr(f"go on with the same command{where}")


def _print_to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
