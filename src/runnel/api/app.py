"""Builds the HTTP application from routes, security and error handlers, and the API role."""

import socket
from collections.abc import Callable

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect

from runnel import __version__
from runnel.api.http_metrics import HttpMetricsMiddleware
from runnel.api.problems import (
    handle_disconnect,
    handle_http_error,
    handle_invalid_request,
    handle_runnel_error,
)
from runnel.api.resource_router import PATH_PREFIXES
from runnel.api.responses import make_openapi_builder
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
from runnel.api.security.access_control import LOOPBACK_HOSTS, AccessControl, AccessRules
from runnel.api.security.middleware import SecurityMiddleware
from runnel.api.security.tokens import TokenStore
from runnel.api.server import ApiRole
from runnel.api.state import AppState
from runnel.app.embedded_engine import ClockAndIds
from runnel.app.process_signals import build_role_name
from runnel.client.store_client import StoreClient
from runnel.errors import InputError, RunnelError
from runnel.notify.feed_reader import FeedReader
from runnel.ports import Backend
from runnel.settings.model import Settings
from runnel.telemetry.metrics import MetricsTelemetry

# The order matters, because a path with a parameter would also match paths of a later router.
RESOURCES = (
    triggers.webhook_routes,
    workflows.routes,
    executions.bulk_routes,
    lookups.routes,
    executions.routes,
    executions.node_routes,
    triggers.schedule_routes,
    events.routes,
    dead_letters.routes,
    operations.routes,
    tokens.routes,
    operations.health_routes,
    operations.metrics_routes,
)


def build_app(app_state: AppState, access_control: AccessControl) -> FastAPI:
    app = FastAPI(
        title="Runnel",
        version=__version__,
        description="A durable workflow engine: submit, run, watch and operate workflows.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.app_state = app_state
    views = [view for resource in RESOURCES for view in resource.views]
    app.openapi = make_openapi_builder(app, views)  # type: ignore[method-assign]  # as FastAPI documents it
    # Without `include_router`, which compares each request with several layers of routers.
    for resource in RESOURCES:
        app.router.routes.extend(resource.api_router.routes)
    app.add_exception_handler(RunnelError, handle_runnel_error)
    app.add_exception_handler(HTTPException, handle_http_error)
    app.add_exception_handler(ClientDisconnect, handle_disconnect)
    app.add_exception_handler(RequestValidationError, handle_invalid_request)
    app.add_exception_handler(Exception, handle_runnel_error)
    app.add_middleware(
        SecurityMiddleware,
        access_control=access_control,
        body_bytes_max=app_state.settings.body_bytes_max,
    )
    if app_state.settings.api_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(app_state.settings.api_origins),
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID"],
        )
    app.add_middleware(
        HttpMetricsMiddleware,
        metrics=app_state.http_metrics,
        clock=app_state.clock,
        prefixes=PATH_PREFIXES,
    )
    return app


async def build_api(
    settings: Settings,
    client: StoreClient,
    backend: Backend,
    clock_and_ids: ClockAndIds,
    *,
    server_socket: socket.socket,
    feed_reader: FeedReader,
    on_ready: Callable[[], None],
    metrics: MetricsTelemetry | None = None,
) -> ApiRole:
    """Builds the API role of a process.

    Raises InputError for an address that other machines can reach, unless a token exists.
    `feed_reader` must be the feed reader of the client, so that the process reads the feed once.
    """
    tokens = TokenStore(backend.records, clock_and_ids.clock)
    is_open = not await tokens.has_any()
    address = server_socket.getsockname()[0]
    if is_open and address not in LOOPBACK_HOSTS:
        raise InputError(
            f"other machines can reach {address}, and there is no API token: create one with "
            "'runnel token create', or listen on 127.0.0.1"
        )
    app_state = AppState(
        client,
        backend,
        clock_and_ids,
        settings,
        tokens,
        metrics=metrics,
        feed_reader=feed_reader,
    )
    rules = AccessRules(
        is_open=is_open,
        hosts=settings.api_hosts,
        origins=settings.api_origins,
        per_minute=settings.requests_per_minute,
        token_per_minute=settings.token_requests_per_minute,
    )
    app = build_app(app_state, AccessControl(tokens, backend.windows, rules))
    name = build_role_name("api", clock_and_ids.ids.nonce())
    return ApiRole(name, app, app_state, server_socket, on_ready=on_ready)
