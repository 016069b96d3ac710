"""Answers that several routes share."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec
from fastapi import FastAPI, Response
from fastapi.openapi.utils import get_openapi

from runnel.api.problems import MEDIA_TYPE, Problem
from runnel.authoring.documents.schema import document_schema
from runnel.core.values import Json
from runnel.ports.store import Header
from runnel.views.execution import header_document

Responses: TypeAlias = dict[int | str, dict[str, Any]]

_SAID = {
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
_ALWAYS = (401, 403, 429, 503)


def problems(*statuses: int) -> Responses:
    """What OpenAPI says of these, and of those that every path may answer."""
    return {
        status: {"description": _SAID[status], "content": {MEDIA_TYPE: {"schema": _SCHEMA}}}
        for status in sorted({*statuses, *_ALWAYS})
    }


_SCHEMA = {"$ref": f"#/components/schemas/{Problem.__name__}"}
BODY = (400, 413, 415, 422)


def written(document: Mapping[str, Json]) -> Response:
    """An answer that is right as it is made here: tests hold it to the model that OpenAPI shows.

    To have FastAPI build that model first, of 20 executions, took as long as all the rest.
    """
    return Response(msgspec.json.encode(document), media_type="application/json")


def listed(header: Header) -> dict[str, Json]:
    """An execution as lists have it over HTTP."""
    return {**header_document(header), "workflow_definition_id": header.definition}


# The description of the API for programs, with the schema of workflow documents in it.

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
