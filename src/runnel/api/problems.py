"""Builds error responses: every error is sent as RFC 9457 problem details."""

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
from runnel.core.message_text import describe_value, escape_unprintable
from runnel.core.values import Json
from runnel.errors import (
    InvalidInputError,
    InvalidTriggerError,
    InvalidWorkflowError,
    RunnelError,
    TooManyRequestsError,
)

# The HTTP status of each error class.

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
"""A subclass that is not listed has the status of its nearest base class."""


def get_status(error: BaseException) -> HTTPStatus:
    """Returns the status of the error's class, 500 for a class that is not in the table."""
    for kind in type(error).__mro__:
        if kind in STATUS_BY_ERROR:
            return STATUS_BY_ERROR[kind]
    return Status.INTERNAL_SERVER_ERROR


# Finds the place in the workflow document from the beginning of a problem's sentence.

# `nodes[2].retry: expected …`, as the document reader writes it.
_PATH_PATTERN = re.compile(
    r"(?P<path>[A-Za-z_][\w]*(?:\.\w+|\[[^\]]*\])*): (?P<message>.*)", re.DOTALL
)
# `node 'b': …`, as the validation of graphs writes it.
_NODE_PATTERN = re.compile(r"node '(?P<id>[^']+)'(?P<rest>.*)", re.DOTALL)


def locate_problems(problems: Sequence[str]) -> list[tuple[str, str]]:
    """Returns a JSON path and a sentence for each problem; `$` is the whole document."""
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
# The Retry-After of responses during an overload or while the store can't be reached.
RETRY_AFTER_S = 5

_ERRORS_WITH_PROBLEMS = (InvalidWorkflowError, InvalidTriggerError, InvalidInputError)
_CODE_BY_STATUS = {
    HTTPStatus.NOT_FOUND: "no_such_path",
    HTTPStatus.METHOD_NOT_ALLOWED: "method_not_allowed",
    HTTPStatus.BAD_REQUEST: "malformed_body",
}


class FieldProblem(BaseModel):
    """One problem of a request, and its place."""

    path: str = Field(description="JSON path into the body, or the name of a parameter")
    message: str


class Problem(BaseModel):
    """An error in the form of RFC 9457 problem details."""

    model_config = ConfigDict(title="Problem")

    type: str = Field(
        description="`urn:runnel:error:`, followed by the code",
        examples=["urn:runnel:error:not_found"],
    )
    title: str
    status: int
    detail: str
    code: str = Field(description="A stable code for programs")
    errors: list[FieldProblem] = Field(default=[], description="All problems of the request")
    details: dict[str, Any] = Field(
        default={}, description="The values that `detail` mentions, for programs"
    )


def make_problem_response(error: RunnelError) -> Response:
    status = get_status(error)
    if status is HTTPStatus.INTERNAL_SERVER_ERROR:
        return make_internal_error_response()
    problems = locate_problems(error.problems) if isinstance(error, _ERRORS_WITH_PROBLEMS) else ()
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
        errors=problems,
        details=_collect_details(error),
        headers=headers,
    )


def make_internal_error_response() -> Response:
    """Returns a response that does not show the error, because it may be confidential."""
    detail = "this is a bug in Runnel; the log of the server has the details"
    return _make_response(HTTPStatus.INTERNAL_SERVER_ERROR, detail, code="internal")


def make_malformed_request_response(detail: str) -> Response:
    """Returns the response to bytes that are not an HTTP request."""
    headers = {"Connection": "close"}
    return _make_response(HTTPStatus.BAD_REQUEST, detail, code="malformed_request", headers=headers)


async def handle_runnel_error(_request: Request, error: Exception) -> Response:
    return (
        make_problem_response(error)
        if isinstance(error, RunnelError)
        else make_internal_error_response()
    )


async def handle_disconnect(_request: Request, _error: Exception) -> Response:
    """Handles a client that disconnected while it sent a body: that is not a server error."""
    detail = "the body is not complete"
    return _make_response(
        HTTPStatus.BAD_REQUEST, detail, code=_CODE_BY_STATUS[HTTPStatus.BAD_REQUEST]
    )


