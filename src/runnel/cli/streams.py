"""Prepares and redirects the standard streams: results go to stdout, messages to stderr."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

STDIN, STDOUT, STDERR = 0, 1, 2


def print_to_stderr(text: str) -> bool:
    """Prints a sentence on stderr at once; returns False if stderr can't be written.

    A closed pipe or a full disk must not stop a command before its result and exit code.
    """
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        return False
    return True


@contextmanager
def reserve_stdout() -> Iterator[TextIO]:
    """Yields the real stdout, for results.

    Inside the block, all other output of this process and of its children goes to stderr, at the
    level of file descriptors.
    """
    sys.stdout.flush()
    is_by_line = isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.line_buffering
    # Without line buffering, a crash would lose the last output in the buffer of a pipe.
    _set_line_buffering(is_enabled=True)
    saved = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)
    out = os.fdopen(saved, "w", encoding=sys.stdout.encoding, errors="replace")
    try:
        yield out
        out.flush()
    finally:
        sys.stdout.flush()
        os.dup2(saved, STDOUT)
        _set_line_buffering(is_enabled=is_by_line)
        _close_quietly(out)


def prepare_streams() -> None:
    """Makes the standard streams safe to print to.

    A character that the encoding of a terminal or file does not have becomes a question mark. A
    stream that the parent process closed is opened as /dev/null. Without that, the next opened file
    would get the descriptor of the stream, and its output.
    """
    for number in (STDIN, STDOUT, STDERR):
        _open_if_closed(number)
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
    """Discards the buffered output, so that a closed pipe does not raise again at exit."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    for number in (STDOUT, STDERR):
        if not os.isatty(number):
            os.dup2(devnull, number)


def _set_line_buffering(*, is_enabled: bool) -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=is_enabled)


def _open_if_closed(number: int) -> None:
    """Opens /dev/null if the descriptor is closed: `open` takes the lowest free descriptor."""
    try:
        os.fstat(number)
    except OSError:
        os.open(os.devnull, os.O_RDWR)


def _close_quietly(out: TextIO) -> None:
    try:
        out.close()
    except OSError:
        return  # the flush in `reserve_stdout` has raised the same error
