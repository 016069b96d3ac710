"""Builds responses from views, and the OpenAPI description of responses and views."""

from collections.abc import Callable, Iterable
from inspect import cleandoc
from typing import Any, TypeAlias, get_args, get_origin

import msgspec
from fastapi import FastAPI, Response
from fastapi.openapi.utils import get_openapi

from runnel.api.problems import MEDIA_TYPE, Problem
from runnel.authoring.documents.schema import build_document_schema
from runnel.views import encode_view, schema_hook
from runnel.views.node import ErrorView

ResponseDescriptions: TypeAlias = dict[int | str, dict[str, Any]]

_DESCRIPTION_BY_STATUS = {
    400: "The body can't be parsed",
    401: "The token is missing, unknown, revoked or expired",
    403: "The token lacks the scope, or the request comes from a foreign page",
    404: "Not found",
    409: "Not possible in the current state",
    413: "The body is too large",
    415: "The media type of the body is not supported",
    422: "The request is not valid; `errors` lists every problem",
    429: "Too many requests",
    503: "The store can't be reached, or the queues are full",
}
_STATUSES_OF_EVERY_ROUTE = (401, 403, 429, 503)


def describe_problems(*statuses: int) -> ResponseDescriptions:
    """Describes these statuses for OpenAPI, and those that every route may answer."""
    return {
        status: {
            "description": _DESCRIPTION_BY_STATUS[status],
            "content": {MEDIA_TYPE: {"schema": _PROBLEM_SCHEMA}},
        }
        for status in sorted({*statuses, *_STATUSES_OF_EVERY_ROUTE})
    }


_PROBLEM_SCHEMA = {"$ref": f"#/components/schemas/{Problem.__name__}"}


def describe_view(view: Any) -> dict[str, Any]:
    """Returns a reference to the schema of a view, which `make_openapi_builder` defines."""
    return {"content": {"application/json": {"schema": {"$ref": _get_component_path(view)}}}}


def make_view_response(view: object, *, status: int = 200) -> Response:
    """Encodes a view as JSON; None becomes an empty body.

    msgspec encodes the view, without a response model of FastAPI. For a list of 20 executions, such
    a model took as long as the rest of the request.
    """
    if view is None:
        return Response(status_code=status)
    return Response(encode_view(view), status_code=status, media_type="application/json")


# The OpenAPI description, which includes the JSON Schema of workflow documents.

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


def make_openapi_builder(app: FastAPI, views: Iterable[Any]) -> Callable[[], dict[str, Any]]:
    """Returns a function that builds the OpenAPI description at its first call, and caches it.

    `views` are all views that routes return.
    """
    openapi: dict[str, Any] = {}

    def describe_api() -> dict[str, Any]:
        if not openapi:
            openapi.update(_build_openapi(app, views))
        return openapi

    return describe_api


def _build_openapi(app: FastAPI, views: Iterable[Any]) -> dict[str, Any]:
    openapi = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    components = openapi.setdefault("components", {})
    schemas = components["schemas"] = _build_view_schemas(views) | components.get("schemas", {})
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
    components["schemas"] = dict(sorted(schemas.items()))
    return openapi


def _build_view_schemas(views: Iterable[Any]) -> dict[str, Any]:
    _refs, schemas = msgspec.json.schema_components(
        list(dict.fromkeys(views)),
        schema_hook=schema_hook,
        ref_template=_COMPONENTS_PREFIX + "{name}",
    )
    for name, schema in schemas.items():
        if "description" in schema:
            schema["description"] = cleandoc(schema["description"])
        if name != ErrorView.__name__:  # its optional fields are left out of a response
            _require_all(schema)
    return schemas


def _require_all(schema: dict[str, Any]) -> None:
    """Marks every field as required: a response has all fields, also those with a default."""
    properties = schema.get("properties", {})
    for field in properties.values():
        field.pop("default", None)
    if properties:
        schema["required"] = list(properties)


def _get_component_path(view: Any) -> str:
    """Uses the name that msgspec gives to a view: `Page[WorkerView]` is `Page_WorkerView_`."""
    kind = get_origin(view)
    if kind is None:
        return f"{_COMPONENTS_PREFIX}{view.__name__}"
    names = "_".join(argument.__name__ for argument in get_args(view))
    return f"{_COMPONENTS_PREFIX}{kind.__name__}_{names}_"
