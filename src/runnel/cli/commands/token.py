"""`runnel token create|list|revoke`"""

from collections.abc import Sequence
from typing import Annotated

import typer

from runnel.cli import errors as exits
from runnel.cli.command_group import make_command_group
from runnel.cli.options import AsJson, DataDir, RedisUrl, Server, StoreLocation, configure
from runnel.cli.session.open_client import has_data, open_tokens
from runnel.views import build_document
from runnel.views.token import NewTokenView, Scope, TokenView

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
    created = asyncio.run(
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

        document = {"id": created.id, "name": name, "scopes": wanted, "token": created.token}
        print(to_compact_json(document))
    else:
        print(created.token)
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
            print(to_compact_json(build_document(token)))
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
    from runnel.errors import InputError
    from runnel.views.token import Scope

    for name in names:
        if name not in list(Scope):
            raise InputError(f"--scope: expected one of {', '.join(Scope)}, got '{name}'")
    return tuple(dict.fromkeys(Scope(name) for name in names))


async def _create_token(
    location: StoreLocation,
    name: str,
    scopes: tuple[Scope, ...],
    *,
    days: int | None,
    per_minute: int | None,
) -> NewTokenView:
    async with open_tokens(configure(location)) as (tokens, _clock):
        return await tokens.create(name, scopes, days=days, per_minute=per_minute)


async def _list_tokens(location: StoreLocation) -> tuple[Sequence[TokenView], float]:
    settings = configure(location)
    if not has_data(settings):
        return [], 0.0
    async with open_tokens(settings) as (tokens, clock):
        return await tokens.list(), clock.now()


async def _revoke_token(location: StoreLocation, token_id: str) -> None:
    async with open_tokens(configure(location)) as (tokens, _clock):
        await tokens.revoke(token_id)


def _print_tokens(tokens: Sequence[TokenView], now: float) -> None:
    from runnel.cli.render.text import Cell, format_local_time, print_table

    rows = [
        [
            Cell(token.id),
            Cell(token.name, "bold"),
            Cell(", ".join(token.scopes)),
            Cell(format_local_time(token.created_at), "dim"),
            Cell(
                "" if token.expires_at is None else format_local_time(token.expires_at),
                "red" if token.expires_at is not None and now >= token.expires_at else "dim",
            ),
        ]
        for token in tokens
    ]
    print_table(["ID", "NAME", "SCOPES", "CREATED", "GOOD UNTIL"], rows)
