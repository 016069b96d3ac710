"""Builds the HTTP side of a process from its settings."""

import socket
from collections.abc import Callable

from runnel.api.app import build_app
from runnel.api.security.guard import Guard, Rules
from runnel.api.security.origins import LOOPBACK
from runnel.api.security.tokens import Tokens
from runnel.api.server import ApiRole
from runnel.api.site import Site
from runnel.client import Client
from runnel.errors import InputError
from runnel.ports.backend import Backend
from runnel.runtime.engine import World
from runnel.runtime.names import role_name
from runnel.runtime.newsroom import Newsroom
from runnel.settings import Settings
from runnel.telemetry.metrics import Metrics


async def build_api(
    settings: Settings,
    client: Client,
    backend: Backend,
    world: World,
    *,
    listening: socket.socket,
    newsroom: Newsroom,
    on_answering: Callable[[], None],
    metrics: Metrics | None = None,
) -> ApiRole:
    """Raises InputError for an address that others can reach, while nobody has made a token.

    `newsroom` is the client's own: a process reads what changes once.
    """
    tokens = Tokens(backend.records, world.clock)
    is_open = not await tokens.exist()
    address = listening.getsockname()[0]
    if is_open and address not in LOOPBACK:
        raise InputError(
            f"without a token only this machine may call, and {address} can be reached by others: "
            "make one with 'runnel token create', or listen on 127.0.0.1"
        )
    site = Site(client, backend, world, settings, tokens, metrics=metrics, newsroom=newsroom)
    rules = Rules(
        is_open=is_open,
        hosts=settings.api_hosts,
        origins=settings.api_origins,
        per_minute=settings.requests_per_minute,
        token_per_minute=settings.token_requests_per_minute,
    )
    app = build_app(site, Guard(tokens, backend.windows, rules))
    name = role_name("api", world.ids.nonce())
    return ApiRole(name, app, site, listening, on_answering=on_answering)
