"""Puts the routes, the gate and the errors together."""

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect

from runnel import __version__
from runnel.api.http_metrics import Counted
from runnel.api.openapi import describe
from runnel.api.problems import (
    on_disconnect,
    on_http_error,
    on_invalid_request,
    on_runnel_error,
)
from runnel.api.routes import (
    bulk,
    dead_letters,
    events,
    executions,
    health,
    lookups,
    metrics,
    nodes,
    operations,
    schedules,
    tokens,
    webhooks,
    workflows,
)
from runnel.api.security.gate import Gate
from runnel.api.security.guard import Guard
from runnel.api.site import Site
from runnel.errors import RunnelError

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
    work = (webhooks, workflows, bulk, lookups, executions, nodes, schedules, events)
    for each in (*work, dead_letters, operations, tokens):
        routes.include_router(each.router)
    for prefix in PREFIXES:
        app.include_router(routes, prefix=prefix, include_in_schema=prefix == PREFIXES[0])
    app.include_router(health.router)
    app.include_router(metrics.router)
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
