"""`runnel token create|list|revoke`"""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from runnel.cli.command_group import make_command_group
from runnel.cli.options import AsJson, StoreLocation, configure
from runnel.cli.render.printer import print_list
from runnel.cli.render.text import Cell, format_local_time, to_compact_json
from runnel.cli.session.open_client import has_data, open_tokens
from runnel.errors import InputError
from runnel.views.token import Scope, TokenView


async def create(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="The name of the token's user, such as ci."),
    ],
    *,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="The permission of the token: read, run (and read), operate (and run), admin "
            "(everything); "
            "repeatable. [dim]\\[default: run][/dim]"
        ),
    ] = None,
    days: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=36_500,
            help="The number of days that the token is valid. [dim]\\[default: no limit][/dim]",
        ),
    ] = None,
    per_minute: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="The number of requests per minute that the token allows; 0 sets no limit. "
            "[dim]\\[default: $RUNNEL_API_TOKEN_RATE_LIMIT][/dim]",
        ),
    ] = None,
    as_json: AsJson = False,
    location: StoreLocation,
) -> None:
    """Create a token and print it.

    The token is printed once: only its hash is stored.
    """
    scopes = _parse_scopes(scope or ["run"])
    async with open_tokens(configure(location)) as (tokens, _clock):
        created = await tokens.create(name, scopes, days=days, per_minute=per_minute)
    if as_json:
        document = {"id": created.id, "name": name, "scopes": scopes, "token": created.token}
        print(to_compact_json(document))
    else:
        print(created.token)
        print("keep this token: it can't be shown again", file=sys.stderr)


async def list_tokens(*, as_json: AsJson = False, location: StoreLocation) -> None:
    """List the tokens without their secrets."""
    settings = configure(location)
    views: Sequence[TokenView] = []
    now = 0.0
    if has_data(settings):
        async with open_tokens(settings) as (tokens, clock):
            views, now = await tokens.list(), clock.now()
    print_list(
        views,
        ["ID", "NAME", "SCOPES", "CREATED", "GOOD UNTIL"],
        lambda token: _build_row(token, now),
        as_json=as_json,
        empty="no tokens: the API accepts requests from this machine only",
    )


async def revoke(
    token: Annotated[
        str,
        typer.Argument(
            metavar="ID|NAME",
            help="The id or the name of the token, as 'runnel token list' prints them.",
        ),
    ],
    *,
    location: StoreLocation,
) -> None:
    """Revoke a token; the API refuses it within seconds."""
    async with open_tokens(configure(location)) as (tokens, _clock):
        token_id = _find_token_id(await tokens.list(), token)
        await tokens.revoke(token_id)
    print(f"revoked {token_id}")


app = make_command_group(
    "Create, list and revoke tokens of the HTTP API.\n\nWithout a token, the API listens on this "
    "machine only. As soon as a token exists, every request needs a token.",
    first_command="runnel token create ci",
    commands={
        "create": (create, "runnel token create ci --scope run --days 90"),
        "list": (list_tokens, "runnel token list"),
        "revoke": (revoke, "runnel token revoke ci"),
    },
)


def _find_token_id(views: Sequence[TokenView], text: str) -> str:
    """Returns the id of the token with this id or name; raises InputError if a name is shared.

    Returns an unknown text as it is, so that `revoke` reports it.
    """
    if any(view.id == text for view in views):
        return text
    ids = [view.id for view in views if view.name == text]
    if len(ids) > 1:
        raise InputError(
            f"{len(ids)} tokens have the name '{text}': {', '.join(ids)}; give the id of one"
        )
    return ids[0] if ids else text


def _parse_scopes(names: list[str]) -> tuple[Scope, ...]:
    for name in names:
        if name not in list(Scope):
            raise InputError(f"--scope: expected one of {', '.join(Scope)}, got '{name}'")
    return tuple(dict.fromkeys(Scope(name) for name in names))


def _build_row(token: TokenView, now: float) -> list[Cell]:
    expires_at = token.expires_at
    is_expired = expires_at is not None and now >= expires_at
    return [
        Cell(token.id),
        Cell(token.name, "bold"),
        Cell(", ".join(token.scopes)),
        Cell(format_local_time(token.created_at), "dim"),
        Cell(
            "" if expires_at is None else format_local_time(expires_at),
            "red" if is_expired else "dim",
        ),
    ]
