"""docs/reference/errors.md: every error that Runnel raises on purpose."""

import inspect
import re
from collections.abc import Iterator

from runnel import errors
from runnel.errors import RunnelError
from tools.reference.markdown import code, page, table

INTRODUCTION = """\
All are in `runnel.errors`, and a `RunnelError`. `code` is the name that programs should go by: it
does not change. *Tried again* says whether a task that raised it is, by the node's `retry`;
exceptions of your own are judged by [their class](../guides/retries.md). An `InputError` ends a
command with exit code 2, the others with 1."""

# A section of the module: a comment of one line with two empty lines around it.
_SECTION = re.compile(r"\n\n\n# ([^\n]+)\.\n\n\n")
_CLASS = re.compile(r"^class (\w+)\(", re.MULTILINE)


def errors_page() -> str:
    return page("Errors", INTRODUCTION, *_sections())


def _sections() -> Iterator[str]:
    _, *parts = _SECTION.split(inspect.getsource(errors))
    for title, source in zip(parts[::2], parts[1::2], strict=True):
        classes = [getattr(errors, name) for name in _CLASS.findall(source)]
        head = ("code", "class", "tried again", "meaning")
        yield f"## {title}\n\n{table(head, map(_row, classes))}"


def _row(error: type[RunnelError]) -> tuple[str, ...]:
    meaning = (inspect.getdoc(error) or "").partition("\n\n")[0]
    return code(error.code), code(error.__name__), "yes" if error.retryable else "", meaning
