"""Where commands look: into a store, or at a server over HTTP; they do not see which."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from runnel.app import stores
from runnel.app.stores import StoreSession
from runnel.client.listing import list_newest_headers
from runnel.core.ids import ExecutionId
from runnel.errors import NotFoundError
from runnel.ports.archive import ExecutionFilter
from runnel.settings.model import Settings

if TYPE_CHECKING:
    from runnel.client.http_resources import HttpSchedules, HttpWebhooks
    from runnel.ports.clock import Clock
    from runnel.ports.store import TaskQueue
    from runnel.triggers.schedule_store import ScheduleStore
    from runnel.triggers.webhook import WebhookStore


def has_data(settings: Settings) -> bool:
    """Always on servers: nothing has to be made there before one can look."""
    return settings.has_server or stores.has_data(settings)


@asynccontextmanager
async def open_store_session(
    settings: Settings, *, creates_data_dir: bool = False
) -> AsyncIterator[StoreSession]:
    """Raises NoDataError instead of making an empty data directory, unless it `creates_data_dir`
    then.
    """
    if settings.has_server:
        from runnel.client.http_backend import looking_at_server

        async with looking_at_server(settings) as look:
            yield look
        return
    async with stores.open_store_session(settings, creates_data_dir=creates_data_dir) as look:
        yield look


@asynccontextmanager
async def open_task_queue(settings: Settings) -> "AsyncIterator[tuple[TaskQueue, Clock]]":
    """Of a Redis: its archive is not needed for that, and may be down."""
    if settings.has_server:
        async with open_store_session(settings) as look:
            yield look.backend.tasks, look.clock
        return
    async with stores.open_task_queue(settings) as found:
        yield found


@asynccontextmanager
async def open_schedules(
    settings: Settings,
) -> "AsyncIterator[tuple[ScheduleStore | HttpSchedules, Clock]]":
    """Raises NoDataError as `open_store_session` does."""
    if settings.has_server:
        from runnel.client.http_backend import calling
        from runnel.client.http_resources import HttpSchedules
        from runnel.engine.clock import RealClock

        async with calling(settings) as (client, _about):
            yield HttpSchedules(client.transport), RealClock()
        return
    from runnel.engine.clock import RandomIdGenerator
    from runnel.triggers.schedule_store import ScheduleStore

    async with stores.open_store_session(settings) as look:
        yield ScheduleStore(look.backend, look.clock, RandomIdGenerator()), look.clock


@asynccontextmanager
async def open_webhooks(settings: Settings) -> "AsyncIterator[WebhookStore | HttpWebhooks]":
    """Raises NoDataError as `open_store_session` does."""
    if settings.has_server:
        from runnel.client.http_backend import calling
        from runnel.client.http_resources import HttpWebhooks

        async with calling(settings) as (client, _about):
            yield HttpWebhooks(client.transport)
        return
    from runnel.triggers.webhook import WebhookStore

    async with stores.open_store_session(settings) as look:
        yield WebhookStore(look.backend, look.clock)


def format_location(settings: Settings) -> str:
    """Where executions are that this process does not run, for a person."""
    from runnel.app.stores import build_redis_display_url
    from runnel.settings.variables import VARIABLES

    if settings.server_url is not None:
        return VARIABLES["RUNNEL_SERVER"].hide(settings.server_url)
    return build_redis_display_url(settings)


# Executions by what people type: an id, the beginning of one, or @last.

LAST_EXECUTION = "@last"


async def find_execution_id(session: StoreSession, text: str) -> ExecutionId:
    """Raises NotFoundError for one that does not exist or is not the only one."""
    wanted = text.strip()
    if wanted == LAST_EXECUTION:
        newest = await list_newest_headers(session.backend.archive, ExecutionFilter(limit=1))
        if not newest:
            raise NotFoundError("execution", LAST_EXECUTION, hint="nothing has been run yet")
        return newest[0].execution_id
    if not wanted:
        raise NotFoundError("execution", text, hint="give its id, the beginning of it, or @last")
    return await session.client.find(wanted)
