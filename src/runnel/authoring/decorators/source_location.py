"""Finds the line of user code that is being traced, and builds errors for untraceable code."""

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

from runnel.core.message_text import shorten
from runnel.errors import TraceError

# Observations of one trace, kept even if the traced code catches exceptions.

_current_notes: ContextVar["TraceNotes | None"] = ContextVar("notes", default=None)


class TraceNotes:
    """Errors and texts that are recorded while a workflow's body runs.

    `first_error` is the first TraceError, which the body may have caught. `shown_texts` are texts
    that `repr` returned for placeholders. A text that contains such a `repr` was built from a value
    that does not exist yet.
    """

    def __init__(self) -> None:
        self.first_error: TraceError | None = None
        self.shown_texts: set[str] = set()


@contextmanager
def collect_notes() -> Iterator[TraceNotes]:
    """Collects the notes of all traces inside the `with` block, those of child workflows too."""
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
    """Returns the repr of a placeholder if the text contains one; otherwise None."""
    notes = _current_notes.get()
    return next((shown for shown in notes.shown_texts if shown in text), None) if notes else None


_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH120, PTH100  # compared with the names that code objects have

# Files whose code `isinstance` runs for abstract classes and protocols.
_PASS_THROUGH_FILES = frozenset({"<frozen abc>", abc.__file__, typing.__file__})


