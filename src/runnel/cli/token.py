"""`runnel token create|list|revoke`"""

from typing import TYPE_CHECKING, Annotated

import typer

from runnel.cli import exits
from runnel.cli.groups import group
from runnel.cli.options import AsJson, DataDir, Place, RedisUrl, Server

if TYPE_CHECKING:
    from runnel.api.security.scopes import Scope
    from runnel.api.security.tokens import Token

app = group(
    "Tokens for the HTTP API: as soon as there is one, every call needs one.",
    begin="runnel token create ci",
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

    wanted = _scopes(scope or ["run"])
    text, token_id = asyncio.run(
        _create(Place(data_dir, redis_url, server), name, wanted, days=days, per_minute=per_minute)
    )
    if as_json:
        from runnel.cli.words import compact

        print(compact({"id": token_id, "name": name, "scopes": wanted, "token": text}))
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

    found, now = asyncio.run(_list(Place(data_dir, redis_url, server)))
    if as_json:
        from runnel.cli.words import compact

        for token in found:
            print(compact(_shown(token)))
    elif not found:
        print("no tokens: the API answers to this machine only")
    else:
        _print(found, now)
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

    asyncio.run(_revoke(Place(data_dir, redis_url, server), token_id))
    print(f"revoked {token_id}")
    return exits.OK


def _scopes(names: list[str]) -> "tuple[Scope, ...]":
    from runnel.api.security.scopes import Scope
    from runnel.errors import InputError

    for name in names:
        if name not in list(Scope):
            raise InputError(f"--scope: expected one of {', '.join(Scope)}, got '{name}'")
    return tuple(dict.fromkeys(Scope(name) for name in names))


async def _create(
    place: Place,
    name: str,
    scopes: "tuple[Scope, ...]",
    *,
    days: int | None,
    per_minute: int | None,
) -> tuple[str, str]:
    from runnel.cli.token_book import Wanted, token_book
    from runnel.runtime.clock import RealClock

    async with token_book(place, RealClock()) as book:
        made = await book.create(Wanted(name, scopes, days, per_minute))
        return made.text, made.id


async def _list(place: Place) -> "tuple[list[Token], float]":
    from runnel.cli.opening import has_data
    from runnel.cli.options import configure
    from runnel.cli.token_book import token_book
    from runnel.runtime.clock import RealClock

    clock = RealClock()
    if not has_data(configure(place)):
        return [], clock.now()
    async with token_book(place, clock) as book:
        return list(await book.all()), clock.now()


async def _revoke(place: Place, token_id: str) -> None:
    from runnel.cli.token_book import token_book
    from runnel.runtime.clock import RealClock

    async with token_book(place, RealClock()) as book:
        await book.revoke(token_id)


def _shown(token: "Token") -> dict[str, object]:
    from runnel.views import moment

    return {
        "id": token.id,
        "name": token.name,
        "scopes": token.scopes,
        "created_at": moment(token.created_at),
        "expires_at": moment(token.expires_at),
        "per_minute": token.per_minute,
    }


def _print(found: "list[Token]", now: float) -> None:
    from runnel.cli.tables import Cell, print_table
    from runnel.cli.words import local_time

    rows = [
        [
            Cell(token.id),
            Cell(token.name, "bold"),
            Cell(", ".join(token.scopes)),
            Cell(local_time(token.created_at), "dim"),
            Cell(
                "" if token.expires_at is None else local_time(token.expires_at),
                "red" if token.is_over(now) else "dim",
            ),
        ]
        for token in found
    ]
    print_table(["ID", "NAME", "SCOPES", "CREATED", "GOOD UNTIL"], rows)
