"""Answers that several routes share."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec
from fastapi import Response

from runnel.api.problems import MEDIA_TYPE, Problem
from runnel.core.json_types import Json
from runnel.ports.store import Header
from runnel.views import header_document

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
