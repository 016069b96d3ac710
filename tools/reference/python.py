"""docs/reference/python.md: every public name of the package, from signatures and docstrings."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any

import msgspec

import runnel
from runnel.app.decorated import DecoratedWorkflow
from runnel.authoring.context import TaskMetrics
from runnel.authoring.decorators.trace import NodeOptions
from runnel.authoring.decorators.workflow import WorkflowOptions
from runnel.client.http_resources import (
    HttpBulk,
    HttpDeadLetters,
    HttpOperations,
    HttpSchedules,
    HttpValues,
    HttpWebhooks,
)
from tools.reference.markdown import format_code, format_page, format_table

INTRODUCTION = """\
The names of `from runnel import …`. Modules below `runnel` that are not listed here may change in
every version, except `runnel.errors`, `runnel.views` and `runnel.testing`."""

GROUPS: dict[str, tuple[str, ...]] = {
    "Write workflows": (
        *("task", "workflow", "Task", "handler", "text", "default", "item", "secret"),
        *("sleep", "wait_for_signal", "RetryPolicy", "Cache", "RateLimit"),
    ),
    "Run workflows": (
        "run",
        "run_many",
        "BatchResult",
        "submit",
        "load_file",
        "Engine",
        "lifespan",
    ),
    "Inside a task": ("Context", "Skip"),
    "Call a server": (
        *("Client", "SyncClient", "ExecutionFilter", "LettersOf", "Rerun", "Schedule", "Webhook"),
        "WebhookKind",
    ),
    "Add handlers": ("HandlerRegistry",),
    "Run functions in one process": (
        *("WorkflowDAG", "WorkflowExecutor", "WorkflowResult", "StepResult", "StepContext"),
        *("StepCache", "TokenBucketRateLimiter"),
    ),
    "Errors": ("RunnelError", "InvalidWorkflowError", "TraceError", "WorkflowFailedError"),
}
# Described in the text below, not by a section.
OTHER_NAMES = frozenset({"errors", "__version__"})
ERRORS = (
    "`runnel.errors` has every error: [Errors](errors.md). `runnel.__version__` is the version."
)
SYNC_CLIENT = """\
It has the methods and parts of [`Client`](#client), without `await`. Methods that return an
`AsyncIterator` there return an `Iterator` here."""

# Methods that only the engine calls: the page does not list them.
ENGINE_METHODS = frozenset(
    {
        *("bind", "delay_after", "emit", "is_retryable", "read_entries", "register_plan"),
        "relay_log",
    }
)
ENGINE_METHODS_OF: dict[str, frozenset[str]] = {"Context": frozenset({"cancel"})}

# Classes that a public name returns or holds; their members are listed below it.
PARTS: dict[str, dict[str, type]] = {
    "workflow": {"A decorated workflow": DecoratedWorkflow},
    "Context": {"ctx.metrics": TaskMetrics},
    "Client": {
        "client.schedules": HttpSchedules,
        "client.webhooks": HttpWebhooks,
        "client.dead_letters": HttpDeadLetters,
        "client.operations": HttpOperations,
        "client.many": HttpBulk,
        "client.values": HttpValues,
    },
}
OPTIONS: dict[str, type] = {"task": NodeOptions, "workflow": WorkflowOptions}


def build_python_page() -> str:
    sections = []
    for title, names in GROUPS.items():
        sections.append(f"## {title}")
        sections += [part for name in names for part in _describe_name(name)]
    return format_page("Python API", INTRODUCTION, *sections, ERRORS)


def _describe_name(name: str) -> Iterator[str]:
    value = getattr(runnel, name)
    yield f"### {format_code(name)}"
    if inspect.isclass(value):
        yield from _describe_class(name, value)
    elif inspect.isfunction(value):
        yield format_code(_format_signature(name, value))
        yield _get_doc(value)
    else:  # a handler that can be called, such as `sleep`
        yield format_code(_format_signature(name, type(value).__call__))
        yield _get_doc(type(value))
    if name in OPTIONS:
        rows = [
            (format_code(option), format_code(kind))
            for option, kind, _ in _list_fields(OPTIONS[name])
        ]
        yield "Options:\n\n" + format_table(("option", "type"), rows)
    for title, part in PARTS.get(name, {}).items():
        yield f"{title if ' ' in title else format_code(title)} has:"
        yield _table_members(name, part)


def _describe_class(name: str, kind: type) -> Iterator[str]:
    fields = list(_list_fields(kind)) if _has_fields(kind) else []
    if not fields and "__init__" in vars(kind) and name not in ("Context", "StepContext"):
        yield format_code(_format_signature(name, kind.__init__))  # type: ignore[misc]  # of this very class
    yield _get_doc(kind)
    if fields:
        rows = [(format_code(field), format_code(kind), default) for field, kind, default in fields]
        yield format_table(("field", "type", "default"), rows)
    yield SYNC_CLIENT if name == "SyncClient" else _table_members(name, kind)


def _has_fields(kind: type) -> bool:
    return issubclass(kind, msgspec.Struct) or hasattr(kind, "__dataclass_fields__")


def _list_fields(kind: type) -> Iterator[tuple[str, str, str]]:
    """Yields name, type and default of each field that the class itself declares."""
    for node in _parse(kind).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            default = "" if node.value is None else _format_default(kind, node.target.id, node)
            yield node.target.id, _unparse(node.annotation), default


def _format_default(kind: type, name: str, node: ast.AnnAssign) -> str:
    """Formats the default of a field; for a Struct, the value instead of the constant's name."""
    if issubclass(kind, msgspec.Struct):
        (field,) = [field for field in msgspec.structs.fields(kind) if field.name == name]
        factory = field.default_factory
        default = field.default if factory is msgspec.NODEFAULT else factory()
        return format_code(repr(default))
    return format_code(ast.unparse(node.value) if node.value is not None else "")


def _table_members(name: str, kind: type) -> str:
    rows = [
        (format_code(_format_member(member, value)), _get_doc(value))
        for member, value in _list_members(name, kind)
    ]
    return format_table(("member", "meaning"), rows) if rows else ""


def _list_members(name: str, kind: type) -> Iterator[tuple[str, Any]]:
    """Yields public methods and properties: first of the class, then of its Runnel base classes."""
    hidden = ENGINE_METHODS | ENGINE_METHODS_OF.get(name, frozenset())
    known = set(hidden)
    for base in kind.__mro__:
        if not base.__module__.startswith("runnel."):
            continue
        for member, value in vars(base).items():
            is_public = not member.startswith("_")
            if is_public and member not in known and _is_member(value):
                known.add(member)
                yield member, value


def _is_member(value: object) -> bool:
    return inspect.isfunction(value) or isinstance(value, property | classmethod)


def _format_member(name: str, value: Any) -> str:
    if isinstance(value, property):
        node = _parse(value.fget)
        return f"{name}: {_unparse(node.returns)}" if node.returns else name
    function = value.__func__ if isinstance(value, classmethod) else value
    return _format_signature(name, function)


def _format_signature(name: str, function: Callable[..., Any]) -> str:
    """Formats a signature with the annotations of the source; shows complex defaults as `…`."""
    node = _parse(function)
    annotations = {
        argument.arg: _unparse(argument.annotation)
        for argument in ast.walk(node.args)
        if isinstance(argument, ast.arg) and argument.annotation is not None
    }
    signature = inspect.signature(function)
    parameters = [
        parameter.replace(
            annotation=_Verbatim(annotations.get(parameter.name, UNTYPED)),
            default=_simplify_default(parameter.default),
        )
        for parameter in signature.parameters.values()
        if parameter.name != "self"
    ]
    arguments = signature.replace(parameters=parameters, return_annotation=signature.empty)
    returns = _unparse(node.returns) if node.returns is not None else "None"
    prefix = "await " if inspect.iscoroutinefunction(function) else ""
    suffix = "" if returns == "None" else f" -> {returns}"
    return f"{prefix}{name}{arguments}{suffix}".replace(f": {UNTYPED}", "")


UNTYPED = "<untyped>"


class _Verbatim:
    """A text that `inspect` prints unchanged, without quotes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _simplify_default(default: Any) -> Any:
    if default is inspect.Parameter.empty:
        return default
    if isinstance(default, StrEnum):
        return str(default)
    is_plain = default is None or isinstance(default, bool | int | float | str | tuple)
    return default if is_plain else _Verbatim("…")


def _unparse(annotation: ast.expr) -> str:
    """Formats an annotation; a forward reference, which is a string, is shown without quotes."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value
    return ast.unparse(annotation)


def _parse(value: Any) -> Any:
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(value))).body
    return node


def _get_doc(value: Any) -> str:
    """Returns the docstring of the value itself, not an inherited docstring."""
    return inspect.cleandoc(value.__doc__ or "")