async def handle_http_error(request: Request, error: Exception) -> Response:
    """Handles errors of the framework: unknown path, wrong method, unreadable body."""
    if isinstance(error.__cause__, RunnelError):
        return make_problem_response(error.__cause__)
    if not isinstance(error, HTTPException):
        return make_internal_error_response()
    status = HTTPStatus(error.status_code)
    detail = str(error.detail)
    if status is HTTPStatus.NOT_FOUND:
        detail = (
            f"there is no path {escape_unprintable(request.url.path)}; /openapi.json lists all "
            "paths"
        )
    elif status is HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = (error.headers or {}).get("Allow", "")
        detail = f"the method {request.method} is not allowed here, only {allowed}"
    code = _CODE_BY_STATUS.get(status, "http")
    return _make_response(status, detail, code=code, headers=error.headers or {})


async def handle_invalid_request(_request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        return make_internal_error_response()
    problems = [(_format_path(item), _format_message(item)) for item in error.errors()]
    detail = "the request is not valid: " + "; ".join(
        f"{path}: {message}" for path, message in problems
    )
    return _make_response(
        HTTPStatus.UNPROCESSABLE_ENTITY, detail, code="invalid_request", errors=problems
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
    """Returns the public attributes of the error: texts, numbers, and lists of texts."""
    return {name: _to_json_value(value) for name, value in vars(error).items() if name[0] != "_"}


def _to_json_value(value: Json) -> Json:
    if isinstance(value, str):
        return _escape_surrogates(value)
    if isinstance(value, tuple):
        return [_to_json_value(item) for item in value]
    return value if isinstance(value, int | float) else None


def _escape_surrogates(text: str) -> str:
    """Escapes halves of surrogate pairs, which a request may contain, but UTF-8 can't encode."""
    return text.encode(errors="backslashreplace").decode()


def _format_path(error: Mapping[str, Any]) -> str:
    """Returns `$.nodes[2]` for a place in a body, the name for a parameter."""
    source, *steps = error["loc"]
    if error["type"] == "json_invalid":
        return "$"  # the step is a position in the text
    if source != "body":
        return ".".join(map(str, steps)) or str(source)
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


# What pydantic expected, by the type of its error. `{name}` is a value of the error's context.
_EXPECTED: Mapping[str, str] = {
    **dict.fromkeys(("string_type", "string_unicode", "bytes_type"), "a text"),
    **dict.fromkeys(
        ("int_type", "int_parsing", "int_from_float", "int_parsing_size"), "a whole number"
    ),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type"), "a list"),
    **dict.fromkeys(
        ("dict_type", "mapping_type", "model_type", "model_attributes_type"), "an object"
    ),
    **dict.fromkeys(
        ("datetime_type", "datetime_parsing", "datetime_from_date_parsing"),
        "a date and time such as 2026-01-31T12:00:00Z",
    ),
    "none_required": "null",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "multiple_of": "a multiple of {multiple_of}",
    "string_too_short": "a text of at least {min_length} characters",
    "string_too_long": "a text of at most {max_length} characters",
    "string_pattern_mismatch": "a text that matches '{pattern}'",
    "too_short": "at least {min_length} items",
    "too_long": "at most {max_length} items",
}
_SIZE_ERRORS = frozenset({"too_short", "too_long"})


def _format_message(error: Mapping[str, Any]) -> str:
    """Returns what was expected and what was found; pydantic's own text for a rare problem."""
    kind, context = str(error.get("type")), error.get("ctx") or {}
    found = error.get("input")
    if kind == "missing":
        return "it is missing"
    if kind == "extra_forbidden":
        return "there is no such field; remove it"
    if kind == "json_invalid":
        return f"the body is not JSON: {context.get('error', 'it ends early')}"
    if kind in _EXPECTED:
        limits = {
            name: f"{value:g}" if isinstance(value, float) else value
            for name, value in context.items()
        }
        expected = _EXPECTED[kind].format_map(limits)
        shown = f"{len(found or ())}" if kind in _SIZE_ERRORS else describe_value(found)
        return re.sub(r"\b1 (item|character)s\b", r"1 \1", f"expected {expected}, got {shown}")
    return _lower_first(str(error.get("msg", "it is not valid")).removeprefix("Value error, "))


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
