"""Routes of API tokens: create, list, revoke."""

from typing import Annotated

from fastapi import Path

from runnel.api.requests import TokenRequest
from runnel.api.resource_router import ResourceRouter
from runnel.api.state import AppStateDependency
from runnel.views.page import Listing
from runnel.views.token import NewTokenView, Scope, TokenView

routes = ResourceRouter("tokens")


@routes.operation("GET /tokens", Scope.ADMIN, "List all tokens, without their secrets")
async def list_tokens(app_state: AppStateDependency) -> Listing[TokenView]:
    return Listing(items=await app_state.tokens.list())


@routes.operation(
    "POST /tokens", Scope.ADMIN, "Create a token; its text is shown only once", status=201
)
async def create_token(app_state: AppStateDependency, body: TokenRequest) -> NewTokenView:
    return await app_state.tokens.create(
        body.name, tuple(dict.fromkeys(body.scopes)), days=body.days, per_minute=body.per_minute
    )


@routes.operation(
    "DELETE /tokens/{token_id}",
    Scope.ADMIN,
    "Revoke a token; every server refuses it within seconds",
    404,
    status=204,
)
async def revoke_token(
    token_id: Annotated[str, Path(description="An id from the list of tokens", max_length=100)],
    app_state: AppStateDependency,
) -> None:
    await app_state.tokens.revoke(token_id)
