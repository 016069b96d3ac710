"""Answers that several routes share."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec
from fastapi import FastAPI, Response
from fastapi.openapi.utils import get_openapi

from runnel.api.problems import MEDIA_TYPE, Problem
from runnel.authoring.documents.schema import build_document_schema
from runnel.client.execution_views import build_header_document
from runnel.core.values import Json
from runnel.ports.store import ExecutionHeader

ResponseDescriptions: TypeAlias = dict[int | str, dict[str, Any]]

_DESCRIPTION_BY_STATUS = {
    400: "The body can't be read",
    401: "No token, or one that is not good any more",
    403: "The token does not allow this, or the request is of a foreign page",
    404: "There is no such thing",
    409: "Not in this state",
    413: "The body is too large",
    415: "The body is of another kind",
    422: "The request can't be used; every problem is listed",
    429: "Too many requests",
    503: "A store can't be reached, or there is too much to do",
}
_STATUSES_OF_EVERY_ROUTE = (401, 403, 429, 503)


def describe_problems(*statuses: int) -> ResponseDescriptions:
    """What OpenAPI says of these, and of those that every path may answer."""
    return {
        status: {
            "description": _DESCRIPTION_BY_STATUS[status],
            "content": {MEDIA_TYPE: {"schema": _PROBLEM_SCHEMA}},
        }
        for status in sorted({*statuses, *_STATUSES_OF_EVERY_ROUTE})
    }


_PROBLEM_SCHEMA = {"$ref": f"#/components/schemas/{Problem.__name__}"}
BODY_STATUSES = (400, 413, 415, 422)


def make_json_response(document: Mapping[str, Json]) -> Response:
    """An answer that is right as it is made here: tests hold it to the model that OpenAPI shows.

    To have FastAPI build that model first, of 20 executions, took as long as all the rest.
    """
    return Response(msgspec.json.encode(document), media_type="application/json")


def build_listed_execution(header: ExecutionHeader) -> dict[str, Json]:
    """An execution as lists have it over HTTP."""
    return {**build_header_document(header), "workflow_definition_id": header.definition}


# The description of the API for programs, with the schema of workflow documents in it.

_DEFINITIONS_PREFIX = "#/$defs/"
_COMPONENTS_PREFIX = "#/components/schemas/"
_DOCUMENT_SCHEMA_NAME = "WorkflowFile"

WORKFLOW_REQUEST_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {"$ref": _COMPONENTS_PREFIX + _DOCUMENT_SCHEMA_NAME},
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


def make_openapi_builder(app: FastAPI) -> Callable[[], dict[str, Any]]:
    """Made at the first request for it, and kept."""
    kept: dict[str, Any] = {}

    def description() -> dict[str, Any]:
        if not kept:
            kept.update(_build_openapi(app))
        return kept

    return description


def _build_openapi(app: FastAPI) -> dict[str, Any]:
    found = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    schemas = found.setdefault("components", {}).setdefault("schemas", {})
    problem = Problem.model_json_schema(ref_template=_COMPONENTS_PREFIX + "{model}")
    schemas |= problem.pop("$defs", {})
    schemas[Problem.__name__] = problem
    document = build_document_schema()
    text = msgspec.json.encode(document).replace(
        _DEFINITIONS_PREFIX.encode(), f"{_COMPONENTS_PREFIX}{_DOCUMENT_SCHEMA_NAME}.".encode()
    )
    document = msgspec.json.decode(text)
    document.pop("$schema", None)
    document.pop("$id", None)
    for name, schema in document.pop("$defs", {}).items():
        schemas[f"{_DOCUMENT_SCHEMA_NAME}.{name}"] = schema
    schemas[_DOCUMENT_SCHEMA_NAME] = document
    return found
