"""Errors as RFC 9457 problem details: one shape for all that can go wrong."""

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from math import ceil
from typing import Any

import msgspec
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from runnel import errors
from runnel.core.values import Json
from runnel.core.wording import escape_unprintable
from runnel.errors import (
    InvalidTriggerError,
    InvalidWorkflowError,
    RunnelError,
    TooManyRequestsError,
)

# The one table from what went wrong to the status that an HTTP client is told.

Status = HTTPStatus

STATUS_BY_ERROR: dict[type[Exception], HTTPStatus] = {
    errors.MalformedBodyError: Status.BAD_REQUEST,
    errors.NotAuthenticatedError: Status.UNAUTHORIZED,
    errors.WebhookRefusedError: Status.UNAUTHORIZED,
    errors.MissingScopeError: Status.FORBIDDEN,
    errors.ForeignRequestError: Status.FORBIDDEN,
    errors.NotAllowedError: Status.FORBIDDEN,
    errors.NotFoundError: Status.NOT_FOUND,
    errors.WrongStateError: Status.CONFLICT,
    errors.ConflictError: Status.CONFLICT,
    errors.BodyTooLargeError: Status.REQUEST_ENTITY_TOO_LARGE,
    errors.UnsupportedMediaError: Status.UNSUPPORTED_MEDIA_TYPE,
    errors.InputError: Status.UNPROCESSABLE_ENTITY,
    errors.TooManyRequestsError: Status.TOO_MANY_REQUESTS,
    errors.OverloadedError: Status.SERVICE_UNAVAILABLE,
    errors.TooManyStreamsError: Status.SERVICE_UNAVAILABLE,
    errors.StoreError: Status.SERVICE_UNAVAILABLE,
    errors.EngineEndedError: Status.SERVICE_UNAVAILABLE,
}
"""The nearest class counts: an InputError of a kind that is not listed is an InputError."""


def get_status(error: BaseException) -> HTTPStatus:
    """500 for what no caller can do anything about."""
    for kind in type(error).__mro__:
        if kind in STATUS_BY_ERROR:
            return STATUS_BY_ERROR[kind]
    return Status.INTERNAL_SERVER_ERROR


# Where in a workflow document a problem is: its sentence begins with it.

# `nodes[2].retry: expected …`, as the reader of documents writes it.
_PATH_PATTERN = re.compile(
    r"(?P<path>[A-Za-z_][\w]*(?:\.\w+|\[[^\]]*\])*): (?P<message>.*)", re.DOTALL
)
# `node 'b': …`, as the judge of graphs writes it.
_NODE_PATTERN = re.compile(r"node '(?P<id>[^']+)'(?P<rest>.*)", re.DOTALL)


def locate_problems(problems: Sequence[str]) -> list[tuple[str, str]]:
    """A JSON path and a sentence for each; `$` where the whole document is meant."""
    return [*map(_locate_problem, problems)]


def _locate_problem(problem: str) -> tuple[str, str]:
    node = _NODE_PATTERN.match(problem)
    if node is not None:
        return f"$.nodes[?@.id=='{node['id']}']", problem
    place = _PATH_PATTERN.match(problem)
    if place is not None:
        return f"$.{place['path']}", place["message"]
    return "$", problem


MEDIA_TYPE = "application/problem+json"
# A store that is away may be back by then, and an overload over.
RETRY_AFTER_S = 5

_ERRORS_WITH_PROBLEMS = (InvalidWorkflowError, InvalidTriggerError)
_CODE_BY_STATUS = {
    HTTPStatus.NOT_FOUND: "no_such_path",
    HTTPStatus.METHOD_NOT_ALLOWED: "method_not_allowed",
    HTTPStatus.BAD_REQUEST: "malformed_body",
}


class FieldProblem(BaseModel):
    """One thing that is wrong with a request, and where."""

    path: str = Field(description="JSON path into the body, or the name of a parameter")
    message: str


class Problem(BaseModel):
    """What went wrong, as RFC 9457 has it."""

    model_config = ConfigDict(title="Problem")

    type: str = Field(
        description="`urn:runnel:error:` and the code", examples=["urn:runnel:error:not_found"]
    )
    title: str
    status: int
    detail: str
    code: str = Field(description="The same in every version, for programs")
    errors: list[FieldProblem] = Field(default=[], description="Every problem of the request")
    details: dict[str, Any] = Field(
        default={}, description="What `detail` speaks of, one by one, for programs"
    )


