"""Declares the operations of a resource: path, scope, problems, and the view that they return."""

import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import wraps
from types import NoneType, UnionType
from typing import Any, NamedTuple, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel

from runnel.api.requests import StrictRequest
from runnel.api.responses import describe_problems, describe_view, make_view_response
from runnel.api.security.access_control import require_scope
from runnel.api.state import AppStateDependency
from runnel.views.token import Scope

P = ParamSpec("P")
T = TypeVar("T")

PARAMETER_STATUSES = (422,)
BODY_STATUSES = (400, 413, 415, 422)


# Every path exists under both prefixes; "/api" is the prefix of earlier systems.
PATH_PREFIXES = ("/v1", "/api")


class StrictRoute(APIRoute):
    """A route whose JSON body is parsed strictly. Every route of the API is one.

    A route answers under every prefix, so that a request is compared with each route once. A router
    that is included for each prefix took a third of the processor time of a request.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        first = f"^{PATH_PREFIXES[0]}/"
        prefixes = "|".join(prefix.strip("/") for prefix in PATH_PREFIXES)
        pattern = self.path_regex.pattern
        if pattern.startswith(first):
            self.path_regex = re.compile(f"^/(?:{prefixes})/{pattern.removeprefix(first)}")

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            return await handle(StrictRequest(request.scope, request.receive))

        return handle_strictly


class OtherAnswer(NamedTuple):
    """A response that differs from the view of an operation: another status or media type."""

    description: str | None = None
    view: Any = None
    content: Mapping[str, Any] = {}

    def describe(self) -> dict[str, Any]:
        answer = {} if self.view is None else describe_view(self.view)
        if self.content:
            answer["content"] = {**answer.get("content", {}), **self.content}
        return answer if self.description is None else {**answer, "description": self.description}


class ResourceRouter:
    """The operations of one resource. `views` lists every view that they return.

    The paths of a resource that is not versioned have no `/v1`.
    """

    def __init__(
        self,
        tag: str,
        *,
        prefix: str = "",
        is_versioned: bool = True,
        describes_problems: bool = True,
    ) -> None:
        full_prefix = f"{PATH_PREFIXES[0]}{prefix}" if is_versioned else prefix
        self.api_router = APIRouter(tags=[tag], route_class=StrictRoute, prefix=full_prefix)
        self.views: list[Any] = []
        self._describes_problems = describes_problems

    def operation(
        self,
        route: str,
        scope: Scope | None,
        summary: str,
        *problems: int,
        status: int = 200,
        operation_id: str | None = None,
        other_answers: Mapping[int, OtherAnswer] | None = None,
        request_body: dict[str, Any] | None = None,
    ) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[T]]]:
        """Adds a function that returns a view; its return annotation describes the view.

        `route` is a method and a path: "GET /tokens". `problems` are the statuses that the
        function itself causes; those of its parameters and its body are added. The operation has
        the function's name unless `operation_id` is given.
        """
        method, _, path = route.partition(" ")

        def add(function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
            view = _find_view(function)
            answers: dict[int | str, dict[str, Any]] = {}
            if self._describes_problems:
                answers |= describe_problems(*problems, *_list_request_statuses(function))
            if view is not None:
                self.views.append(view)
                answers[status] = describe_view(view)
            for other_status, other in (other_answers or {}).items():
                self.views += [] if other.view is None else [other.view]
                answers[other_status] = other.describe()
            self.api_router.add_api_route(
                path,
                _answer_view(function, status),
                methods=[method],
                operation_id=operation_id or function.__name__,
                summary=summary,
                status_code=status,
                response_model=None,
                response_class=Response,
                dependencies=[] if scope is None else [require_scope(scope)],
                responses=answers,
                openapi_extra=request_body,
            )
            return function

        return add


def _list_request_statuses(function: Callable[..., object]) -> tuple[int, ...]:
    """Returns the statuses that FastAPI answers for wrong parameters, or for a wrong body."""
    hints = get_type_hints(function, include_extras=True)
    hints.pop("return")
    parameters = [hint for hint in hints.values() if hint not in {Request, AppStateDependency}]
    if any(_is_model(kind) for hint in parameters for kind in _list_alternatives(hint)):
        return BODY_STATUSES
    return PARAMETER_STATUSES if parameters else ()


def _find_view(function: Callable[..., object]) -> Any:
    """Returns the view of a function's return annotation; None if it returns a Response only."""
    returned = get_type_hints(function)["return"]
    for kind in _list_alternatives(returned):
        if kind is not NoneType and not (isinstance(kind, type) and issubclass(kind, Response)):
            return kind
    return None


def _list_alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _answer_view(
    function: Callable[P, Awaitable[T]], status: int
) -> Callable[P, Awaitable[Response]]:
    @wraps(function)
    async def endpoint(*args: P.args, **kwargs: P.kwargs) -> Response:
        answer = await function(*args, **kwargs)
        if isinstance(answer, Response):
            return answer
        return make_view_response(answer, status=status)

    return endpoint
