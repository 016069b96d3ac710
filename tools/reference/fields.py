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
from tools.reference.markdown import code, page, table

INTRODUCTION = """\
Every key of a workflow file. [Workflows in YAML](../guides/workflows.md) explains them. `runnel
schema` prints the JSON Schema for editors. A key or value that does not fit is refused by name.
Times are in seconds."""
CHECKED_LATER = """\
A value with a template is checked when the task runs. What the handlers do:
[Workflows in YAML](../guides/workflows.md#handlers) and [Handlers](handlers.md)."""

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


def fields_page() -> str:
    sections = [f"## {title}\n\n{_keys(name, keys, model)}" for title, name, keys, model in TABLES]
    handlers = [_handler(each) for each in HANDLER_SETTINGS if _is_listed(each)]
    return page(
        "Keys of a workflow file",
        INTRODUCTION,
        *sections,
        f"## Settings of the handlers\n\n{CHECKED_LATER}",
        *handlers,
    )


def _keys(name: str, keys: FieldTable, model: type[msgspec.Struct]) -> str:
    defaults = {field.name: _default(field) for field in msgspec.structs.fields(model)}
    rows = [
        (
            _names(key, field),
            FIELD_DESCRIPTIONS[name][key],
            _expected(key, field),
            "required" if field.is_required else defaults.get(key, ""),
        )
        for key, field in keys.fields.items()
    ]
    return table(("key", "meaning", "expects", "default"), rows)


def _names(key: str, field: DocumentField) -> str:
    return f"{code(key)}, or {code(field.alias)}" if field.alias else code(key)


def _expected(key: str, field: DocumentField) -> str:
    if isinstance(field.read, CheckedReader):
        return field.read.check.expected
    return CHOICES[key].expected if key in CHOICES else ""


def _default(field: msgspec.structs.FieldInfo) -> str:
    value: Any = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    if value is msgspec.NODEFAULT or value is None or value in ({}, ()):
        return ""
    if isinstance(value, msgspec.Struct):
        return "see below"
    if isinstance(value, Enum):
        return code(str(value.value))
    return code(f"{value:g}" if isinstance(value, float) else str(value).lower())


def _is_listed(handler: str) -> bool:
    """Leaves out handlers that accept any settings, and second names of handlers."""
    settings = HANDLER_SETTINGS[handler]
    first = next(name for name, each in HANDLER_SETTINGS.items() if each is settings)
    return settings is not None and first == handler


def _handler(handler: str) -> str:
    settings = HANDLER_SETTINGS[handler] or {}
    names = [name for name, each in HANDLER_SETTINGS.items() if each is settings]
    rows = [
        (code(key), each.check.expected, "required" if each.is_required else "", _whose(names, key))
        for key, each in settings.items()
    ]
    if handler == CHILD_WORKFLOW:
        rows += [(code(key), expected, "", "") for key, expected in OF_CHILDREN.items()]
    head = ("setting", "expects", "", "of the operation")
    columns = len(head) if handler == DATA_PROCESSOR else len(head) - 1
    title = ", ".join(map(code, names))
    return f"### {title}\n\n" + table(head[:columns], [row[:columns] for row in rows])


def _whose(handlers: list[str], setting: str) -> str:
    if DATA_PROCESSOR not in handlers:
        return ""
    return ", ".join(code(each) for each, own in OPERATION_SETTINGS.items() if setting in own)
