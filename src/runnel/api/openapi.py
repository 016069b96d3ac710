"""The description of the API for programs, with the schema of workflow documents in it."""

from collections.abc import Callable
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from runnel.api.problems import Problem
from runnel.authoring.document_schema import document_schema

_DEFINITIONS = "#/$defs/"
_COMPONENTS = "#/components/schemas/"
_DOCUMENT = "WorkflowFile"

DOCUMENT_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {"$ref": _COMPONENTS + _DOCUMENT},
                "example": {
                    "name": "hello",
                    "nodes": [
                        {"id": "greet", "handler": "output", "config": {"text": "hello"}},
                    ],
                },
            },
            "application/yaml": {"schema": {"type": "string"}},
        },
    }
}


def describe(app: FastAPI) -> Callable[[], dict[str, Any]]:
    """Made at the first request for it, and kept."""
    kept: dict[str, Any] = {}

    def description() -> dict[str, Any]:
        if not kept:
            kept.update(_description(app))
        return kept

    return description


def _description(app: FastAPI) -> dict[str, Any]:
    found = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    schemas = found.setdefault("components", {}).setdefault("schemas", {})
    problem = Problem.model_json_schema(ref_template=_COMPONENTS + "{model}")
    schemas |= problem.pop("$defs", {})
    schemas[Problem.__name__] = problem
    document = document_schema()
    text = msgspec.json.encode(document).replace(
        _DEFINITIONS.encode(), f"{_COMPONENTS}{_DOCUMENT}.".encode()
    )
    document = msgspec.json.decode(text)
    document.pop("$schema", None)
    document.pop("$id", None)
    for name, schema in document.pop("$defs", {}).items():
        schemas[f"{_DOCUMENT}.{name}"] = schema
    schemas[_DOCUMENT] = document
    return found
