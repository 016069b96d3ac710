"""How routes answer, with views and with problems, and how OpenAPI describes that."""

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


def describe_view(view: Any) -> dict[str, Any]:
    """What OpenAPI says of an answer with this view; `make_openapi_builder` describes the view."""
    return {"content": {"application/json": {"schema": {"$ref": _get_component_path(view)}}}}


def make_view_response(view: object, *, status: int = 200) -> Response:
    """Answer with a view, or with an empty body for None.

    The view is encoded as it is: to have FastAPI build a model of it first, of 20 executions, took
    as long as all the rest.
    """
    if view is None:
        return Response(status_code=status)
    return Response(encode_view(view), status_code=status, media_type="application/json")


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


def make_openapi_builder(app: FastAPI, views: Iterable[Any]) -> Callable[[], dict[str, Any]]:
    """Made at the first request for it, and kept; `views` are all that routes answer."""
    kept: dict[str, Any] = {}

    def describe_api() -> dict[str, Any]:
        if not kept:
            kept.update(_build_openapi(app, views))
        return kept

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
        if name != ErrorView.__name__:  # it leaves out what the error does not have
            _require_all(schema)
    return schemas


def _require_all(schema: dict[str, Any]) -> None:
    """An answer has every field, also one that has a default where views are built."""
    properties = schema.get("properties", {})
    for field in properties.values():
        field.pop("default", None)
    if properties:
        schema["required"] = list(properties)


def _get_component_path(view: Any) -> str:
    """The name that msgspec gives to a view: `Page_WorkerView_` to `Page[WorkerView]`."""
    kind = get_origin(view)
    if kind is None:
        return f"{_COMPONENTS_PREFIX}{view.__name__}"
    names = "_".join(argument.__name__ for argument in get_args(view))
    return f"{_COMPONENTS_PREFIX}{kind.__name__}_{names}_"
