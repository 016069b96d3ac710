"""`runnel token create|list|revoke`"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Annotated, NamedTuple, Protocol

import typer

from runnel.api.security.tokens import ApiToken, Scope, TokenStore, generate_token
from runnel.app.stores import open_backend
from runnel.cli import errors as exits
from runnel.cli.errors import make_command_group
from runnel.cli.options import AsJson, DataDir, RedisUrl, Server, StoreLocation, configure
from runnel.cli.session.open_client import open_http_client
from runnel.client.http_resources import parse_time
from runnel.client.transport import ServerRequest, Transport, quote_path_segment
from runnel.engine.clock import RandomIdGenerator
from runnel.ports.clock import Clock

app = make_command_group(
    "Tokens for the HTTP API: as soon as there is one, every call needs one.",
    first_command="runnel token create ci",
)


@app.command(epilog="Example:  [bold]runnel token create ci --scope run --days 90[/bold]")
def create(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Who will use it.", show_default=False)
    ],
    *,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="What it allows: read, run (and read), operate (and run), admin (everything); "
            "may be repeated. [dim]\\[default: run][/dim]",
            show_default=False,
        ),
    ] = None,
    days: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=36_500,
            help="How long it is good. [dim]\\[default: for ever][/dim]",
            show_default=False,
        ),
    ] = None,
    per_minute: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="How many requests it may make in a minute; 0 sets no limit. "
            "[dim]\\[default: $RUNNEL_API_TOKEN_RATE_LIMIT][/dim]",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Make a token and print it: it is shown once, and stored as a hash only."""
    import asyncio
    import sys

    wanted = _parse_scopes(scope or ["run"])
    text, token_id = asyncio.run(
        _create_token(
            StoreLocation(data_dir, redis_url, server),
            name,
            wanted,
            days=days,
            per_minute=per_minute,
        )
    )
    if as_json:
        from runnel.cli.render.text import to_compact_json

        print(to_compact_json({"id": token_id, "name": name, "scopes": wanted, "token": text}))
    else:
        print(text)
        print("keep it: it can't be shown again", file=sys.stderr)
    return exits.OK


