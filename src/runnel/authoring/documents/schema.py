"""The JSON Schema of workflow documents, for editors: made from the tables that read them.

An editor wants to help while one types: the schema says nothing of null, which counts as not
given, nor of what only the whole graph can tell.
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

# What the keys of a document mean, in one sentence each: for editors and for the reference.

FIELD_DESCRIPTIONS: Mapping[str, Mapping[str, str]] = {
    "workflow": {
        "name": "What it is called; together with its content it makes the version",
        "version": "A note for people: versions are numbered by content, so it is not kept",
        "nodes": "The steps: a list, or an object by id",
        "input": "A JSON Schema that the input of an execution has to fit",
        "on_failure": "Whether a failed node ends the rest, or only what depends on it",
        "timeout_seconds": "How long an execution may take before it is ended",
        "sla_seconds": "How long it should take: later is reported, and ends nothing",
        "max_concurrency": "How many tasks and child executions may be under way at a time",
        "rate_limits": "Token buckets by resource tag, shared by all executions",
        "labels": "Names and values to find its executions by",
        "output": "The result, with templates; without it, the output of the last nodes",
    },
    "node": {
        "id": "Its name in templates, histories and commands",
        "handler": "What does the work: one that comes with Runnel, or your own",
        "config": "The settings of the handler, with templates",
        "dependencies": "Its parents; without the key they are those that its templates name",
        "condition": "An expression; when it is false, the node is skipped",
        "run_when": "What its parents must have come to",
        "retry": "When it is tried again: a policy, a number of retries, or false",
        "timeout_seconds": "How long one attempt may take",
        "soft_timeout_seconds": "When an exception is raised inside of an attempt, to clean up",
        "resource_tag": "The bucket of rate_limits that each attempt takes a token of",
        "concurrency_key": "A template: of those with the same key, only some run at a time",
        "concurrency_limit": "How many of a concurrency_key run at a time",
        "for_each": "A list, known when it runs: one task for each item",
        "queue": "Where its tasks wait, if not in the queue of the handler",
        "cache": "Whether an earlier result may be taken, and for how long: true, or an object",
    },
    "retry": {
        "max_retries": "How often it is tried again after the first attempt",
        "initial_delay": "Seconds before the first retry",
        "max_delay": "The longest delay, in seconds",
        "exponential_base": "By how much each delay is longer than the one before",
        "jitter": "Whether delays are spread by chance, so that not all come back at once",
        "retry_on": "Names of exceptions, or of their bases, that are retried besides the usual",
        "no_retry_on": "Names of exceptions that are not retried; it wins over retry_on",
    },
    "cache": {
        "key": "A template: what has to be the same, instead of all that the task is given",
        "ttl_seconds": "How long a result is kept",
    },
    "rate_limit": {
        "rate_per_second": "Tokens that come back each second",
        "burst": "Tokens that can be saved up",
    },
}


SCHEMA_FILE_NAME = "workflow.schema.json"

JsonSchema = Mapping[str, Json]

_NAMES_SCHEMA: JsonSchema = {"anyOf": [NAME.schema, {"type": "array", "items": NAME.schema}]}
_TEMPLATE_SCHEMA: JsonSchema = {"type": "string", "pattern": r"\{\{"}

# What is read by more than one check, so that the tables can't tell: a test holds this to them.
FIELD_SCHEMAS: Mapping[str, Mapping[str, JsonSchema]] = {
    "retry": {"retry_on": _NAMES_SCHEMA, "no_retry_on": _NAMES_SCHEMA},
    "node": {
        "dependencies": _NAMES_SCHEMA,
        "condition": {"anyOf": [NODE_CHECKS["condition"].schema, {"type": "boolean"}]},
        "run_when": NODE_CHECKS["run_when"].schema,
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
            # Not anyOf: an editor would only say that neither fits.
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
    """The file that comes with the package; a test compares it with `format_document_schema`."""
    return resources.files(__package__).joinpath(SCHEMA_FILE_NAME).read_text(encoding="utf-8")


def find_field_schema(table: str, name: str, field: DocumentField) -> JsonSchema | None:
    """None for a field of which neither the table nor SHAPES knows what it may hold."""
    if isinstance(field.read, CheckedReader):
        return _build_check_schema(field.read.check)
    return FIELD_SCHEMAS.get(table, {}).get(name)


def _build_object_schema(table: FieldTable, title: str) -> dict[str, Json]:
    properties: dict[str, Json] = {}
    for name, field in table.fields.items():
        shape = _add_description(
            find_field_schema(title, name, field) or {}, FIELD_DESCRIPTIONS[title][name]
        )
        properties[name] = shape
        if field.alias:
            properties[field.alias] = shape
        if name == "handler":
            known = {"enum": sorted(HANDLER_SETTINGS)}
            properties[name] = {"anyOf": [known, shape], "description": shape["description"]}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _add_description(shape: JsonSchema, meaning: str) -> dict[str, Json]:
    """What it means, and in parentheses what it has to be."""
    expected = shape.get("description")
    return {**shape, "description": f"{meaning} ({expected})" if expected else meaning}


def _list_handlers_with_settings() -> list[str]:
    return [name for name, settings in HANDLER_SETTINGS.items() if settings is not None]


def _build_settings_schema(handler: str) -> dict[str, Json]:
    """What the config of a built-in handler holds; a template may stand for any value."""
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
    """An editor shows the description next to the value."""
    return {**check.schema, "description": check.expected}


if __name__ == "__main__":
    with resources.as_file(resources.files(__package__).joinpath(SCHEMA_FILE_NAME)) as path:
        path.write_text(format_document_schema(), encoding="utf-8")
