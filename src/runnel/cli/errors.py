"""The one place where an error becomes a sentence and an exit code."""

import errno
import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import typer

from runnel.core.states import ExecutionState
from runnel.errors import InputError, InvalidWorkflowError, RunnelError, StoreError

# What the exit code of `runnel` says.

OK = 0
FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130
TERMINATED = 143
# And the number of the signal.
SIGNAL_BASE = 128
PIPE_CLOSED = 141

EXIT_CODE_BY_STATE = {
    ExecutionState.PENDING: OK,
    ExecutionState.RUNNING: OK,
    ExecutionState.COMPLETED: OK,
    ExecutionState.FAILED: FAILED,
    ExecutionState.CANCELLED: FAILED,
}


# Keeps stdout for results: what user code prints meanwhile goes to stderr.

STDIN, STDOUT, STDERR = 0, 1, 2


@contextmanager
def reserve_stdout() -> Iterator[TextIO]:
    """The real stdout; inside the block, all other output of this process and of its children
    ends on stderr, at the level of file descriptors.
    """
    sys.stdout.flush()
    is_by_line = isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.line_buffering
    # Into a pipe, what code printed before it took its process down would be lost.
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
    """A terminal or file whose encoding has no such character gets a question mark.

    What was closed by whoever started this process is nowhere: otherwise the next file to be
    opened would get its number, and all that is printed.
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
    """After a closed pipe: what is still buffered must not raise again at exit."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for number in (STDOUT, STDERR):
        if not os.isatty(number):
            os.dup2(nothing, number)


def _set_line_buffering(*, is_enabled: bool) -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=is_enabled)


def _open_if_closed(number: int) -> None:
    """The lowest free number is the one that `open` takes."""
    try:
        os.fstat(number)
    except OSError:
        os.open(os.devnull, os.O_RDWR)


def _close_quietly(out: TextIO) -> None:
    try:
        out.close()
    except OSError:
        return  # told already by the flush above


# The base of Typer's usage errors is not part of its interface, and has moved between versions.
UsageError = typer.BadParameter.__mro__[1]


def report_error(error: BaseException) -> int:
    """Says on stderr what went wrong and returns the exit code; raises nothing."""
    if isinstance(error, BrokenPipeError):
        drop_output()
        return PIPE_CLOSED
    if _is_full_disk(error):
        _print_to_stderr(
            "error: the output can't be written: no space left on device; make room for it"
        )
        drop_output()
        return FAILED
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        _print_to_stderr("interrupted")
        return INTERRUPTED
    if os.environ.get("RUNNEL_DEBUG"):
        _print_traceback(error)
    if isinstance(error, UsageError):
        _print_to_stderr(f"error: {_format_usage_error(error)}")
        return BAD_INPUT
    known = next((leaf for leaf in iterate_leaves(error) if isinstance(leaf, RunnelError)), None)
    if known is None:
        return _report_bug(error)
    _print_to_stderr(f"error: {_format_error(known)}{_make_hint(known)}")
    return BAD_INPUT if isinstance(known, InputError) else FAILED


def iterate_leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors in a group, or the one error: task groups wrap what their tasks raise."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from iterate_leaves(each)
    else:
        yield error


def _is_full_disk(error: BaseException) -> bool:
    """Of a stream: an error about a file that was opened by name says the name."""
    found = next(iterate_leaves(error))
    return isinstance(found, OSError) and found.errno == errno.ENOSPC and found.filename is None


def _format_error(error: RunnelError) -> str:
    """A single problem needs no list."""
    if isinstance(error, InvalidWorkflowError) and len(error.problems) == 1:
        return f"{error.source}: {error.problems[0]}"
    return str(error)


def _make_hint(error: RunnelError) -> str:
    """A server that failed in the middle of something is looked at by the doctor."""
    is_server = type(error) is StoreError and str(error).startswith(("Redis: ", "PostgreSQL: "))
    return "; 'runnel doctor' looks at the servers" if is_server else ""


def _format_usage_error(error: BaseException) -> str:
    """Typer's sentence in our words, with the command whose help explains it."""
    message = str(getattr(error, "format_message", error.__str__)()).strip()
    message = message[:1].lower() + message[1:].removesuffix(".")
    for pattern, ours in _MESSAGE_REWRITES:
        message = re.sub(pattern, ours, message)
    context = getattr(error, "ctx", None)
    path = "runnel" if context is None else context.command_path
    glue = " See" if message.endswith("?") else "; see"
    return f"{message}{glue} '{path} --help'"


_MESSAGE_REWRITES = (
    (r"invalid value for '([^']+)': expected", r"\1: expected"),
    (
        r"invalid value for '([^']+)': ('.*') is not a valid float.*",
        r"\1: expected a number, got \2",
    ),
    (
        r"invalid value for '([^']+)': (-?[\d.]+) is not in the range x>=([\d.]+)",
        r"\1: expected at least \3, got \2",
    ),
    (
        r"invalid value for '([^']+)': ('.*') is not a valid (?:int range|int|integer)\b.*",
        r"\1: expected a whole number, got \2",
    ),
    (r"got unexpected extra arguments?(?:\(s\))? \((.*)\)", r"too many arguments: \1"),
    (r"\. Did you mean (.*)\?$", r", did you mean \1?"),
    (r" \(Possible options: (.*)\)$", r", did you mean \1?"),
)


def _report_bug(error: BaseException) -> int:
    first = next(iterate_leaves(error))
    _print_to_stderr(f"error: unexpected {type(first).__name__}: {first}")
    if not os.environ.get("RUNNEL_DEBUG"):
        _print_to_stderr(
            "this is a bug of Runnel: please report it, with what RUNNEL_DEBUG=1 prints"
        )
    return FAILED


def _print_traceback(error: BaseException) -> None:
    import traceback

    traceback.print_exception(error)


def _print_to_stderr(text: str) -> None:
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:  # nobody reads it, or there is no room for it
        drop_output()


# Commands that have commands of their own.


def make_command_group(help_: str, *, first_command: str) -> typer.Typer:
    """Called without a command it prints its help; `first_command` is the call that the help ends
    with.
    """
    app = typer.Typer(help=help_, epilog=f"Begin with  [bold]{first_command}[/bold]")
    app.callback(invoke_without_command=True)(_print_help)
    return app


def _print_help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(OK)
