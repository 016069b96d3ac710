"""A server as commands look at it: where a store of this machine would be."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import cast

from runnel.ports.backend import Backend
from runnel.remote.client import Client
from runnel.remote.models import About
from runnel.remote.served_client import ServedClient
from runnel.remote.stores.archive import RemoteArchive
from runnel.remote.stores.feed import RemoteFeed
from runnel.remote.stores.mailbox import RemoteMailbox
from runnel.remote.stores.operations import RemoteStore, RemoteTasks
from runnel.remote.stores.values import RemoteValues
from runnel.runtime.clock import RealClock, RealIds
from runnel.runtime.look import Look, look_at
from runnel.settings import Settings

# A person waits: longer for a server that is busy than for one that is not there.
RETRIES_FIRST = 1
RETRIES = 6


@dataclass(frozen=True, slots=True)
class RemoteBackend:
    """Those ports of a backend that an onlooker looks into, as far as one does."""

    archive: RemoteArchive
    store: RemoteStore
    tasks: RemoteTasks
    blobs: RemoteValues
    mailbox: RemoteMailbox
    feed: RemoteFeed


@asynccontextmanager
async def calling(settings: Settings) -> AsyncIterator[tuple[Client, About]]:
    """Raises NoServerError, NotRunnelError, NotAuthenticatedError before anything else happens."""
    url, token = settings.server_url, settings.server_token
    async with Client(url, token, retries=RETRIES_FIRST) as client:
        about = await client.server()
        client.transport.retries = RETRIES
        yield client, about


@asynccontextmanager
async def looking_at_server(settings: Settings) -> AsyncIterator[Look]:
    """As `calling`."""
    clock, ids = RealClock(), RealIds()
    async with calling(settings) as (client, about):
        transport = client.transport
        seen = RemoteBackend(
            RemoteArchive(transport),
            RemoteStore(transport, clock),
            RemoteTasks(transport, clock),
            RemoteValues(transport),
            RemoteMailbox(client),
            RemoteFeed(transport),
        )
        # The rest of a backend is for those who run something, and they are on the server.
        backend = cast("Backend", seen)
        yield look_at(
            backend,
            clock,
            ids,
            has_workers=about.has_workers,
            open_client=partial(ServedClient, client),
        )
