"""The arguments of `runnel.Engine`, and the engine or client that they open."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from runnel.app.embedded_engine import (
    ClockAndIds,
    EmbeddedEngine,
    Service,
    StopEvents,
    run_engine,
)
from runnel.app.roles import run_role
from runnel.app.run_arguments import select_data_dir
from runnel.app.run_context import RunContext
from runnel.app.stores import (
    StoreSession,
    build_store_session,
    explain_store_error,
    open_archived,
    open_store_session,
    open_unarchived,
)
from runnel.app.wiring import (
    build_engine,
    build_engine_roles,
    build_local_handlers,
    build_scheduler,
    list_own_queues,
    load_handlers,
)
from runnel.authoring.decorators.workflow import TracedWorkflow
from runnel.authoring.registry import AppError, HandlerRegistry, load_app
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.errors import InputError, StoreError
from runnel.settings import override_settings, read_settings
from runnel.settings.model import Settings


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of an Engine; its docstring explains them."""

    data_dir: Path | None
    redis_url: str | None
    apps: tuple[str, ...]
    concurrency: int | None
    runs_tasks: bool | None
    fires_schedules: bool

    def resolve_settings(self) -> Settings:
        """Returns the settings of the environment with these options; raises InputError."""
        settings = override_settings(
            read_settings(), worker_concurrency=self.concurrency, redis_url=self.redis_url
        )
        if self.data_dir is not None:
            return select_data_dir(settings, self.data_dir)
        if settings.has_server and not settings.has_redis:
            raise InputError(
                "runnel.Engine needs a store, but RUNNEL_SERVER names an HTTP server: use "
                "runnel.Client, or give data_dir= or redis_url="
            )
        return settings

    def list_workflows(self) -> list[TracedWorkflow[..., Any]]:
        """Imports the apps, and returns the decorated workflows in them; raises InputError."""
        workflows = []
        for name in self.apps:
            _load_app(name)
            values = vars(sys.modules[name.partition(":")[0]]).values()
            workflows += [value for value in values if isinstance(value, TracedWorkflow)]
        return workflows

    @asynccontextmanager
    async def open(self, settings: Settings, stops: StopEvents) -> AsyncIterator[RunContext]:
        """Opens an engine on a data directory, or a client of servers, until the block ends."""
        if not settings.has_redis:
            async with self._open_embedded(settings, stops) as engine:
                yield engine
        elif self.apps if self.runs_tasks is None else self.runs_tasks:
            async with self._open_roles(settings, stops) as session:
                yield session
        else:
            async with open_store_session(settings) as session:
                yield session

    @asynccontextmanager
    async def _open_embedded(
        self, settings: Settings, stops: StopEvents
    ) -> AsyncIterator[EmbeddedEngine]:
        if self.runs_tasks is False:
            raise InputError(
                "runs_tasks=False: no other process runs the tasks of a data directory; use servers"
            )
        handlers = build_local_handlers(settings, RealClock())
        for name in self.apps:
            handlers.include(_load_app(name))
        engine = await build_engine(settings, handlers=handlers, serves=True)
        engine.stops = stops
        services: list[Service] = []
        if self.fires_schedules:
            clock_and_ids = ClockAndIds(engine.clock, RandomIdGenerator())
            services.append(
                build_scheduler(engine.backend, clock_and_ids, engine.event_bus, engine.client)
            )
        async with run_engine(engine, adopts=True, services=services):
            yield engine

    @asynccontextmanager
    async def _open_roles(
        self, settings: Settings, stops: StopEvents
    ) -> AsyncIterator[StoreSession]:
        """Opens a client of servers, with an orchestrator and a worker in this process."""
        clock_and_ids = ClockAndIds(RealClock(), RandomIdGenerator())
        handlers = load_handlers(self.apps, settings)
        open_store = open_archived if settings.has_postgres else open_unarchived
        backend = await open_store(settings, clock_and_ids.clock, clock_and_ids.ids)
        try:
            session = build_store_session(
                backend,
                clock_and_ids.clock,
                clock_and_ids.ids,
                has_workers=True,
                mocks_services=settings.mocks_services,
            )
            role = build_engine_roles(
                settings,
                backend,
                clock_and_ids,
                session.event_bus,
                handlers=handlers,
                queues=list_own_queues(handlers, settings, self.apps),
            )
            async with run_role(role, stops):
                yield session
        except StoreError as error:
            raise explain_store_error(settings, error) from error
        finally:
            await backend.close()


def _load_app(name: str) -> HandlerRegistry:
    try:
        return load_app(name)
    except AppError as error:
        raise InputError(str(error).replace("--app:", "apps:", 1)) from error
