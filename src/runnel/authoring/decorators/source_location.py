"""Where in the user's code a traced workflow is, and the messages for what can't be traced."""

import abc
import ast
import linecache
import os
import sys
import sysconfig
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from types import CodeType, FrameType, TracebackType
from typing import NamedTuple, TypeAlias

from runnel.core.wording import shorten
from runnel.errors import TraceError

# Notes that must not get lost while bodies are traced, whatever their own code does.

_current_notes: ContextVar["TraceNotes | None"] = ContextVar("notes", default=None)


class TraceNotes:
    """`first_error` is the first refusal, which a body may have caught.

    `shown_texts` are the texts that stood for results, as `repr` gives them: a text that holds one
    was made of a result that does not exist yet.
    """

    def __init__(self) -> None:
        self.first_error: TraceError | None = None
        self.shown_texts: set[str] = set()


@contextmanager
def collect_notes() -> Iterator[TraceNotes]:
    """A workflow that is traced inside another one shares its notes."""
    notes = _current_notes.get() or TraceNotes()
    token = _current_notes.set(notes)
    try:
        yield notes
    finally:
        _current_notes.reset(token)


def record_error(error: TraceError) -> None:
    notes = _current_notes.get()
    if notes is not None and notes.first_error is None:
        notes.first_error = error


def record_shown_text(text: str) -> None:
    notes = _current_notes.get()
    if notes is not None:
        notes.shown_texts.add(text)


def find_shown_text(text: str) -> str | None:
    """What stands for a result in this text; None when nothing does."""
    notes = _current_notes.get()
    return next((shown for shown in notes.shown_texts if shown in text), None) if notes else None


_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH120, PTH100  # compared with the names that code objects have

# What `isinstance` runs for abstract classes and protocols.
_PASS_THROUGH_FILES = frozenset({"<frozen abc>", abc.__file__, typing.__file__})


