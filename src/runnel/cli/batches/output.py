"""The file of `--output`: what was there stays until all that is to be in it is written."""

import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from runnel.cli.documents import path_of
from runnel.errors import InputError, StoreError

PART = ".part"
STDOUT = "-"


def check_output(path: Path | None, sources: Iterable[Path]) -> None:
    """Raises InputError for an output that would overwrite what the batch is made from."""
    if path is None:
        return
    if str(path) == STDOUT:
        raise InputError("--output -: stdout is for the sum of all; name a file")
    for source in map(path_of, sources):
        if _is_same(path, source):
            raise InputError(f"--output {path}: it would overwrite {source}; name another file")


class OutputFile:
    """Lines go to a file next to it, `NAME.part`, which `keep` puts in its place.

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
            raise InputError(self._sentence(error)) from error

    def write(self, line: str) -> None:
        try:
            print(line, file=self._file, flush=True)
        except OSError as error:
            raise StoreError(
                f"{self._sentence(error)}; what is done is stored: go on with the same command"
            ) from error

    def keep(self) -> None:
        if self._part is not None and not self._file.closed:
            os.fsync(self._file.fileno())
            self._part.replace(self._target)
        self._file.close()

    def leave(self) -> Path:
        """Where the lines are for now."""
        self._file.close()
        if self._part is None or self._path.is_symlink():
            return self._part or self._path
        return self._path.with_name(self._part.name)

    def drop(self) -> None:
        """Of what was kept or left, nothing is removed."""
        if self._part is not None and not self._file.closed:
            self._part.unlink(missing_ok=True)
        with suppress(OSError):  # what is still buffered has no room, as was told
            self._file.close()

    def _open(self) -> TextIO:
        if self._path.exists() and not self._path.is_file():
            return self._path.open("w", encoding="utf-8")
        self._part = self._target.with_name(self._target.name + PART)
        while True:
            file = self._part.open("a", encoding="utf-8")
            if not _lock(file):
                file.close()
                raise InputError(
                    f"--output {self._path}: another process writes it; name another file"
                )
            if _is_still(file, self._part):
                file.truncate(0)
                if self._target.exists():
                    os.fchmod(file.fileno(), self._target.stat().st_mode)
                return file
            file.close()

    def _sentence(self, error: OSError) -> str:
        return f"--output {self._path}: it can't be written: {error.strerror}"


def _is_same(path: Path, source: Path) -> bool:
    try:
        return path.samefile(source)
    except OSError:
        return False  # one of them can't be looked at: that is told by who opens it


def _lock(file: TextIO) -> bool:
    """Until it is closed; not shared with processes that are forked meanwhile."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _is_still(file: TextIO, path: Path) -> bool:
    """Another process may have put it in place after it was opened here."""
    return path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())
