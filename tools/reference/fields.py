"""docs/reference/fields.md: every key of a workflow file, and every setting of the handlers."""

from enum import Enum
from typing import Any

import msgspec

from runnel.authoring.documents.fields import (
    CACHE_TABLE,
    NODE_TABLE,
    RATE_LIMIT_TABLE,
    RETRY_TABLE,
    WORKFLOW_TABLE,
    CheckedReader,
    DocumentField,
    FieldTable,
)
from runnel.authoring.documents.schema import FIELD_DESCRIPTIONS
from runnel.core.retry import RetryPolicy
from runnel.core.validation.checks import NODE_CHECKS, WORKFLOW_CHECKS
from runnel.core.validation.handler_settings import (
    DATA_PROCESSOR,
    HANDLER_SETTINGS,
    OPERATION_SETTINGS,
)
from runnel.core.workflow import CHILD_WORKFLOW, Cache, Node, RateLimit, Workflow
from tools.reference.markdown import format_code, format_page, format_table

INTRODUCTION = """\
Every key of a workflow file. [Workflows in YAML](../guides/workflows.md) explains them. `runnel
schema` prints the JSON Schema for editors. A key or value that does not fit is refused by name.
Times are in seconds."""
CHECKED_LATER = """\
A value with a template is checked when the task runs. The pages
[Workflows in YAML](../guides/workflows.md#handlers) and [Handlers](handlers.md) explain the
handlers."""

TABLES: tuple[tuple[str, str, FieldTable, type[msgspec.Struct]], ...] = (
    ("A workflow", "workflow", WORKFLOW_TABLE, Workflow),
    ("A node", "node", NODE_TABLE, Node),
    ("`retry` of a node", "retry", RETRY_TABLE, RetryPolicy),
    ("`cache` of a node", "cache", CACHE_TABLE, Cache),
    ("An entry of `rate_limits`", "rate_limit", RATE_LIMIT_TABLE, RateLimit),
)
# Checks of the keys whose value becomes an enumeration.
CHOICES = {"run_when": NODE_CHECKS["run_when"], "on_failure": WORKFLOW_CHECKS["on_failure"]}
# Read before the settings are checked, because they become a part of the node.
OF_CHILDREN = {
    "definition": "a workflow, written in place",
    "file": "or the path of its file, as seen from this one",
}


def build_fields_page() -> str:
    sections = [
        f"## {title}\n\n{_format_keys(name, keys, model)}" for title, name, keys, model in TABLES
    ]
    handlers = [_describe_handler(name) for name in HANDLER_SETTINGS if _is_listed(name)]
    return format_page(
        "Keys of a workflow file",
        INTRODUCTION,
        *sections,
        f"## Settings of the handlers\n\n{CHECKED_LATER}",
        *handlers,
    )


def _format_keys(name: str, keys: FieldTable, model: type[msgspec.Struct]) -> str:
    defaults = {field.name: _format_default(field) for field in msgspec.structs.fields(model)}
    rows = [
        (
            _format_names(key, field),
            FIELD_DESCRIPTIONS[name][key],
            _describe_expected(key, field),
            "required" if field.is_required else defaults.get(key, ""),
        )
        for key, field in keys.fields.items()
    ]
    return format_table(("key", "meaning", "expects", "default"), rows)


def _format_names(key: str, field: DocumentField) -> str:
    return f"{format_code(key)}, or {format_code(field.alias)}" if field.alias else format_code(key)


def _describe_expected(key: str, field: DocumentField) -> str:
    if isinstance(field.read, CheckedReader):
        return field.read.check.expected
    return CHOICES[key].expected if key in CHOICES else ""


def _format_default(field: msgspec.structs.FieldInfo) -> str:
    value: Any = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    if value is msgspec.NODEFAULT or value is None or value in ({}, ()):
        return ""
    if isinstance(value, msgspec.Struct):
        return "see below"
    if isinstance(value, Enum):
        return format_code(str(value.value))
    return format_code(f"{value:g}" if isinstance(value, float) else str(value).lower())


def _is_listed(handler: str) -> bool:
    """Returns False for a second name of a handler, and for a handler that accepts any settings."""
    settings = HANDLER_SETTINGS[handler]
    first = next(name for name, checks in HANDLER_SETTINGS.items() if checks is settings)
    return settings is not None and first == handler


def _describe_handler(handler: str) -> str:
    settings = HANDLER_SETTINGS[handler] or {}
    names = [name for name, checks in HANDLER_SETTINGS.items() if checks is settings]
    rows = [
        (
            format_code(key),
            setting.check.expected,
            "required" if setting.is_required else "",
            _list_operations(names, key),
        )
        for key, setting in settings.items()
    ]
    if handler == CHILD_WORKFLOW:
        rows += [(format_code(key), expected, "", "") for key, expected in OF_CHILDREN.items()]
    head = ("setting", "expects", "", "of the operation")
    columns = len(head) if handler == DATA_PROCESSOR else len(head) - 1
    title = ", ".join(map(format_code, names))
    return f"### {title}\n\n" + format_table(head[:columns], [row[:columns] for row in rows])


def _list_operations(handlers: list[str], setting: str) -> str:
    if DATA_PROCESSOR not in handlers:
        return ""
    return ", ".join(
        format_code(name) for name, own in OPERATION_SETTINGS.items() if setting in own
    )
