"""Builds the JSON Schema of workflow files, for editors, from the tables in `fields.py`.

The schema does not allow null, although the reader treats null as absent. The schema has no rules
that concern the whole graph.
"""

import json
from collections.abc import Mapping
from importlib import resources

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
from runnel.core.validation.checks import (
    LABEL,
    NAME,
    NODE_CHECKS,
    RETRY_CHECKS,
    TEXT,
    WORKFLOW_CHECKS,
    ValueCheck,
)
from runnel.core.validation.handler_settings import HANDLER_SETTINGS, HandlerSetting
from runnel.core.values import Json
from runnel.core.workflow import CHILD_WORKFLOW

# The meaning of each key of a document, for editors and for docs/reference.

FIELD_DESCRIPTIONS: Mapping[str, Mapping[str, str]] = {
    "workflow": {
        "name": "Name of the workflow. Each new content under this name gets a new version number",
        "version": "A note for readers. Runnel does not store it, and numbers versions by content",
        "nodes": "The steps of the workflow: a list of nodes, or an object of nodes by id",
        "input": (
            "JSON Schema that the input of every execution must match. The `default` of a missing "
            "property is stored in the input. Without a schema, any input "
            "is valid"
        ),
        "on_failure": (
            "Effect of a failed node. fail_fast: all other nodes are cancelled, then clean-up "
            "nodes run; continue: only the nodes that depend on the failed node are skipped"
        ),
        "timeout_seconds": "Time limit of an execution. An execution that exceeds it fails",
        "sla_seconds": (
            "Expected duration of an execution. A longer execution is reported, but not stopped"
        ),
        "max_concurrency": (
            "How many tasks and child executions of one execution may run at a time"
        ),
        "priority": (
            "Priority of the executions: in a queue, tasks with a higher number come first"
        ),
        "rate_limits": (
            "Rate limits by resource tag, shared by all executions. A node uses the limit that its "
            "resource_tag names"
        ),
        "labels": "Names and values that every execution gets, to filter executions by",
        "output": (
            "Result of an execution, which may contain templates. Without this key, the result is "
            "the output of the last nodes"
        ),
    },
    "node": {
        "id": "Name of the node in templates, histories and commands",
        "handler": "Name of the handler that does the work: built-in, or one that you register",
        "config": "Settings of the handler, which may contain templates",
        "dependencies": (
            "Ids of the nodes that must settle before this node starts. Without this key, the node "
            "depends on the nodes that its templates name"
        ),
        "condition": (
            "Expression that is evaluated before the node runs. If it is false, the node is skipped"
        ),
        "run_when": (
            "Which results of its dependencies start the node. default: none failed and not all "
            "were skipped; all_completed: all completed; none_failed: none failed, but some may be "
            "skipped; all_settled: always; one_failed: at least one failed"
        ),
        "when_not_met": (
            "What becomes of the node if run_when is not met. skip: SKIPPED; fail: FAILED, so that "
            "the execution fails too"
        ),
        "retry": "Retries after a failed attempt: a policy, a number of retries, or false for none",
        "timeout_seconds": "Time limit of one attempt. An attempt that exceeds it has failed",
        "soft_timeout_seconds": (
            "Time after which SoftTimeoutError is raised inside an attempt, so that the code can "
            "clean up before timeout_seconds. Code in a thread can't be interrupted, and reads "
            "ctx.soft_timeout instead"
        ),
        "resource_tag": (
            "Entry of the workflow's rate_limits that each attempt counts against. Each value of a "
            "template has a rate of its own"
        ),
        "concurrency_key": (
            "Template. At most concurrency_limit tasks with an equal key run at a time"
        ),
        "concurrency_limit": "How many tasks with an equal concurrency_key run at a time",
        "for_each": (
            "List, or expression that results in a list. The node runs one task per item, and its "
            "output is the list of their outputs"
        ),
        "queue": (
            "Queue of the node's tasks. Without this key, the queue has the name of the handler"
        ),
        "cache": (
            "Reuse of the result of an earlier, equal task: true, or an object with key or "
            "ttl_seconds"
        ),
    },
    "retry": {
        "max_retries": "How many retries follow the first attempt",
        "initial_delay": "Delay before the first retry, in seconds",
        "max_delay": "Upper limit of the delay, in seconds",
        "exponential_base": "Factor by which the delay grows with each retry",
        "jitter": "Whether delays are randomized, so that many tasks do not retry at once",
        "retry_on": (
            "Names of exception classes, or of their base classes, that are retried although they "
            "are not retried by default, such as ValueError"
        ),
        "no_retry_on": (
            "Names of exception classes, or of their base classes, that are never retried. "
            "no_retry_on takes precedence over retry_on"
        ),
    },
    "cache": {
        "key": (
            "Template. Tasks with an equal key share a result. Without a key, tasks with the same "
            "handler, config and inputs share a result"
        ),
        "ttl_seconds": "How long a result can be reused, in seconds",
    },
    "rate_limit": {
        "rate_per_second": "Attempts per second, on average",
        "burst": "Attempts that may start at once after a pause",
    },
}


SCHEMA_FILE_NAME = "workflow.schema.json"

JsonSchema = Mapping[str, Json]

_NAMES_SCHEMA: JsonSchema = {"anyOf": [NAME.schema, {"type": "array", "items": NAME.schema}]}
_TEMPLATE_SCHEMA: JsonSchema = {"type": "string", "pattern": r"\{\{"}

