"""Where commands look: into a store, or at a server over HTTP; they do not see which."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from runnel.app import stores
from runnel.app.stores import Look
from runnel.client.listing import newest_headers
from runnel.core.ids import ExecutionId
from runnel.errors import NotFoundError
from runnel.ports.archive import ExecutionFilter
from runnel.settings.model import Settings

if TYPE_CHECKING:
    from runnel.client.http_resources import RemoteSchedules, RemoteWebhooks
    from runnel.ports.clock import Clock
    from runnel.ports.store import TaskQueue
    from runnel.triggers.schedule_store import Schedules
    from runnel.triggers.webhook import Webhooks


def has_data(settings: Settings) -> bool:
    """Always on servers: nothing has to be made there before one can look."""
    return settings.has_server or stores.has_data(settings)


@asynccontextmanager
async def looking(settings: Settings, *, is_made: bool = False) -> AsyncIterator[Look]:
    """Raises NoDataError instead of making an empty data directory, unless it `is_made` then."""
    if settings.has_server:
        from runnel.client.http_backend import looking_at_server

        async with looking_at_server(settings) as look:
            yield look
        return
    async with stores.looking(settings, is_made=is_made) as look:
        yield look


@asynccontextmanager
async def looking_at_tasks(settings: Settings) -> "AsyncIterator[tuple[TaskQueue, Clock]]":
    """Of a Redis: its archive is not needed for that, and may be down."""
    if settings.has_server:
        async with looking(settings) as look:
            yield look.backend.tasks, look.clock
        return
    async with stores.looking_at_tasks(settings) as found:
        yield found


@asynccontextmanager
async def keeping_schedules(
    settings: Settings,
) -> "AsyncIterator[tuple[Schedules | RemoteSchedules, Clock]]":
    """Raises NoDataError as `looking` does."""
    if settings.has_server:
        from runnel.client.http_backend import calling
        from runnel.client.http_resources import RemoteSchedules
        from runnel.engine.clock import RealClock

        async with calling(settings) as (client, _about):
            yield RemoteSchedules(client.transport), RealClock()
        return
    from runnel.engine.clock import RealIds
    from runnel.triggers.schedule_store import Schedules

    async with stores.looking(settings) as look:
        yield Schedules(look.backend, look.clock, RealIds()), look.clock


@asynccontextmanager
async def keeping_webhooks(settings: Settings) -> "AsyncIterator[Webhooks | RemoteWebhooks]":
    """Raises NoDataError as `looking` does."""
    if settings.has_server:
        from runnel.client.http_backend import calling
        from runnel.client.http_resources import RemoteWebhooks

        async with calling(settings) as (client, _about):
            yield RemoteWebhooks(client.transport)
        return
    from runnel.triggers.webhook import Webhooks

    async with stores.looking(settings) as look:
        yield Webhooks(look.backend, look.clock)


def place_of(settings: Settings) -> str:
    """Where executions are that this process does not run, for a person."""
    from runnel.app.stores import redis_shown
    from runnel.settings.variables import VARIABLES

    if settings.server_url is not None:
        return VARIABLES["RUNNEL_SERVER"].hide(settings.server_url)
    return redis_shown(settings)


# Executions by what people type: an id, the beginning of one, or @last.

LAST = "@last"


async def find(look: Look, text: str) -> ExecutionId:
    """Raises NotFoundError for one that does not exist or is not the only one."""
    wanted = text.strip()
    if wanted == LAST:
        newest = await newest_headers(look.backend.archive, ExecutionFilter(limit=1))
        if not newest:
            raise NotFoundError("execution", LAST, hint="nothing has been run yet")
        return newest[0].execution_id
    if not wanted:
        raise NotFoundError("execution", text, hint="give its id, the beginning of it, or @last")
    return await look.client.find(wanted)
