"""`runnel.SyncClient`: the same client for code without an event loop.

Each method is the one of `Client`, run by a loop in a thread of its own: nothing is written twice.
"""

from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Self

from anyio.from_thread import BlockingPortal, start_blocking_portal

from runnel.remote.client import RETRIES, Client
from runnel.remote.dead_letters import DeadLetters
from runnel.remote.faces import Blocking, Face, Iterating, Part
from runnel.remote.many import Many
from runnel.remote.operations import Operations
from runnel.remote.triggers import RemoteSchedules, RemoteWebhooks


class SyncSchedules(Part[RemoteSchedules]):
    add = Blocking(RemoteSchedules.add)
    list = Blocking(RemoteSchedules.list)
    get = Blocking(RemoteSchedules.get)
    pause = Blocking(RemoteSchedules.pause)
    remove = Blocking(RemoteSchedules.remove)


class SyncWebhooks(Part[RemoteWebhooks]):
    add = Blocking(RemoteWebhooks.add)
    list = Blocking(RemoteWebhooks.list)
    get = Blocking(RemoteWebhooks.get)
    remove = Blocking(RemoteWebhooks.remove)


class SyncDeadLetters(Part[DeadLetters]):
    list = Iterating(DeadLetters.list)
    count = Blocking(DeadLetters.count)
    get = Blocking(DeadLetters.get)
    retry = Blocking(DeadLetters.retry)
    retry_many = Blocking(DeadLetters.retry_many)
    purge = Blocking(DeadLetters.purge)
    purge_many = Blocking(DeadLetters.purge_many)


class SyncOperations(Part[Operations]):
    workers = Blocking(Operations.workers)
    worker = Blocking(Operations.worker)
    drain = Blocking(Operations.drain)
    queues = Blocking(Operations.queues)
    limits = Iterating(Operations.limits)
    partitions = Blocking(Operations.partitions)


class SyncMany(Part[Many]):
    cancel = Iterating(Many.cancel)
    rerun = Iterating(Many.rerun)


class SyncClient(Face[Client]):
    """As `Client`; to be used in a `with` block, by as many threads as wanted."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout_s: float = 30.0,
        retries: int = RETRIES,
    ) -> None:
        self._open = ExitStack()
        self.portal: BlockingPortal = self._open.enter_context(start_blocking_portal())
        try:
            self.client: Client = self.portal.call(
                partial(Client, url, token, timeout_s=timeout_s, retries=retries)
            )
        except BaseException:
            self._open.close()
            raise
        self._open.callback(self.portal.call, self.client.close)
        self.schedules = SyncSchedules(self.portal, self.client.schedules)
        self.webhooks = SyncWebhooks(self.portal, self.client.webhooks)
        self.dead_letters = SyncDeadLetters(self.portal, self.client.dead_letters)
        self.operations = SyncOperations(self.portal, self.client.operations)
        self.many = SyncMany(self.portal, self.client.many)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Called again, it does nothing."""
        self._open.close()

    submit = Blocking(Client.submit)
    run = Blocking(Client.run)
    hold = Blocking(Client.hold)
    trigger = Blocking(Client.trigger)
    wait = Blocking(Client.wait)
    get = Blocking(Client.get)
    node = Blocking(Client.node)
    history = Blocking(Client.history)
    follow = Iterating(Client.follow)
    list_executions = Blocking(Client.list_executions)
    executions = Iterating(Client.executions)
    count_executions = Blocking(Client.count_executions)
    cancel = Blocking(Client.cancel)
    signal = Blocking(Client.signal)
    rerun = Blocking(Client.rerun)
    store = Blocking(Client.store)
    delete_workflow = Blocking(Client.delete_workflow)
    workflows = Iterating(Client.workflows)
    versions = Blocking(Client.versions)
    document = Blocking(Client.document)
    server = Blocking(Client.server)
    ready = Blocking(Client.ready)
