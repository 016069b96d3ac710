"""Tokens: make, list, revoke."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path

from runnel.api.models import NewTokenAnswer, TokenAnswer, TokenList, TokenRequest
from runnel.api.requests import StrictRoute
from runnel.api.responses import BODY_STATUSES, describe_problems
from runnel.api.security.guard import require_scope
from runnel.api.security.tokens import ApiToken, generate_token
from runnel.api.state import AppStateDependency
from runnel.views.execution import format_time
from runnel.views.token import Scope

router = APIRouter(tags=["tokens"], route_class=StrictRoute)
ADMIN = [require_scope(Scope.ADMIN)]


@router.get(
    "/tokens",
    operation_id="list_tokens",
    summary="All tokens, without what is secret of them",
    dependencies=ADMIN,
    responses=describe_problems(),
)
async def list_tokens(app_state: AppStateDependency) -> TokenList:
    return TokenList(items=[_build_answer(each) for each in await app_state.tokens.all()])


@router.post(
    "/tokens",
    operation_id="create_token",
    summary="Make a token, which is shown once",
    status_code=201,
    dependencies=ADMIN,
    responses=describe_problems(*BODY_STATUSES),
)
async def create(app_state: AppStateDependency, body: TokenRequest) -> NewTokenAnswer:
    ends = None
    if body.days is not None:
        ends = app_state.clock.now() + timedelta(days=body.days).total_seconds()
    scopes = tuple(dict.fromkeys(body.scopes))
    new = generate_token(body.name, scopes, expires_at=ends, per_minute=body.per_minute)
    text = await app_state.tokens.create(new)
    return NewTokenAnswer(id=new.id, name=new.name, scopes=list(new.scopes), token=text)


@router.delete(
    "/tokens/{token_id}",
    operation_id="revoke_token",
    summary="Make a token useless, within seconds",
    status_code=204,
    dependencies=ADMIN,
    responses=describe_problems(404, 422),
)
async def revoke(
    token_id: Annotated[str, Path(description="As listed", max_length=100)],
    app_state: AppStateDependency,
) -> None:
    await app_state.tokens.revoke(token_id)


def _build_answer(token: ApiToken) -> TokenAnswer:
    return TokenAnswer(
        id=token.id,
        name=token.name,
        scopes=list(token.scopes),
        created_at=format_time(token.created_at) or "",
        expires_at=format_time(token.expires_at),
        per_minute=token.per_minute,
    )
