"""Puts the routes, the gate and the errors together."""

import socket
from collections.abc import Callable

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect

from runnel import __version__
from runnel.api.http_metrics import Counted
from runnel.api.problems import on_disconnect, on_http_error, on_invalid_request, on_runnel_error
from runnel.api.responses import describe
from runnel.api.routes import (
    dead_letters,
    events,
    executions,
    lookups,
    operations,
    tokens,
    triggers,
    workflows,
)
from runnel.api.security.gate import Gate
from runnel.api.security.guard import LOOPBACK, Guard, Rules
from runnel.api.security.tokens import Tokens
from runnel.api.server import ApiRole
from runnel.api.state import Site
from runnel.app.engine import World
from runnel.app.process_signals import role_name
from runnel.client.store_client import Client
from runnel.errors import InputError, RunnelError
from runnel.notify.feed_reader import Newsroom
from runnel.ports import Backend
from runnel.settings.model import Settings
from runnel.telemetry.metrics import Metrics

# The same under the name that earlier systems had for it.
PREFIXES = ("/v1", "/api")


def build_app(site: Site, guard: Guard) -> FastAPI:
    app = FastAPI(
        title="Runnel",
        version=__version__,
        description="A durable workflow engine: submit, run, watch and operate workflows.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.site = site
    app.openapi = describe(app)  # type: ignore[method-assign]  # as FastAPI documents it
    routes = APIRouter()
    # The order decides: a path with a parameter also fits what a later router has.
    for router in (
        triggers.webhooks_router,
        workflows.router,
        executions.bulk_router,
        lookups.router,
        executions.router,
        executions.nodes_router,
        triggers.schedules_router,
        events.router,
        dead_letters.router,
        operations.router,
        tokens.router,
    ):
        routes.include_router(router)
    for prefix in PREFIXES:
        app.include_router(routes, prefix=prefix, include_in_schema=prefix == PREFIXES[0])
    app.include_router(operations.health_router)
    app.include_router(operations.metrics_router)
    app.add_exception_handler(RunnelError, on_runnel_error)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(ClientDisconnect, on_disconnect)
    app.add_exception_handler(RequestValidationError, on_invalid_request)
    app.add_exception_handler(Exception, on_runnel_error)
    app.add_middleware(Gate, guard=guard, body_bytes_max=site.settings.body_bytes_max)
    if site.settings.api_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(site.settings.api_origins),
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID"],
        )
    app.add_middleware(Counted, metrics=site.http_metrics, clock=site.clock, prefixes=PREFIXES)
    return app


# Builds the HTTP side of a process from its settings.


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
