"""Tokens: make, list, revoke."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path

from runnel.api.models import NewTokenAnswer, TokenAnswer, TokenList, TokenRequest
from runnel.api.requests import StrictRoute
from runnel.api.responses import BODY, problems
from runnel.api.security.guard import needs
from runnel.api.security.tokens import Scope, Token, new_token
from runnel.api.state import OfSite
from runnel.views.execution import moment

router = APIRouter(tags=["tokens"], route_class=StrictRoute)
ADMIN = [needs(Scope.ADMIN)]


@router.get(
    "/tokens",
    operation_id="list_tokens",
    summary="All tokens, without what is secret of them",
    dependencies=ADMIN,
    responses=problems(),
)
async def list_tokens(site: OfSite) -> TokenList:
    return TokenList(items=[_answer(each) for each in await site.tokens.all()])


@router.post(
    "/tokens",
    operation_id="create_token",
    summary="Make a token, which is shown once",
    status_code=201,
    dependencies=ADMIN,
    responses=problems(*BODY),
)
async def create(site: OfSite, wanted: TokenRequest) -> NewTokenAnswer:
    ends = None
    if wanted.days is not None:
        ends = site.clock.now() + timedelta(days=wanted.days).total_seconds()
    scopes = tuple(dict.fromkeys(wanted.scopes))
    new = new_token(wanted.name, scopes, expires_at=ends, per_minute=wanted.per_minute)
    text = await site.tokens.create(new)
    return NewTokenAnswer(id=new.id, name=new.name, scopes=list(new.scopes), token=text)


@router.delete(
    "/tokens/{token_id}",
    operation_id="revoke_token",
    summary="Make a token useless, within seconds",
    status_code=204,
    dependencies=ADMIN,
    responses=problems(404, 422),
)
async def revoke(
    token_id: Annotated[str, Path(description="As listed", max_length=100)], site: OfSite
) -> None:
    await site.tokens.revoke(token_id)


def _answer(token: Token) -> TokenAnswer:
    return TokenAnswer(
        id=token.id,
        name=token.name,
        scopes=list(token.scopes),
        created_at=moment(token.created_at) or "",
        expires_at=moment(token.expires_at),
        per_minute=token.per_minute,
    )