# Schemas of the keys whose values more than one check reads. The tables can't provide these
# schemas; a test compares the schemas with the tables.
FIELD_SCHEMAS: Mapping[str, Mapping[str, JsonSchema]] = {
    "retry": {"retry_on": _NAMES_SCHEMA, "no_retry_on": _NAMES_SCHEMA},
    "node": {
        "dependencies": _NAMES_SCHEMA,
        "condition": {"anyOf": [NODE_CHECKS["condition"].schema, {"type": "boolean"}]},
        "run_when": NODE_CHECKS["run_when"].schema,
        "when_not_met": NODE_CHECKS["when_not_met"].schema,
        "retry": {
            "anyOf": [
                {"$ref": "#/$defs/retry"},
                RETRY_CHECKS["max_retries"].schema,
                {"const": False},
            ]
        },
        "for_each": {
            "anyOf": [
                NODE_CHECKS["for_each"].schema,
                {"type": "array"},
                {
                    "type": "object",
                    "properties": {"items": {"type": ["string", "array"]}},
                    "required": ["items"],
                    "additionalProperties": False,
                },
            ]
        },
        "cache": {"anyOf": [{"type": "boolean"}, {"$ref": "#/$defs/cache"}]},
    },
    "workflow": {
        "version": {"type": ["string", "number"]},
        "nodes": {
            # Not anyOf: an editor would only report that neither alternative matches.
            "if": {"type": "array"},
            "then": {"minItems": 1, "items": {"$ref": "#/$defs/listed_node"}},
            "else": {
                "type": "object",
                "minProperties": 1,
                "additionalProperties": {"$ref": "#/$defs/node"},
            },
        },
        "input": {"type": "object"},
        "on_failure": WORKFLOW_CHECKS["on_failure"].schema,
        "rate_limits": {
            "type": "object",
            "additionalProperties": {"$ref": "#/$defs/rate_limit"},
        },
        "labels": {"type": "object", "additionalProperties": LABEL.schema},
        "output": {},
    },
}


def build_document_schema() -> dict[str, Json]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A Runnel workflow",
        "$ref": "#/$defs/named_workflow",
        "$defs": {
            "named_workflow": {"$ref": "#/$defs/workflow", "required": ["name", "nodes"]},
            "workflow": _build_object_schema(WORKFLOW_TABLE, "workflow") | {"required": ["nodes"]},
            "listed_node": {
                "$ref": "#/$defs/node",
                "anyOf": [{"required": ["id"]}, {"required": ["node_id"]}],
            },
            "node": _build_object_schema(NODE_TABLE, "node")
            | {
                "required": ["handler"],
                "allOf": [_build_settings_schema(name) for name in _list_handlers_with_settings()],
            },
            "retry": _build_object_schema(RETRY_TABLE, "retry"),
            "cache": _build_object_schema(CACHE_TABLE, "cache"),
            "rate_limit": _build_object_schema(RATE_LIMIT_TABLE, "rate_limit"),
        },
    }


def format_document_schema() -> str:
    return json.dumps(build_document_schema(), indent=2, ensure_ascii=False) + "\n"


def read_shipped_schema() -> str:
    """Returns the schema file of the package; a test compares it with the generated schema."""
    return resources.files(__package__).joinpath(SCHEMA_FILE_NAME).read_text(encoding="utf-8")


def find_field_schema(table: str, name: str, field: DocumentField) -> JsonSchema | None:
    """Returns the schema of a field; None if neither the table nor FIELD_SCHEMAS defines it."""
    if isinstance(field.read, CheckedReader):
        return _build_check_schema(field.read.check)
    return FIELD_SCHEMAS.get(table, {}).get(name)


def _build_object_schema(table: FieldTable, title: str) -> dict[str, Json]:
    properties: dict[str, Json] = {}
    for name, field in table.fields.items():
        schema = _add_description(
            find_field_schema(title, name, field) or {}, FIELD_DESCRIPTIONS[title][name]
        )
        properties[name] = schema
        if field.alias:
            properties[field.alias] = schema
        if name == "handler":
            known = {"enum": sorted(HANDLER_SETTINGS)}
            properties[name] = {"anyOf": [known, schema], "description": schema["description"]}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _add_description(schema: JsonSchema, meaning: str) -> dict[str, Json]:
    """Returns the schema with a description: the meaning, then the expected value in brackets."""
    expected = schema.get("description")
    return {**schema, "description": f"{meaning} ({expected})" if expected else meaning}


def _list_handlers_with_settings() -> list[str]:
    return [name for name, settings in HANDLER_SETTINGS.items() if settings is not None]


def _build_settings_schema(handler: str) -> dict[str, Json]:
    """Builds the schema of a built-in handler's config; any value may be a template."""
    settings = HANDLER_SETTINGS[handler] or {}
    properties = {name: _build_setting_schema(setting) for name, setting in settings.items()}
    required = [name for name, setting in settings.items() if setting.is_required]
    config: dict[str, Json] = {"properties": properties, "additionalProperties": False}
    if handler == CHILD_WORKFLOW:
        properties |= {
            "definition": {"$ref": "#/$defs/workflow"},
            "file": TEXT.schema,
            "workflow": NAME.schema,
        }
    then: dict[str, Json] = {"properties": {"config": config}}
    if required:
        config["required"] = required
        then["required"] = ["config"]
    return {"if": {"properties": {"handler": {"const": handler}}}, "then": then}


def _build_setting_schema(setting: HandlerSetting) -> JsonSchema:
    schema = setting.check.schema
    if setting.is_literal or not schema or schema == {"type": "string"}:
        return _build_check_schema(setting.check)
    return {"anyOf": [schema, _TEMPLATE_SCHEMA], "description": setting.check.expected}


def _build_check_schema(check: ValueCheck) -> JsonSchema:
    """Returns the schema of a check. Editors show its description, the expected value."""
    return {**check.schema, "description": check.expected}


if __name__ == "__main__":
    with resources.as_file(resources.files(__package__).joinpath(SCHEMA_FILE_NAME)) as path:
        path.write_text(format_document_schema(), encoding="utf-8")