class SourceSpan(NamedTuple):
    """Lines from 1, columns in bytes from 0, as Python counts them."""

    line: int
    column: int
    end_line: int
    end_column: int

    def is_within(self, node: ast.expr | ast.stmt) -> bool:
        """Whether a node of the same file holds it."""
        end = (node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
        begins_before = (node.lineno, node.col_offset) <= (self.line, self.column)
        return begins_before and (self.end_line, self.end_column) <= end


class SourceLocation(NamedTuple):
    file: str
    line: int
    span: SourceSpan | None = None

    def build_error(self, problem: str, *, is_recorded: bool = True) -> TraceError:
        """The problem as a sentence goes on after the code: "`if page:` decides by …"."""
        error = TraceError(
            problem, file=self.display_path, line=self.line, statement=self._read_statement()
        )
        if is_recorded:
            record_error(error)
        return error

    @property
    def display_path(self) -> str:
        """From the working directory when it is below it."""
        folder = os.getcwd() + os.sep  # noqa: PTH109  # compared with the names that code objects have
        return self.file.removeprefix(folder)

    def iterate_enclosing_nodes(self) -> Iterator[ast.expr | ast.stmt]:
        """All that is around the spot, outermost first; nothing when there is no source."""
        if self.span is None:
            return
        try:
            tree = ast.parse("".join(linecache.getlines(self.file)))
        except (SyntaxError, ValueError):
            return
        for node in ast.walk(tree):
            if isinstance(node, ast.expr | ast.stmt) and self.span.is_within(node):
                yield node

    def _read_statement(self) -> str:
        return shorten(linecache.getline(self.file, self.line).strip())


def locate_user_code() -> SourceLocation:
    """The innermost line that is the user's: neither Runnel's nor that of an installed package."""
    frames: list[FrameType] = []
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # what inspect would call
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return _choose_location([(frame.f_code, frame.f_lineno, frame.f_lasti) for frame in frames])


def is_called_by_user() -> bool:
    """Whether the caller of the caller is the user's code, also by way of an abstract class."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001  # as in `locate_user_code`
    while frame is not None and frame.f_code.co_filename in _PASS_THROUGH_FILES:
        frame = frame.f_back
    file = "" if frame is None else frame.f_code.co_filename
    return not (_is_in(file, _PACKAGE) or _is_installed(file))


def locate_exception(traceback: TracebackType | None) -> SourceLocation:
    """As `locate_user_code`, for an exception."""
    frames: list[tuple[CodeType, int, int]] = []
    while traceback is not None:
        frames.append((traceback.tb_frame.f_code, traceback.tb_lineno, traceback.tb_lasti))
        traceback = traceback.tb_next
    return _choose_location(frames[::-1])


def locate_function(code: CodeType | None) -> SourceLocation:
    """The line of a function's `def`, which is below its decorators."""
    if code is None:
        return SourceLocation("?", 0)
    line = code.co_firstlineno
    while linecache.getline(code.co_filename, line).lstrip().startswith("@"):
        line += 1
    return SourceLocation(code.co_filename, line)


def _choose_location(frames: Sequence[tuple[CodeType, int, int]]) -> SourceLocation:
    """Innermost first; code of libraries counts when there is no other."""
    outside = [place for place in frames if not _is_in(place[0].co_filename, _PACKAGE)]
    users = [place for place in outside if not _is_installed(place[0].co_filename)]
    for code, line, instruction in (users or outside)[:1]:
        return SourceLocation(code.co_filename, line, _find_span(code, instruction))
    return SourceLocation("?", 0)


def _find_span(code: CodeType, instruction: int) -> SourceSpan | None:
    positions = list(code.co_positions())
    if not 0 <= instruction // 2 < len(positions):
        return None
    line, end_line, column, end_column = positions[instruction // 2]
    if line is None or end_line is None or column is None or end_column is None:
        return None
    return SourceSpan(line, column, end_line, end_column)


def _is_installed(file: str) -> bool:
    return any(_is_in(file, folder) for folder in _find_library_folders())


@cache
def _find_library_folders() -> frozenset[str]:
    paths = sysconfig.get_paths()
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return frozenset(paths[name] for name in names if name in paths)


def _is_in(file: str, folder: str) -> bool:
    return file.startswith((folder + os.sep, "<frozen "))


# Operations that a value without a result yet can't do, and how to write them instead.

SentenceBuilder: TypeAlias = Callable[[str, SourceLocation], str]

NOT_YET_AVAILABLE = "which is not there before the workflow runs"
ASK_IN_TASK = "ask inside a task"
_TESTS = (ast.If, ast.IfExp, ast.While, ast.Assert, ast.BoolOp)
_LOOPS = (ast.For, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def build_misuse_error(kind: str, subject: str) -> TraceError:
    """`kind` is what was tried, one of SENTENCES; `what` is the value, in words."""
    spot = locate_user_code()
    return spot.build_error(SENTENCES[kind](subject, spot))


def build_type_error(subject: str) -> TraceError:
    """Not noted: a debugger asks for types too, and goes on without an answer."""
    return locate_user_code().build_error(
        f"asks for the type of {subject}, {NOT_YET_AVAILABLE}; {ASK_IN_TASK}", is_recorded=False
    )


def _describe_truth_test(subject: str, location: SourceLocation) -> str:
    match next(
        (node for node in reversed(list(location.iterate_enclosing_nodes())) if _is_test(node)),
        None,
    ):
        case ast.BoolOp(op=op):
            word, sign = ("and", "&") if isinstance(op, ast.And) else ("or", "|")
            return (
                f"needs the truth of {subject}, {NOT_YET_AVAILABLE}; instead of '{word}' write "
                f"{sign}, with brackets around each side: (a > 1) {sign} (b > 2)"
            )
        case ast.UnaryOp():
            return f"needs the truth of {subject}, {NOT_YET_AVAILABLE}; instead of 'not x' write ~x"
        case ast.Compare():
            return (
                f"compares {subject} twice, {NOT_YET_AVAILABLE}; write two comparisons: "
                "(1 < x) & (x < 3)"
            )
        case ast.While():
            return (
                f"repeats by {subject}, {NOT_YET_AVAILABLE}; repeat inside a task, or use "
                "task.map(list)"
            )
        case _:
            return (
                f"decides by {subject}, {NOT_YET_AVAILABLE}; write task.when(condition)(...) for "
                "a task that runs only then, or decide inside a task"
            )


def _is_test(node: ast.AST) -> bool:
    match node:
        case ast.Compare(ops=[_, _, *_]) | ast.UnaryOp(op=ast.Not()):
            return True
        case _:
            return isinstance(node, _TESTS)


def _describe_iteration(subject: str, location: SourceLocation) -> str:
    around = list(location.iterate_enclosing_nodes())
    if any(isinstance(node, _LOOPS) for node in around):
        return (
            f"goes through {subject}, {NOT_YET_AVAILABLE}; write task.map(list) for one task of "
            f"each item, or "
            "loop inside a task"
        )
    if any(isinstance(node, ast.Assign) for node in around):
        return f"takes {subject} apart, {NOT_YET_AVAILABLE}; write result[0], result[1] and so on"
    return (
        f"goes through {subject}, {NOT_YET_AVAILABLE}; pass it on whole, and do this inside a task"
    )


def _make_sentence_builder(words: str, instead: str) -> SentenceBuilder:
    return lambda what, _: f"{words} {what}, {NOT_YET_AVAILABLE}; {instead}"


SENTENCES: Mapping[str, SentenceBuilder] = {
    "truth": _describe_truth_test,
    "iteration": _describe_iteration,
    "contains": _make_sentence_builder(
        "looks into",
        "look inside a task, or give task.when() a text such as \"'x' in fetch.tags\"",
    ),
    "length": _make_sentence_builder(
        "counts", "count inside a task, or give task.when() a text such as 'fetch | length > 3'"
    ),
    "arithmetic": _make_sentence_builder("calculates with", "calculate inside a task"),
    "number": _make_sentence_builder("needs a number from", "do this inside a task"),
    "text": _make_sentence_builder(
        "makes a text of", 'write runnel.text("... {} ...", result), or make it inside a task'
    ),
    "await": _make_sentence_builder(
        "awaits", "in a workflow results are passed on as they are: remove 'await'"
    ),
    "call": _make_sentence_builder(
        "calls", "call it inside a task: only tasks and workflows are called here"
    ),
    "change": _make_sentence_builder("changes", "return a changed copy from a task"),
    "slice": _make_sentence_builder(
        "cuts a part out of", "cut inside a task; [0] and [-1] can be written here"
    ),
    "key": _make_sentence_builder(
        "looks up by a computed key in", "an index is written out, as in ['name'] or [0]"
    ),
    "context": _make_sentence_builder("enters", "use 'with' inside a task"),
}
