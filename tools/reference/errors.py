"""docs/reference/errors.md: every error that Runnel raises on purpose."""

import inspect
from types import ModuleType

from runnel import errors
from runnel import errors as inner
from runnel import errors as input_errors
from runnel import errors as requests
from runnel import errors as services
from runnel import errors as stores
from runnel import errors as tasks
from runnel.errors import RunnelError
from tools.reference.markdown import code, page, table

INTRODUCTION = """\
All are in `runnel.errors`, and a `RunnelError`. `code` is the name that programs should go by: it
does not change. *Tried again* says whether a task that raised it is, by the node's `retry`;
exceptions of your own are judged by [their class](../how-to/retries.md). An `InputError` ends a
command with exit code 2, the others with 1."""


def errors_page() -> str:
    modules = (input_errors, requests, tasks, services, stores, inner)
    return page("Errors", INTRODUCTION, *map(_section, modules))


def all_errors() -> set[type[RunnelError]]:
    return {getattr(errors, name) for name in errors.__all__} - {RunnelError}


def _section(module: ModuleType) -> str:
    rows = [
        (code(each.code), code(each.__name__), "yes" if each.retryable else "", _meaning(each))
        for each in vars(module).values()
        if inspect.isclass(each) and each in all_errors() and each.__module__ == module.__name__
    ]
    title = (inspect.getdoc(module) or "").partition("\n")[0].rstrip(".")
    head = ("code", "class", "tried again", "meaning")
    return f"## {title}\n\n{table(head, rows)}"


def _meaning(error: type[RunnelError]) -> str:
    return (inspect.getdoc(error) or "").partition("\n\n")[0]
