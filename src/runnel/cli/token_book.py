"""Where tokens are kept: in a store, or by a server that is asked over HTTP."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import NamedTuple, Protocol

from runnel.api.security.scopes import Scope
from runnel.api.security.token_making import new_token
from runnel.api.security.tokens import Token, Tokens
from runnel.cli.options import Place, configure
from runnel.ports.clock import Clock
from runnel.remote.answers import seconds_of
from runnel.remote.looking import calling
from runnel.remote.paths import step
from runnel.remote.transport import Call, Transport
from runnel.runtime.clock import RealIds
from runnel.runtime.stores import open_backend


class Wanted(NamedTuple):
    name: str
    scopes: tuple[Scope, ...]
    days: int | None
    per_minute: int | None


class Made(NamedTuple):
    """`text` can't be shown again."""

    id: str
    text: str


class TokenBook(Protocol):
    async def create(self, wanted: Wanted) -> Made: ...

    async def all(self) -> Sequence[Token]: ...

    async def revoke(self, token_id: str) -> None:
        """Raises NotFoundError."""


@asynccontextmanager
async def token_book(place: Place, clock: Clock) -> AsyncIterator[TokenBook]:
    settings = configure(place)
    if settings.has_server:
        async with calling(settings) as (client, _):
            yield RemoteBook(client.transport)
        return
    backend = await open_backend(settings, clock, RealIds())
    try:
        yield StoredBook(Tokens(backend.records, clock), clock)
    finally:
        await backend.close()


class StoredBook:
    def __init__(self, tokens: Tokens, clock: Clock) -> None:
        self._tokens = tokens
        self._clock = clock

    async def create(self, wanted: Wanted) -> Made:
        ends = None
        if wanted.days is not None:
            ends = self._clock.now() + timedelta(days=wanted.days).total_seconds()
        new = new_token(wanted.name, wanted.scopes, expires_at=ends, per_minute=wanted.per_minute)
        return Made(new.id, await self._tokens.create(new))

    async def all(self) -> Sequence[Token]:
        return await self._tokens.all()

    async def revoke(self, token_id: str) -> None:
        await self._tokens.revoke(token_id)


class RemoteBook:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def create(self, wanted: Wanted) -> Made:
        found = await self._transport.post("/v1/tokens", wanted._asdict())
        return Made(found["id"], found["token"])

    async def all(self) -> Sequence[Token]:
        found = await self._transport.get("/v1/tokens")
        return [
            Token(
                id=each["id"],
                name=each["name"],
                digest="",
                scopes=tuple(map(Scope, each["scopes"])),
                created_at=seconds_of(each["created_at"]),
                expires_at=None if each["expires_at"] is None else seconds_of(each["expires_at"]),
                per_minute=each["per_minute"],
            )
            for each in found["items"]
        ]

    async def revoke(self, token_id: str) -> None:
        path = f"/v1/tokens/{step(token_id)}"
        await self._transport.send(Call(method="DELETE", path=path))
