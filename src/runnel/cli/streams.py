"""Keeps stdout for results: what user code prints meanwhile goes to stderr."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

STDOUT, STDERR = 1, 2


@contextmanager
def results() -> Iterator[TextIO]:
    """The real stdout; inside the block, all other output of this process and of its children
    ends on stderr, at the level of file descriptors.
    """
    sys.stdout.flush()
    saved = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)
    out = os.fdopen(saved, "w", encoding=sys.stdout.encoding, errors="replace")
    try:
        yield out
        out.flush()
    finally:
        sys.stdout.flush()
        os.dup2(saved, STDOUT)
        _close(out)


def make_printable() -> None:
    """A terminal or file whose encoding has no such character gets a question mark."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def drop_output() -> None:
    """After a closed pipe: what is still buffered must not raise again at exit."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for number in (STDOUT, STDERR):
        if not os.isatty(number):
            os.dup2(nothing, number)


def _close(out: TextIO) -> None:
    try:
        out.close()
    except BrokenPipeError:
        return  # told already by the flush above
