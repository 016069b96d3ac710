"""The one place where an error becomes a sentence and an exit code."""

import errno
import os
import re
import sys
from collections.abc import Iterator

import typer

from runnel.cli import exits
from runnel.cli.streams import drop_output
from runnel.errors import InputError, InvalidWorkflowError, RunnelError, StoreError

# The base of Typer's usage errors is not part of its interface, and has moved between versions.
UsageError = typer.BadParameter.__mro__[1]


def tell(error: BaseException) -> int:
    """Says on stderr what went wrong and returns the exit code; raises nothing."""
    if isinstance(error, BrokenPipeError):
        drop_output()
        return exits.PIPE_CLOSED
    if _is_full_disk(error):
        _say("error: the output can't be written: no space left on device; make room for it")
        drop_output()
        return exits.FAILED
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        _say("interrupted")
        return exits.INTERRUPTED
    if os.environ.get("RUNNEL_DEBUG"):
        _print_traceback(error)
    if isinstance(error, UsageError):
        _say(f"error: {_usage(error)}")
        return exits.BAD_INPUT
    known = next((leaf for leaf in leaves(error) if isinstance(leaf, RunnelError)), None)
    if known is None:
        return _tell_bug(error)
    _say(f"error: {_sentence(known)}{_hint(known)}")
    return exits.BAD_INPUT if isinstance(known, InputError) else exits.FAILED


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors in a group, or the one error: task groups wrap what their tasks raise."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from leaves(each)
    else:
        yield error


def _is_full_disk(error: BaseException) -> bool:
    """Of a stream: an error about a file that was opened by name says the name."""
    found = next(leaves(error))
    return isinstance(found, OSError) and found.errno == errno.ENOSPC and found.filename is None


def _sentence(error: RunnelError) -> str:
    """A single problem needs no list."""
    if isinstance(error, InvalidWorkflowError) and len(error.problems) == 1:
        return f"{error.source}: {error.problems[0]}"
    return str(error)


def _hint(error: RunnelError) -> str:
    """A server that failed in the middle of something is looked at by the doctor."""
    is_server = type(error) is StoreError and str(error).startswith(("Redis: ", "PostgreSQL: "))
    return "; 'runnel doctor' looks at the servers" if is_server else ""


def _usage(error: BaseException) -> str:
    """Typer's sentence in our words, with the command whose help explains it."""
    message = str(getattr(error, "format_message", error.__str__)()).strip()
    message = message[:1].lower() + message[1:].removesuffix(".")
    for pattern, ours in _REWORDED:
        message = re.sub(pattern, ours, message)
    context = getattr(error, "ctx", None)
    path = "runnel" if context is None else context.command_path
    glue = " See" if message.endswith("?") else "; see"
    return f"{message}{glue} '{path} --help'"


_REWORDED = (
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


def _tell_bug(error: BaseException) -> int:
    first = next(leaves(error))
    _say(f"error: unexpected {type(first).__name__}: {first}")
    if not os.environ.get("RUNNEL_DEBUG"):
        _say("this is a bug of Runnel: please report it, with what RUNNEL_DEBUG=1 prints")
    return exits.FAILED


def _print_traceback(error: BaseException) -> None:
    import traceback

    traceback.print_exception(error)


def _say(text: str) -> None:
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:  # nobody reads it, or there is no room for it
        drop_output()
