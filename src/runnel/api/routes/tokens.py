"""Tokens: make, list, revoke."""

from datetime import timedelta
from typing import Annotated

from fastapi import Path

from runnel.api.requests import TokenRequest
from runnel.api.routing import BODY_STATUSES, ResourceRouter
from runnel.api.security.tokens import ApiToken, generate_token
from runnel.api.state import AppStateDependency
from runnel.views import Timestamp, make_timestamp
from runnel.views.page import Listing
from runnel.views.token import NewTokenView, Scope, TokenView

routes = ResourceRouter("tokens")


@routes.operation("GET", "/tokens", "All tokens, without what is secret of them", scope=Scope.ADMIN)
async def list_tokens(app_state: AppStateDependency) -> Listing[TokenView]:
    return Listing(items=[_build_token_view(token) for token in await app_state.tokens.all()])


@routes.operation(
    "POST",
    "/tokens",
    "Make a token, which is shown once",
    scope=Scope.ADMIN,
    problems=BODY_STATUSES,
    status=201,
)
async def create_token(app_state: AppStateDependency, body: TokenRequest) -> NewTokenView:
    expires_at = None
    if body.days is not None:
        expires_at = app_state.clock.now() + timedelta(days=body.days).total_seconds()
    scopes = tuple(dict.fromkeys(body.scopes))
    new = generate_token(body.name, scopes, expires_at=expires_at, per_minute=body.per_minute)
    text = await app_state.tokens.create(new)
    return NewTokenView(id=new.id, name=new.name, scopes=new.scopes, token=text)


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


def _build_token_view(token: ApiToken) -> TokenView:
    return TokenView(
        id=token.id,
        name=token.name,
        scopes=token.scopes,
        created_at=Timestamp(token.created_at),
        expires_at=make_timestamp(token.expires_at),
        per_minute=token.per_minute,
    )