def make_problem_response(error: RunnelError) -> Response:
    status = get_status(error)
    if status is HTTPStatus.INTERNAL_SERVER_ERROR:
        return make_internal_error_response()
    found = locate_problems(error.problems) if isinstance(error, _ERRORS_WITH_PROBLEMS) else ()
    headers: dict[str, str] = {}
    if isinstance(error, TooManyRequestsError):
        headers["Retry-After"] = str(max(1, ceil(error.retry_after_s)))
    elif status is HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = str(RETRY_AFTER_S)
    elif status is HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="runnel"'
    return _make_response(
        status,
        str(error),
        code=error.code,
        errors=found,
        details=_collect_details(error),
        headers=headers,
    )


def make_internal_error_response() -> Response:
    """Nothing of what happened: it is in the log, and may be none of the caller's business."""
    detail = "this is a bug of Runnel: the log of the server has the details"
    return _make_response(HTTPStatus.INTERNAL_SERVER_ERROR, detail, code="internal")


def make_malformed_request_response(detail: str) -> Response:
    """For what is no request of HTTP; the connection ends with it."""
    headers = {"Connection": "close"}
    return _make_response(HTTPStatus.BAD_REQUEST, detail, code="malformed_request", headers=headers)


async def handle_runnel_error(_request: Request, error: Exception) -> Response:
    return (
        make_problem_response(error)
        if isinstance(error, RunnelError)
        else make_internal_error_response()
    )


async def handle_disconnect(_request: Request, _error: Exception) -> Response:
    """Of whoever has left in the middle of a body: nobody reads it, and nothing went wrong here."""
    detail = "the body is not complete"
    return _make_response(
        HTTPStatus.BAD_REQUEST, detail, code=_CODE_BY_STATUS[HTTPStatus.BAD_REQUEST]
    )


async def handle_http_error(request: Request, error: Exception) -> Response:
    """Of the framework: no such path, a method that is not there, a body that can't be read."""
    if isinstance(error.__cause__, RunnelError):
        return make_problem_response(error.__cause__)
    if not isinstance(error, HTTPException):
        return make_internal_error_response()
    status = HTTPStatus(error.status_code)
    detail = str(error.detail)
    if status is HTTPStatus.NOT_FOUND:
        detail = (
            f"there is no {escape_unprintable(request.url.path)}; /openapi.json lists what there is"
        )
    elif status is HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = (error.headers or {}).get("Allow", "")
        detail = f"{request.method} is not possible here, only {allowed}"
    code = _CODE_BY_STATUS.get(status, "http")
    return _make_response(status, detail, code=code, headers=error.headers or {})


async def handle_invalid_request(_request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        return make_internal_error_response()
    found = [(_format_path(each["loc"]), _format_message(each)) for each in error.errors()]
    detail = "the request can't be used: " + "; ".join(
        f"{path}: {message}" for path, message in found
    )
    return _make_response(
        HTTPStatus.UNPROCESSABLE_ENTITY, detail, code="invalid_request", errors=found
    )


def _make_response(
    status: HTTPStatus,
    detail: str,
    *,
    code: str,
    errors: Sequence[tuple[str, str]] = (),
    details: Mapping[str, Json] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    content = {
        "type": f"urn:runnel:error:{code}",
        "title": status.phrase,
        "status": int(status),
        "detail": _escape_surrogates(detail),
        "code": code,
        "errors": [
            {"path": _escape_surrogates(path), "message": _escape_surrogates(message)}
            for path, message in errors
        ],
        "details": details or {},
    }
    data = msgspec.json.encode(content)
    return Response(data, int(status), media_type=MEDIA_TYPE, headers=dict(headers or {}))


def _collect_details(error: RunnelError) -> dict[str, Json]:
    """The fields that its class gives it: texts, numbers, and lists of texts."""
    return {name: _to_json_value(value) for name, value in vars(error).items() if name[0] != "_"}


def _to_json_value(value: Json) -> Json:
    if isinstance(value, str):
        return _escape_surrogates(value)
    if isinstance(value, tuple):
        return [_to_json_value(each) for each in value]
    return value if isinstance(value, int | float) else None


def _escape_surrogates(text: str) -> str:
    """Half a surrogate pair may have come with the request, and can't be sent back."""
    return text.encode(errors="backslashreplace").decode()


def _format_path(location: Sequence[str | int]) -> str:
    """`$.nodes[2]` in a body; a parameter by its name."""
    place, *rest = location
    if place != "body":
        return ".".join(str(each) for each in rest) or str(place)
    steps = [f"[{each}]" if isinstance(each, int) else f".{each}" for each in rest]
    return "$" + "".join(steps)


def _format_message(error: Mapping[str, object]) -> str:
    message = str(error.get("msg", "it can't be used"))
    return message[:1].lower() + message[1:]