class SourceSpan(NamedTuple):
    """A range of source code. Lines count from 1, columns in bytes from 0, as in `ast`."""

    line: int
    column: int
    end_line: int
    end_column: int

    def is_within(self, node: ast.expr | ast.stmt) -> bool:
        """Returns True if a node of the same file contains this range."""
        end = (node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
        starts_before = (node.lineno, node.col_offset) <= (self.line, self.column)
        return starts_before and (self.end_line, self.end_column) <= end


class SourceLocation(NamedTuple):
    """A line of user code. `span` is the exact range of code; None if it is not known."""

    file: str
    line: int
    span: SourceSpan | None = None

    def build_error(self, problem: str, *, is_recorded: bool = True) -> TraceError:
        """Builds an error; `problem` continues the quoted code: "`if page:` branches on …"."""
        error = TraceError(
            problem, file=self.display_path, line=self.line, statement=self._read_statement()
        )
        if is_recorded:
            record_error(error)
        return error

    @property
    def display_path(self) -> str:
        """The path of the file, relative to the working directory if the file is below it."""
        folder = os.getcwd() + os.sep  # noqa: PTH109  # compared with the names that code objects have
        return self.file.removeprefix(folder)

    def iterate_enclosing_nodes(self) -> Iterator[ast.expr | ast.stmt]:
        """Yields the syntax nodes that contain the span, outermost first.

        Yields nothing if the source code is not available.
        """
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
    """Returns the innermost line on the stack that is in user code.

    User code is neither in Runnel nor in an installed package.
    """
    frames: list[FrameType] = []
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # inspect calls it, too
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return _choose_location([(frame.f_code, frame.f_lineno, frame.f_lasti) for frame in frames])


def is_called_by_user() -> bool:
    """Returns True if user code called the caller, directly or through `abc` or `typing`."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001  # as in `locate_user_code`
    while frame is not None and frame.f_code.co_filename in _PASS_THROUGH_FILES:
        frame = frame.f_back
    file = "" if frame is None else frame.f_code.co_filename
    return not (_is_in(file, _PACKAGE) or _is_installed(file))


def locate_exception(traceback: TracebackType | None) -> SourceLocation:
    """Returns the innermost line of user code in the traceback of an exception."""
    frames: list[tuple[CodeType, int, int]] = []
    while traceback is not None:
        frames.append((traceback.tb_frame.f_code, traceback.tb_lineno, traceback.tb_lasti))
        traceback = traceback.tb_next
    return _choose_location(frames[::-1])


def locate_function(code: CodeType | None) -> SourceLocation:
    """Returns the line of a function's `def`, below its decorators."""
    if code is None:
        return SourceLocation("?", 0)
    line = code.co_firstlineno
    while linecache.getline(code.co_filename, line).lstrip().startswith("@"):
        line += 1
    return SourceLocation(code.co_filename, line)


def _choose_location(frames: Sequence[tuple[CodeType, int, int]]) -> SourceLocation:
    """Returns the location of the first frame in user code.

    The first entry of `frames` is the innermost frame. If no frame is in user code, returns the
    first frame outside of Runnel.
    """
    outside = [frame for frame in frames if not _is_in(frame[0].co_filename, _PACKAGE)]
    user_frames = [frame for frame in outside if not _is_installed(frame[0].co_filename)]
    for code, line, instruction in (user_frames or outside)[:1]:
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


# Errors for operations that placeholders do not support. Each error says what to write instead.

SentenceBuilder: TypeAlias = Callable[[str, SourceLocation], str]

NOT_YET_AVAILABLE = "which has no value until the workflow runs"
TEST_IN_TASK = "test inside a task"
_TESTS = (ast.If, ast.IfExp, ast.While, ast.Assert, ast.BoolOp)
_LOOPS = (ast.For, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def build_misuse_error(kind: str, subject: str) -> TraceError:
    """Builds the error for an operation that placeholders do not support.

    `kind` is a key of SENTENCES. `subject` describes the placeholder.
    """
    location = locate_user_code()
    return location.build_error(SENTENCES[kind](subject, location))


def build_type_error(subject: str) -> TraceError:
    """Builds the error for a test of a placeholder's type.

    The error is not recorded in the notes of the trace, because debuggers test types, too.
    """
    return locate_user_code().build_error(
        f"tests the type of {subject}, {NOT_YET_AVAILABLE}; {TEST_IN_TASK}", is_recorded=False
    )


def _describe_truth_test(subject: str, location: SourceLocation) -> str:
    match next(
        (node for node in reversed(list(location.iterate_enclosing_nodes())) if _is_test(node)),
        None,
    ):
        case ast.BoolOp(op=op):
            word, sign = ("and", "&") if isinstance(op, ast.And) else ("or", "|")
            return (
                f"uses '{word}' with {subject}, {NOT_YET_AVAILABLE}; write {sign} instead, with "
                f"brackets around each side: (a > 1) {sign} (b > 2)"
            )
        case ast.UnaryOp():
            return f"uses 'not' with {subject}, {NOT_YET_AVAILABLE}; write ~x instead of 'not x'"
        case ast.Compare():
            return (
                f"chains comparisons of {subject}, {NOT_YET_AVAILABLE}; write two comparisons: "
                "(1 < x) & (x < 3)"
            )
        case ast.While():
            return (
                f"loops on {subject}, {NOT_YET_AVAILABLE}; loop inside a task, or use "
                "task.map(list)"
            )
        case _:
            return (
                f"branches on {subject}, {NOT_YET_AVAILABLE}; write task.when(condition)(...) to "
                "run a task only if the condition holds, or decide inside a task"
            )


def _is_test(node: ast.AST) -> bool:
    match node:
        case ast.Compare(ops=[_, _, *_]) | ast.UnaryOp(op=ast.Not()):
            return True
        case _:
            return isinstance(node, _TESTS)


def _describe_iteration(subject: str, location: SourceLocation) -> str:
    enclosing_nodes = list(location.iterate_enclosing_nodes())
    if any(isinstance(node, _LOOPS) for node in enclosing_nodes):
        return (
            f"iterates over {subject}, {NOT_YET_AVAILABLE}; write task.map(list) to run one task "
            "per item, or loop inside a task"
        )
    if any(isinstance(node, ast.Assign) for node in enclosing_nodes):
        return f"unpacks {subject}, {NOT_YET_AVAILABLE}; write result[0], result[1] and so on"
    return (
        f"iterates over {subject}, {NOT_YET_AVAILABLE}; pass it on as one value, and iterate "
        "inside a task"
    )


def _make_sentence_builder(action: str, advice: str) -> SentenceBuilder:
    return lambda subject, _: f"{action} {subject}, {NOT_YET_AVAILABLE}; {advice}"


SENTENCES: Mapping[str, SentenceBuilder] = {
    "truth": _describe_truth_test,
    "iteration": _describe_iteration,
    "contains": _make_sentence_builder(
        "tests membership in",
        "test inside a task, or pass task.when() a text such as \"'x' in fetch.tags\"",
    ),
    "length": _make_sentence_builder(
        "takes the length of",
        "count inside a task, or pass task.when() a text such as 'fetch | length > 3'",
    ),
    "arithmetic": _make_sentence_builder("calculates with", "calculate inside a task"),
    "number": _make_sentence_builder("needs a number from", "use the number inside a task"),
    "text": _make_sentence_builder(
        "builds a text from", 'write runnel.text("... {} ...", result), or build it inside a task'
    ),
    "await": _make_sentence_builder(
        "awaits", "a workflow passes results on without awaiting them: remove 'await'"
    ),
    "call": _make_sentence_builder(
        "calls", "only tasks and workflows can be called here; call it inside a task"
    ),
    "change": _make_sentence_builder("changes", "return a changed copy from a task"),
    "slice": _make_sentence_builder(
        "slices", "slice it inside a task; a single index such as [0] or [-1] works here"
    ),
    "key": _make_sentence_builder(
        "uses a computed key in", "write a constant key, as in ['name'] or [0]"
    ),
    "context": _make_sentence_builder("uses 'with' on", "use 'with' inside a task"),
}
