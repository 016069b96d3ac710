"""docs/reference/errors.md: every error that Runnel raises on purpose."""

import inspect
import re
from collections.abc import Iterator

from runnel import errors
from runnel.errors import RunnelError
from tools.reference.markdown import code, page, table

INTRODUCTION = """\
All errors are in `runnel.errors` and are subclasses of `RunnelError`. `code` never changes: use it
in programs. *Retried* says whether the node's `retry` applies to a task that raised the error; for
your own exceptions, [their class](../guides/retries.md) decides. A command ends with exit code 2
after an `InputError`, and with 1 after any other error."""

# A section of the module: a comment of one line with two empty lines around it.
_SECTION = re.compile(r"\n\n\n# ([^\n]+)\.\n\n\n")
_CLASS = re.compile(r"^class (\w+)\(", re.MULTILINE)


def errors_page() -> str:
    return page("Errors", INTRODUCTION, *_sections())


def _sections() -> Iterator[str]:
    _, *parts = _SECTION.split(inspect.getsource(errors))
    for title, source in zip(parts[::2], parts[1::2], strict=True):
        classes = [getattr(errors, name) for name in _CLASS.findall(source)]
        head = ("code", "class", "retried", "meaning")
        yield f"## {title}\n\n{table(head, map(_row, classes))}"


def _row(error: type[RunnelError]) -> tuple[str, ...]:
    meaning = (inspect.getdoc(error) or "").partition("\n\n")[0]
    return code(error.code), code(error.__name__), "yes" if error.retryable else "", meaning