@app.command("list", epilog="Example:  [bold]runnel token list[/bold]")
def list_tokens(
    *,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """List the tokens, without what is secret of them."""
    import asyncio

    found, now = asyncio.run(_list_tokens(StoreLocation(data_dir, redis_url, server)))
    if as_json:
        from runnel.cli.render.text import to_compact_json

        for token in found:
            print(to_compact_json(_to_document(token)))
    elif not found:
        print("no tokens: the API answers to this machine only")
    else:
        _print_tokens(found, now)
    return exits.OK


@app.command(epilog="Example:  [bold]runnel token revoke 3f9a61c2[/bold]")
def revoke(
    token_id: Annotated[
        str,
        typer.Argument(metavar="ID", help="As 'runnel token list' shows it.", show_default=False),
    ],
    *,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Make a token useless, within seconds."""
    import asyncio

    asyncio.run(_revoke_token(StoreLocation(data_dir, redis_url, server), token_id))
    print(f"revoked {token_id}")
    return exits.OK


def _parse_scopes(names: list[str]) -> "tuple[Scope, ...]":
    from runnel.api.security.tokens import Scope
    from runnel.errors import InputError

    for name in names:
        if name not in list(Scope):
            raise InputError(f"--scope: expected one of {', '.join(Scope)}, got '{name}'")
    return tuple(dict.fromkeys(Scope(name) for name in names))


async def _create_token(
    location: StoreLocation,
    name: str,
    scopes: "tuple[Scope, ...]",
    *,
    days: int | None,
    per_minute: int | None,
) -> tuple[str, str]:
    from runnel.engine.clock import RealClock

    async with open_token_client(location, RealClock()) as book:
        made = await book.create(TokenArguments(name, scopes, days, per_minute))
        return made.text, made.id


async def _list_tokens(location: StoreLocation) -> "tuple[list[ApiToken], float]":
    from runnel.cli.options import configure
    from runnel.cli.session.open_client import has_data
    from runnel.engine.clock import RealClock

    clock = RealClock()
    if not has_data(configure(location)):
        return [], clock.now()
    async with open_token_client(location, clock) as book:
        return list(await book.all()), clock.now()


async def _revoke_token(location: StoreLocation, token_id: str) -> None:
    from runnel.engine.clock import RealClock

    async with open_token_client(location, RealClock()) as book:
        await book.revoke(token_id)


def _to_document(token: "ApiToken") -> dict[str, object]:
    from runnel.views.execution import format_time

    return {
        "id": token.id,
        "name": token.name,
        "scopes": token.scopes,
        "created_at": format_time(token.created_at),
        "expires_at": format_time(token.expires_at),
        "per_minute": token.per_minute,
    }


def _print_tokens(tokens: "list[ApiToken]", now: float) -> None:
    from runnel.cli.render.text import Cell, format_local_time, print_table

    rows = [
        [
            Cell(token.id),
            Cell(token.name, "bold"),
            Cell(", ".join(token.scopes)),
            Cell(format_local_time(token.created_at), "dim"),
            Cell(
                "" if token.expires_at is None else format_local_time(token.expires_at),
                "red" if token.is_expired(now) else "dim",
            ),
        ]
        for token in tokens
    ]
    print_table(["ID", "NAME", "SCOPES", "CREATED", "GOOD UNTIL"], rows)


# Where tokens are kept: in a store, or by a server that is asked over HTTP.


class TokenArguments(NamedTuple):
    name: str
    scopes: tuple[Scope, ...]
    days: int | None
    per_minute: int | None


class CreatedToken(NamedTuple):
    """`text` can't be shown again."""

    id: str
    text: str


class TokenClient(Protocol):
    async def create(self, arguments: TokenArguments) -> CreatedToken: ...

    async def all(self) -> Sequence[ApiToken]: ...

    async def revoke(self, token_id: str) -> None:
        """Raises NotFoundError."""


@asynccontextmanager
async def open_token_client(location: StoreLocation, clock: Clock) -> AsyncIterator[TokenClient]:
    settings = configure(location)
    if settings.has_server:
        async with open_http_client(settings) as (http, _server):
            yield HttpTokenClient(http.transport)
        return
    backend = await open_backend(settings, clock, RandomIdGenerator())
    try:
        yield StoreTokenClient(TokenStore(backend.records, clock), clock)
    finally:
        await backend.close()


class StoreTokenClient:
    def __init__(self, tokens: TokenStore, clock: Clock) -> None:
        self._tokens = tokens
        self._clock = clock

    async def create(self, arguments: TokenArguments) -> CreatedToken:
        ends = None
        if arguments.days is not None:
            ends = self._clock.now() + timedelta(days=arguments.days).total_seconds()
        new = generate_token(
            arguments.name, arguments.scopes, expires_at=ends, per_minute=arguments.per_minute
        )
        return CreatedToken(new.id, await self._tokens.create(new))

    async def all(self) -> Sequence[ApiToken]:
        return await self._tokens.all()

    async def revoke(self, token_id: str) -> None:
        await self._tokens.revoke(token_id)


class HttpTokenClient:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def create(self, arguments: TokenArguments) -> CreatedToken:
        found = await self._transport.post("/v1/tokens", arguments._asdict())
        return CreatedToken(found["id"], found["token"])

    async def all(self) -> Sequence[ApiToken]:
        found = await self._transport.get("/v1/tokens")
        return [
            ApiToken(
                id=each["id"],
                name=each["name"],
                digest="",
                scopes=tuple(map(Scope, each["scopes"])),
                created_at=parse_time(each["created_at"]),
                expires_at=None if each["expires_at"] is None else parse_time(each["expires_at"]),
                per_minute=each["per_minute"],
            )
            for each in found["items"]
        ]

    async def revoke(self, token_id: str) -> None:
        path = f"/v1/tokens/{quote_path_segment(token_id)}"
        await self._transport.send(ServerRequest(method="DELETE", path=path))
