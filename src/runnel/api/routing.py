"""Declares the operations of a resource: path, scope, problems, and the view that they answer."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import wraps
from types import NoneType, UnionType
from typing import Any, NamedTuple, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute

from runnel.api.requests import StrictRequest
from runnel.api.responses import describe_problems, describe_view, make_view_response
from runnel.api.security.guard import require_scope
from runnel.views.token import Scope

P = ParamSpec("P")
T = TypeVar("T")

BODY_STATUSES = (400, 413, 415, 422)
"""The problems of an operation that reads a body."""


class StrictRoute(APIRoute):
    """Every route has it, so that no body is read otherwise."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            return await handle(StrictRequest(request.scope, request.receive))

        return handle_strictly


class OtherAnswer(NamedTuple):
    """What an operation answers besides its view, or with another status."""

    description: str | None = None
    view: Any = None
    content: Mapping[str, Any] = {}

    def describe(self) -> dict[str, Any]:
        answer = {} if self.view is None else describe_view(self.view)
        if self.content:
            answer["content"] = {**answer.get("content", {}), **self.content}
        return answer if self.description is None else {**answer, "description": self.description}


class ResourceRouter:
    """The operations of one resource; `views` are all that they answer."""

    def __init__(self, tag: str, *, prefix: str = "") -> None:
        self.api_router = APIRouter(tags=[tag], route_class=StrictRoute, prefix=prefix)
        self.views: list[Any] = []

    def operation(
        self,
        method: str,
        path: str,
        summary: str,
        *,
        scope: Scope | None = None,
        problems: tuple[int, ...] | None = (),
        status: int = 200,
        operation_id: str | None = None,
        others: Mapping[int, OtherAnswer] | None = None,
        request_body: dict[str, Any] | None = None,
    ) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[T]]]:
        """Add a function that returns a view, which its return annotation describes.

        The operation has the function's name, unless it is given. `problems` are those of this
        path alone; None describes none.
        """

        def add(function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
            view = _find_view(function)
            answers: dict[int | str, dict[str, Any]] = {}
            if problems is not None:
                answers |= describe_problems(*problems)
            if view is not None:
                self.views.append(view)
                answers[status] = describe_view(view)
            for other_status, other in (others or {}).items():
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


def _find_view(function: Callable[..., object]) -> Any:
    """Find the view that a function returns; None for one that makes its response itself."""
    returned = get_type_hints(function)["return"]
    kinds = get_args(returned) if get_origin(returned) in {Union, UnionType} else (returned,)
    views = [kind for kind in kinds if kind is not NoneType and not _is_response(kind)]
    return views[0] if views else None


def _is_response(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Response)


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
