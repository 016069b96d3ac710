"""Where in the user's code a traced workflow is just now, for messages."""

import abc
import ast
import linecache
import os
import sys
import sysconfig
import typing
from collections.abc import Iterator, Sequence
from functools import cache
from types import CodeType, FrameType, TracebackType
from typing import NamedTuple

from runnel.authoring.tracing.notes import note_refusal
from runnel.core.checks.wording import shorten
from runnel.errors import TraceError

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH120, PTH100  # compared with the names that code objects have

# What `isinstance` runs for abstract classes and protocols.
_ON_THE_WAY = frozenset({"<frozen abc>", abc.__file__, typing.__file__})


class Span(NamedTuple):
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


class Spot(NamedTuple):
    file: str
    line: int
    span: Span | None = None

    def refusal(self, problem: str, *, is_noted: bool = True) -> TraceError:
        """The problem as a sentence goes on after the code: "`if page:` decides by …"."""
        error = TraceError(
            problem, file=self.shown_file, line=self.line, statement=self._statement()
        )
        if is_noted:
            note_refusal(error)
        return error

    @property
    def shown_file(self) -> str:
        """From the working directory when it is below it."""
        folder = os.getcwd() + os.sep  # noqa: PTH109  # compared with the names that code objects have
        return self.file.removeprefix(folder)

    def nodes(self) -> Iterator[ast.expr | ast.stmt]:
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

    def _statement(self) -> str:
        return shorten(linecache.getline(self.file, self.line).strip())


def here() -> Spot:
    """The innermost line that is the user's: neither Runnel's nor that of an installed package."""
    frames: list[FrameType] = []
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # what inspect would call
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return _chosen([(each.f_code, each.f_lineno, each.f_lasti) for each in frames])


def is_asked_by_user() -> bool:
    """Whether the caller of the caller is the user's code, also by way of an abstract class."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001  # as in `here`
    while frame is not None and frame.f_code.co_filename in _ON_THE_WAY:
        frame = frame.f_back
    file = "" if frame is None else frame.f_code.co_filename
    return not (_is_in(file, _PACKAGE) or _is_installed(file))


def raised_at(traceback: TracebackType | None) -> Spot:
    """As `here`, for an exception."""
    found: list[tuple[CodeType, int, int]] = []
    while traceback is not None:
        found.append((traceback.tb_frame.f_code, traceback.tb_lineno, traceback.tb_lasti))
        traceback = traceback.tb_next
    return _chosen(found[::-1])


def start_of(code: CodeType | None) -> Spot:
    """The line of a function's `def`, which is below its decorators."""
    if code is None:
        return Spot("?", 0)
    line = code.co_firstlineno
    while linecache.getline(code.co_filename, line).lstrip().startswith("@"):
        line += 1
    return Spot(code.co_filename, line)


def _chosen(places: Sequence[tuple[CodeType, int, int]]) -> Spot:
    """Innermost first; code of libraries counts when there is no other."""
    others = [place for place in places if not _is_in(place[0].co_filename, _PACKAGE)]
    users = [place for place in others if not _is_installed(place[0].co_filename)]
    for code, line, instruction in (users or others)[:1]:
        return Spot(code.co_filename, line, _span(code, instruction))
    return Spot("?", 0)


def _span(code: CodeType, instruction: int) -> Span | None:
    positions = list(code.co_positions())
    if not 0 <= instruction // 2 < len(positions):
        return None
    line, end_line, column, end_column = positions[instruction // 2]
    if line is None or end_line is None or column is None or end_column is None:
        return None
    return Span(line, column, end_line, end_column)


def _is_installed(file: str) -> bool:
    return any(_is_in(file, folder) for folder in _library_folders())


@cache
def _library_folders() -> frozenset[str]:
    paths = sysconfig.get_paths()
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return frozenset(paths[name] for name in names if name in paths)


def _is_in(file: str, folder: str) -> bool:
    return file.startswith((folder + os.sep, "<frozen "))
