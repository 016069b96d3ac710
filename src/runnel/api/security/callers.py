"""What a route asks of whoever calls it."""

from typing import Any

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from runnel.api.security.guard import Caller
from runnel.api.security.scopes import Scope, check_scope
from runnel.errors import NotAuthenticatedError

# For OpenAPI only: the gate has looked at the token already.
_bearer = HTTPBearer(auto_error=False, scheme_name="token", description="From `runnel token`")


def needs(scope: Scope) -> Any:  # what Depends returns has no type of its own
    """Raises NotAuthenticatedError without a token, MissingScopeError with one that is too weak."""

    async def check(request: Request, _token: object = Depends(_bearer)) -> None:
        check_caller(request, scope)

    return Depends(check)


def token_of(request: Request) -> str | None:
    """The id of the token that a request has come with."""
    caller: Caller = request.state.caller
    return caller.token_id


def check_caller(request: Request, scope: Scope) -> None:
    """Raises as `needs` does: for what only some calls of a route need."""
    caller: Caller = request.state.caller
    if caller.scopes is None:
        raise NotAuthenticatedError(
            "this needs a token: send 'Authorization: Bearer …'; 'runnel token' makes one"
        )
    check_scope(scope, caller.scopes)
