"""docs/reference/errors.md: every error that Runnel raises on purpose."""

import inspect
import re
from collections.abc import Iterator

from runnel import errors
from runnel.errors import RunnelError
from tools.reference.markdown import format_code, format_page, format_table

INTRODUCTION = """\
All errors are in `runnel.errors` and are subclasses of `RunnelError`. `code` never changes: use it
in programs. *Retried* says whether the node's `retry` applies to a task that raised the error; for
your own exceptions, [their class](../guides/retries.md) decides. A command ends with exit code 2
after an `InputError`, and with 1 after any other error."""

# A section of the module: a comment of one line with two empty lines around it.
_SECTION = re.compile(r"\n\n\n# ([^\n]+)\.\n\n\n")
_CLASS = re.compile(r"^class (\w+)\(", re.MULTILINE)


def build_errors_page() -> str:
    return format_page("Errors", INTRODUCTION, *_iter_sections())


def _iter_sections() -> Iterator[str]:
    _, *parts = _SECTION.split(inspect.getsource(errors))
    for title, source in zip(parts[::2], parts[1::2], strict=True):
        classes = [getattr(errors, name) for name in _CLASS.findall(source)]
        head = ("code", "class", "retried", "meaning")
        yield f"## {title}\n\n{format_table(head, map(_build_row, classes))}"


def _build_row(error: type[RunnelError]) -> tuple[str, ...]:
    meaning = (inspect.getdoc(error) or "").partition("\n\n")[0]
    return (
        format_code(error.code),
        format_code(error.__name__),
        "yes" if error.retryable else "",
        meaning,
    )
