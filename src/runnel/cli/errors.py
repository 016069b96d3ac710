"""Turns an error into a sentence on stderr and an exit code."""

import errno
import os
import re
from collections.abc import Iterator

import typer

from runnel.cli.streams import drop_output, print_to_stderr
from runnel.core.states import ExecutionState
from runnel.errors import InputError, InvalidWorkflowError, RunnelError, StoreError

OK = 0
FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130
TERMINATED = 143
PIPE_CLOSED = 141

EXIT_CODE_BY_STATE = {
    ExecutionState.PENDING: OK,
    ExecutionState.RUNNING: OK,
    ExecutionState.COMPLETED: OK,
    ExecutionState.FAILED: FAILED,
    ExecutionState.CANCELLED: FAILED,
}


# The base of Typer's usage errors is not part of its interface, and has moved between versions.
UsageError = typer.BadParameter.__mro__[1]


def report_error(error: BaseException) -> int:
    """Prints the error on stderr and returns the exit code; raises nothing."""
    if isinstance(error, BrokenPipeError):
        drop_output()
        return PIPE_CLOSED
    if _is_full_disk(error):
        _print_sentence(
            "error: the output can't be written: no space left on device; free some space"
        )
        drop_output()
        return FAILED
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        _print_sentence("interrupted")
        return INTERRUPTED
    if os.environ.get("RUNNEL_DEBUG"):
        _print_traceback(error)
    if isinstance(error, UsageError):
        _print_sentence(f"error: {_format_usage_error(error)}")
        return BAD_INPUT
    known = next((leaf for leaf in iterate_leaves(error) if isinstance(leaf, RunnelError)), None)
    if known is None:
        return _report_bug(error)
    _print_sentence(f"error: {_format_error(known)}{_make_hint(known)}")
    return BAD_INPUT if isinstance(known, InputError) else FAILED


def iterate_leaves(error: BaseException) -> Iterator[BaseException]:
    """Yields the errors in an exception group, or the error itself.

    Task groups raise the errors of their tasks as a group.
    """
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from iterate_leaves(member)
    else:
        yield error


def _is_full_disk(error: BaseException) -> bool:
    """Returns True if a write to stdout or stderr failed because the disk is full.

    An error of any other file has a file name.
    """
    leaf = next(iterate_leaves(error))
    return isinstance(leaf, OSError) and leaf.errno == errno.ENOSPC and leaf.filename is None


def _format_error(error: RunnelError) -> str:
    """Returns the text of an error; writes a single problem on one line instead of a list."""
    if isinstance(error, InvalidWorkflowError) and len(error.problems) == 1:
        return f"{error.source}: {error.problems[0]}"
    return str(error)


def _make_hint(error: RunnelError) -> str:
    """Returns a hint to `runnel doctor` if Redis or PostgreSQL failed, else an empty text."""
    is_server = type(error) is StoreError and str(error).startswith(("Redis: ", "PostgreSQL: "))
    return "; 'runnel doctor' checks the servers" if is_server else ""


def _format_usage_error(error: BaseException) -> str:
    """Returns Typer's error message in the style of Runnel, with the command that prints help."""
    message = str(getattr(error, "format_message", error.__str__)()).strip()
    message = message[:1].lower() + message[1:].removesuffix(".")
    for pattern, replacement in _MESSAGE_REWRITES:
        message = re.sub(pattern, replacement, message)
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
    _print_sentence(f"error: unexpected {type(first).__name__}: {first}")
    if not os.environ.get("RUNNEL_DEBUG"):
        _print_sentence(
            "this is a bug in Runnel: please report it with the output of RUNNEL_DEBUG=1"
        )
    return FAILED


def _print_traceback(error: BaseException) -> None:
    import traceback

    traceback.print_exception(error)


def _print_sentence(text: str) -> None:
    if not print_to_stderr(text):
        drop_output()
