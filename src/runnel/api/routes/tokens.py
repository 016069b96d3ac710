"""Tokens: make, list, revoke."""

from typing import Annotated

from fastapi import Path

from runnel.api.requests import TokenRequest
from runnel.api.routing import BODY_STATUSES, ResourceRouter
from runnel.api.security.tokens import StoreTokens, build_token_view
from runnel.api.state import AppStateDependency
from runnel.views.page import Listing
from runnel.views.token import NewTokenView, Scope, TokenView

routes = ResourceRouter("tokens")


@routes.operation("GET", "/tokens", "All tokens, without what is secret of them", scope=Scope.ADMIN)
async def list_tokens(app_state: AppStateDependency) -> Listing[TokenView]:
    return Listing(items=[build_token_view(token) for token in await app_state.tokens.all()])


@routes.operation(
    "POST",
    "/tokens",
    "Make a token, which is shown once",
    scope=Scope.ADMIN,
    problems=BODY_STATUSES,
    status=201,
)
async def create_token(app_state: AppStateDependency, body: TokenRequest) -> NewTokenView:
    tokens = StoreTokens(app_state.tokens, app_state.clock)
    scopes = tuple(dict.fromkeys(body.scopes))
    return await tokens.create(body.name, scopes, days=body.days, per_minute=body.per_minute)


@routes.operation(
    "DELETE",
    "/tokens/{token_id}",
    "Make a token useless, within seconds",
    scope=Scope.ADMIN,
    problems=(404, 422),
    status=204,
)
async def revoke_token(
    token_id: Annotated[str, Path(description="As listed", max_length=100)],
    app_state: AppStateDependency,
) -> None:
    await app_state.tokens.revoke(token_id)
