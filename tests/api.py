"""The HTTP API in the test's own process, on any backend, without a socket."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.routing import BaseRoute

from runnel.api.app import build_app
from runnel.api.security.access_control import AccessControl, AccessRules
from runnel.api.security.tokens import TokenStore
from runnel.api.state import AppState
from runnel.app.embedded_engine import ClockAndIds
from runnel.client.store_client import StoreClient
from runnel.engine.clock import RandomIdGenerator
from runnel.ports import Backend
from runnel.ports.clock import Clock
from runnel.settings.model import Settings
from runnel.views.token import Scope
from tests.engines import WorkHandler, flush_redis, open_engine
from tests.redis_postgres import open_archived_engine

KINDS = ("memory", "sqlite", "redis", "archived")
BOTH = ("sqlite", "archived")
"""The two usual deployments, for routes whose behaviour other tests check on every backend."""
BASE = "http://localhost"


@dataclass(kw_only=True)
class ApiUnderTest:
    """An API and its engine: `http` has no token, `work` is the handler named `work`."""

    http: httpx.AsyncClient
    site: AppState
    work: WorkHandler
    tokens: TokenStore
    app: FastAPI
    backend: Backend = field(init=False)

    def __post_init__(self) -> None:
        self.backend = self.site.backend

    async def token(self, *scopes: Scope, per_minute: int | None = None, **more: Any) -> str:
        view = await self.tokens.create("test", scopes, per_minute=per_minute, **more)
        return view.token

    async def get(self, path: str, **given: Any) -> Any:
        """Returns the JSON body; fails the test unless the status is a success."""
        return await self.call("GET", path, **given)

    async def post(self, path: str, body: Any = None, **given: Any) -> Any:
        if body is not None:
            given["json"] = body
        return await self.call("POST", path, **given)

    async def call(self, method: str, path: str, **given: Any) -> Any:
        answer = await self.http.request(method, path, **given)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()

    async def wait_for_end(self, execution_id: str) -> Any:
        execution = await self.get(f"/v1/executions/{execution_id}/wait", params={"timeout": 60})
        assert execution["finished_at"] is not None, f"{execution_id} is {execution['status']}"
        return execution


@asynccontextmanager
async def open_api(
    kind: str,
    request: pytest.FixtureRequest,
    folder: Path,
    *,
    is_open: bool = True,
    settings: Settings | None = None,
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
) -> AsyncIterator[ApiUnderTest]:
    """Opens an API with an engine that runs the submitted workflows."""
    work, settings = WorkHandler(), settings or Settings()
    async with AsyncExitStack() as stack:
        client, backend, clock = await _open_engine(stack, kind, request, folder, work)
        tokens = TokenStore(backend.records, clock)
        site = AppState(client, backend, ClockAndIds(clock, RandomIdGenerator()), settings, tokens)
        rules = AccessRules(
            is_open=is_open,
            hosts=hosts,
            origins=origins,
            per_minute=settings.requests_per_minute,
            token_per_minute=settings.token_requests_per_minute,
        )
        app = build_app(site, AccessControl(tokens, backend.windows, rules))
        app.router.routes = _reuse_routes(app)
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        http = await stack.enter_async_context(
            httpx.AsyncClient(transport=transport, base_url=BASE)
        )
        yield ApiUnderTest(http=http, site=site, work=work, tokens=tokens, app=app)


_routes: list[BaseRoute] = []


def _reuse_routes(app: FastAPI) -> list[BaseRoute]:
    """Returns the routes of the first app of this process.

    FastAPI builds a route at its first call, which takes as long as many a test. The routes hold
    no state of an app.
    """
    _routes[:] = _routes or app.router.routes
    return _routes


async def _open_engine(
    stack: AsyncExitStack,
    kind: str,
    request: pytest.FixtureRequest,
    folder: Path,
    work: WorkHandler,
) -> tuple[StoreClient, Backend, Clock]:
    if kind == "archived":
        redis = request.getfixturevalue("shared_redis")
        postgres = request.getfixturevalue("shared_postgres")
        running = await stack.enter_async_context(open_archived_engine(redis, postgres, work))
        return running.client, running.backend, running.engine.clock
    url = flush_redis(request) if kind == "redis" else None
    engine = await stack.enter_async_context(open_engine(kind, folder, work, redis_url=url))
    return engine.client, engine.backend, engine.clock
