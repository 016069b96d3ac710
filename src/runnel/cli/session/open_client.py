"""Opens the client of a command, which uses a store directly or a Runnel server over HTTP."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from runnel.app import stores
from runnel.app.stores import StoreSession
from runnel.client.execution_lists import list_newest_executions
from runnel.client.protocol import Client, Operations, Schedules, Tokens, Webhooks, find_owner
from runnel.core.graph import Graph
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.message_text import escape_unprintable, suggest_name
from runnel.core.workflow import Workflow
from runnel.engine.clock import RealClock
from runnel.errors import InputError, NotFoundError
from runnel.ports.archive import ExecutionFilter
from runnel.ports.clock import Clock
from runnel.settings.model import Settings

if TYPE_CHECKING:
    from runnel.client.http_client import HttpClient
    from runnel.views.operations import ServerInfo

# The first request has fewer retries, so that a wrong address is reported soon. Later requests may
# wait longer for a busy server.
FIRST_RETRIES = 1
RETRIES = 6

LAST_EXECUTION = "@last"
SUGGESTIONS_MAX = 1_000


@dataclass(frozen=True, kw_only=True)
class ClientSession:
    """An open client. `has_workers` means that tasks run in worker processes."""

    client: Client
    clock: Clock
    has_workers: bool
    build_operations: Callable[[], Operations]

    @cached_property
    def operations(self) -> Operations:
        return self.build_operations()

    async def find_owner(self, execution_id: ExecutionId) -> str | None:
        """Returns the name of the process that runs an execution, or None."""
        return await find_owner(self.operations, execution_id)


def has_data(settings: Settings) -> bool:
    """Returns True if the data directory has a database; always True with a server."""
    return settings.has_server or stores.has_data(settings)


@asynccontextmanager
async def open_client(
    settings: Settings, *, creates_data_dir: bool = False
) -> AsyncIterator[ClientSession]:
    """Opens the client that the settings name.

    Raises NoDataError if the data directory does not exist, unless `creates_data_dir`. Raises
    NoServerError, NotRunnelError or NotAuthenticatedError if the server can't be used.
    """
    if settings.has_server:
        async with open_http_client(settings) as (http, server):
            yield ClientSession(
                client=http,
                clock=RealClock(),
                has_workers=server.has_workers,
                build_operations=lambda: http.operations,
            )
        return
    async with stores.open_store_session(settings, creates_data_dir=creates_data_dir) as store:
        yield build_client_session(store, settings)


def build_client_session(store: StoreSession, settings: Settings) -> ClientSession:
    def build_operations() -> Operations:
        from runnel.client.operations import StoreOperations

        return StoreOperations(store.backend, store.clock, settings)

    return ClientSession(
        client=store.client,
        clock=store.clock,
        has_workers=store.has_workers,
        build_operations=build_operations,
    )


@asynccontextmanager
async def open_http_client(settings: Settings) -> "AsyncIterator[tuple[HttpClient, ServerInfo]]":
    """Opens a client over HTTP, and reads the server's info; that request has fewer retries."""
    from runnel.client.http_client import HttpClient

    url, token = settings.server_url, settings.server_token
    async with HttpClient(url, token, retries=FIRST_RETRIES) as client:
        server = await client.server()
        client.transport.retries = RETRIES
        yield client, server


@asynccontextmanager
async def open_operations(settings: Settings) -> AsyncIterator[tuple[Operations, Clock]]:
    """Opens the operations; with Redis, they work even if the PostgreSQL archive is down."""
    if settings.has_server:
        async with open_http_client(settings) as (http, _server):
            yield http.operations, RealClock()
        return
    async with stores.open_store_operations(settings) as opened:
        yield opened


@asynccontextmanager
async def open_schedules(settings: Settings) -> AsyncIterator[Schedules]:
    """Opens the schedules; raises NoDataError as `open_client` does."""
    if settings.has_server:
        async with open_http_client(settings) as (http, _server):
            yield http.schedules
        return
    from runnel.engine.clock import RandomIdGenerator
    from runnel.triggers.schedule_store import ScheduleStore, StoreSchedules

    async with stores.open_store_session(settings) as store:
        schedules = ScheduleStore(store.backend, store.clock, RandomIdGenerator())
        yield StoreSchedules(schedules, store.clock)


@asynccontextmanager
async def open_webhooks(settings: Settings) -> AsyncIterator[Webhooks]:
    """Opens the webhooks; raises NoDataError as `open_client` does."""
    if settings.has_server:
        async with open_http_client(settings) as (http, _server):
            yield http.webhooks
        return
    from runnel.triggers.webhook import WebhookStore

    async with stores.open_store_session(settings) as store:
        yield WebhookStore(store.backend, store.clock)


@asynccontextmanager
async def open_tokens(settings: Settings) -> AsyncIterator[tuple[Tokens, Clock]]:
    """Opens the tokens; creates the data directory if it does not exist."""
    clock = RealClock()
    if settings.has_server:
        async with open_http_client(settings) as (http, _server):
            yield http.tokens, clock
        return
    from runnel.api.security.tokens import TokenStore
    from runnel.engine.clock import RandomIdGenerator

    backend = await stores.open_backend(settings, clock, RandomIdGenerator())
    try:
        yield TokenStore(backend.records, clock), clock
    finally:
        await backend.close()


def format_location(settings: Settings) -> str:
    """Returns the URL of the Runnel or Redis server without its password."""
    from runnel.settings.variables import VARIABLES

    if settings.server_url is not None:
        return VARIABLES["RUNNEL_SERVER"].hide(settings.server_url)
    return stores.build_redis_display_url(settings)


async def load_workflow(client: Client, execution_id: ExecutionId) -> Workflow:
    """Returns the workflow of an execution; raises NotFoundError."""
    summary = (await client.summaries([execution_id])).get(execution_id)
    if summary is None:
        raise NotFoundError("execution", execution_id)
    return (
        await client.library.load_graph(DefinitionHash(summary.workflow_definition_id))
    ).workflow


async def load_stored_graph(name: str, settings: Settings) -> Graph:
    """Returns the active version of a stored workflow, or else its newest version.

    Raises InputError if neither a file nor a stored workflow has the name.
    """
    known: list[str] = []
    if has_data(settings):
        async with open_client(settings) as session:
            library = session.client.library
            try:
                stored = await library.get(name)
            except NotFoundError:
                known = [item.name for item in await library.list(limit=SUGGESTIONS_MAX)]
            else:
                return await library.load_graph(stored.workflow_definition_id)
    close = suggest_name(name, known).strip(" ()")
    raise InputError(
        f"{escape_unprintable(name)}: there is no such file, and no stored workflow has this name; "
        + (close or "check the path, or list the stored workflows with 'runnel workflows'")
    )


async def find_execution_id(client: Client, text: str) -> ExecutionId:
    """Returns the execution that the user names by its id, the beginning of its id, or @last.

    Raises NotFoundError if no execution or more than one execution matches.
    """
    name = text.strip()
    if name == LAST_EXECUTION:
        newest = await list_newest_executions(client, ExecutionFilter(limit=1))
        if not newest:
            raise NotFoundError("execution", LAST_EXECUTION, hint="no workflow has been run yet")
        return newest[0].execution_id
    if not name:
        raise NotFoundError("execution", text, hint="give an id, the beginning of an id, or @last")
    return await client.find(name)
