"""A client without an engine: to look, and to leave commands for whoever runs them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from runnel.backends.sqlite.database import FILE_NAME
from runnel.client import Client
from runnel.core.ids import ExecutionId
from runnel.endings import Ending, Listen
from runnel.errors import InputError, StoreError
from runnel.ports.backend import Backend
from runnel.ports.clock import Clock, Ids
from runnel.ports.store import LeaseRecord, TaskQueue
from runnel.runtime.clock import RealClock, RealIds
from runnel.runtime.hub import Hub
from runnel.runtime.newsroom import Newsroom
from runnel.runtime.stores import open_backend, open_redis, server_failure
from runnel.settings import Settings

STORE_ONLY = (
    "this command works on a store itself, not over HTTP: name it with --data-dir or --redis-url, "
    "or unset RUNNEL_SERVER"
)


class NoDataError(InputError):
    """Nothing was ever run in this data directory."""

    code = "no_data"

    def __init__(self, data_dir: Path) -> None:
        super().__init__(
            f"no executions: there is no data in '{data_dir}'; 'runnel run FILE' begins one, "
            "--data-dir names another directory"
        )
        self.data_dir = data_dir


@dataclass(slots=True, frozen=True, kw_only=True)
class Look:
    """`hub` tells the client how executions end, if somebody tells the hub: see `Remote`.

    `has_workers`: tasks are run by workers in processes of their own.
    """

    client: Client
    backend: Backend
    clock: Clock
    hub: Hub
    newsroom: Newsroom
    has_workers: bool

    async def owner_of(self, execution_id: ExecutionId) -> LeaseRecord | None:
        """None when no living process has it."""
        store = self.backend.store
        return await store.observe(await store.route(execution_id))


def has_data(settings: Settings) -> bool:
    """Always on a server: nothing has to be made there before one can look.

    Raises InputError when one can't look into the directory, and for the address of a server of
    Runnel: see `runnel.remote`.
    """
    if settings.has_server:
        raise InputError(STORE_ONLY)
    try:
        return settings.has_redis or (Path(settings.data_dir) / FILE_NAME).is_file()
    except OSError as error:
        raise InputError(
            f"the data directory {settings.data_dir} can't be read: {error.strerror}; name another "
            "one"
        ) from error


@asynccontextmanager
async def looking(settings: Settings, *, is_made: bool = False) -> AsyncIterator[Look]:
    """Raises NoDataError instead of making an empty data directory, unless it `is_made` then.

    Raises InputError as `has_data` does.
    """
    if not has_data(settings) and not is_made:
        raise NoDataError(Path(settings.data_dir))
    clock, ids = RealClock(), RealIds()
    backend = await open_backend(settings, clock, ids)
    try:
        yield look_at(backend, clock, ids, has_workers=settings.has_redis)
    except StoreError as error:
        raise server_failure(settings, error) from error
    finally:
        await backend.close()


class OpenClient(Protocol):
    def __call__(
        self,
        backend: Backend,
        clock: Clock,
        ids: Ids,
        *,
        ending_of: Callable[[str], Ending],
        listen: Listen,
    ) -> Client: ...


def look_at(
    backend: Backend,
    clock: Clock,
    ids: Ids,
    *,
    has_workers: bool = False,
    open_client: OpenClient = Client,
) -> Look:
    """The backend stays the caller's to close."""
    hub = Hub()
    newsroom = Newsroom(backend.feed, clock, hub)
    listen = partial(_listen, newsroom, hub)
    client = open_client(backend, clock, ids, ending_of=hub.ending, listen=listen)
    return Look(
        client=client,
        backend=backend,
        clock=clock,
        hub=hub,
        newsroom=newsroom,
        has_workers=has_workers,
    )


def _listen(
    newsroom: Newsroom, hub: Hub, execution_id: ExecutionId, news: asyncio.Event
) -> AbstractAsyncContextManager[object]:
    """Who tells the hub of everything tells how an execution ended last: it must not be outrun."""
    if hub.on_awaited is not None:
        return nullcontext()
    return newsroom.listen_for_end(execution_id, news)


@asynccontextmanager
async def looking_at_tasks(settings: Settings) -> AsyncIterator[tuple[TaskQueue, Clock]]:
    """Of a server: its archive is not needed for that, and may be down."""
    clock = RealClock()
    backend = await open_redis(settings, clock, RealIds())
    try:
        yield backend.tasks, clock
    finally:
        await backend.close()
