"""Keeps stdout for results: what user code prints meanwhile goes to stderr."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

STDIN, STDOUT, STDERR = 0, 1, 2


@contextmanager
def results() -> Iterator[TextIO]:
    """The real stdout; inside the block, all other output of this process and of its children
    ends on stderr, at the level of file descriptors.
    """
    sys.stdout.flush()
    is_by_line = isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.line_buffering
    # Into a pipe, what code printed before it took its process down would be lost.
    _buffer_by_line(is_wanted=True)
    saved = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)
    out = os.fdopen(saved, "w", encoding=sys.stdout.encoding, errors="replace")
    try:
        yield out
        out.flush()
    finally:
        sys.stdout.flush()
        os.dup2(saved, STDOUT)
        _buffer_by_line(is_wanted=is_by_line)
        _close(out)


def make_printable() -> None:
    """A terminal or file whose encoding has no such character gets a question mark.

    What was closed by whoever started this process is nowhere: otherwise the next file to be
    opened would get its number, and all that is printed.
    """
    for number in (STDIN, STDOUT, STDERR):
        _fill(number)
    if sys.stdin is None:
        sys.stdin = os.fdopen(STDIN, "r", closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(STDOUT, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(STDERR, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def drop_output() -> None:
    """After a closed pipe: what is still buffered must not raise again at exit."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for number in (STDOUT, STDERR):
        if not os.isatty(number):
            os.dup2(nothing, number)


def _buffer_by_line(*, is_wanted: bool) -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=is_wanted)


def _fill(number: int) -> None:
    """The lowest free number is the one that `open` takes."""
    try:
        os.fstat(number)
    except OSError:
        os.open(os.devnull, os.O_RDWR)


def _close(out: TextIO) -> None:
    try:
        out.close()
    except OSError:
        return  # told already by the flush above
