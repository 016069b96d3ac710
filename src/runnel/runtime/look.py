"""A client without an engine: to look, and to leave commands for whoever runs them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from runnel.backends.sqlite.database import FILE_NAME
from runnel.client import Client
from runnel.core.ids import ExecutionId
from runnel.errors import InputError, StoreError
from runnel.ports.backend import Backend
from runnel.ports.clock import Clock
from runnel.ports.store import LeaseRecord, TaskQueue
from runnel.runtime.clock import RealClock, RealIds
from runnel.runtime.hub import Hub
from runnel.runtime.stores import open_backend, open_redis, server_failure
from runnel.settings import Settings


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
    """`hub` tells the client how executions end, if somebody tells the hub: see `Remote`."""

    client: Client
    backend: Backend
    clock: Clock
    hub: Hub

    async def owner_of(self, execution_id: ExecutionId) -> LeaseRecord | None:
        """None when no living process has it."""
        store = self.backend.store
        return await store.observe(await store.route(execution_id))


def has_data(settings: Settings) -> bool:
    """Always on a server: nothing has to be made there before one can look.

    Raises InputError when one can't look into the directory.
    """
    try:
        return settings.has_redis or (Path(settings.data_dir) / FILE_NAME).is_file()
    except OSError as error:
        raise InputError(
            f"the data directory {settings.data_dir} can't be read: {error.strerror}; name another "
            "one"
        ) from error


@asynccontextmanager
async def looking(settings: Settings, *, is_made: bool = False) -> AsyncIterator[Look]:
    """Raises NoDataError instead of making an empty data directory, unless it `is_made` then."""
    if not is_made and not has_data(settings):
        raise NoDataError(Path(settings.data_dir))
    clock, ids, hub = RealClock(), RealIds(), Hub()
    backend = await open_backend(settings, clock, ids)
    try:
        client = Client(backend, clock, ids, ending_of=hub.ending)
        yield Look(client=client, backend=backend, clock=clock, hub=hub)
    except StoreError as error:
        raise server_failure(settings, error) from error
    finally:
        await backend.close()


@asynccontextmanager
async def looking_at_tasks(settings: Settings) -> AsyncIterator[tuple[TaskQueue, Clock]]:
    """Of a server: its archive is not needed for that, and may be down."""
    clock = RealClock()
    backend = await open_redis(settings, clock, RealIds())
    try:
        yield backend.tasks, clock
    finally:
        await backend.close()
