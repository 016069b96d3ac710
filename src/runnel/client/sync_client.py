"""`runnel.SyncClient`: the same client for code without an event loop.

Each method is the one of `Client`, run by a loop in a thread of its own: nothing is written twice.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from anyio.from_thread import BlockingPortal, start_blocking_portal

from runnel.client.http_client import RETRIES, Client
from runnel.client.http_resources import (
    DeadLetters,
    Many,
    Operations,
    RemoteSchedules,
    RemoteWebhooks,
)

# Asynchronous methods for code without an event loop: run by a loop in a thread of its own.

C = TypeVar("C")
P = ParamSpec("P")
R = TypeVar("R")
_END = object()


class Face(Generic[C]):
    """Stands for `client`, whose loop runs behind `portal`."""

    portal: BlockingPortal
    client: C


class Part(Face[C]):
    """A face of something that belongs to a client."""

    def __init__(self, portal: BlockingPortal, client: C) -> None:
        self.portal = portal
        self.client = client


class Blocking(Generic[C, P, R]):
    """A method that waits for the asynchronous one."""

    def __init__(self, method: Callable[Concatenate[C, P], Coroutine[Any, Any, R]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, face: None, owner: type[Face[C]]) -> Self: ...
    @overload
    def __get__(self, face: Face[C], owner: type[Face[C]]) -> Callable[P, R]: ...
    def __get__(self, face: Face[C] | None, owner: type[Face[C]]) -> Self | Callable[P, R]:
        if face is None:
            return self

        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            work = partial(self._method, face.client, *args, **kwargs)
            found: R = face.portal.call(work)
            return found

        return call


class Iterating(Generic[C, P, R]):
    """A method that gives one after the other, asked for as they are needed."""

    def __init__(self, method: Callable[Concatenate[C, P], AsyncIterator[R]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, face: None, owner: type[Face[C]]) -> Self: ...
    @overload
    def __get__(self, face: Face[C], owner: type[Face[C]]) -> Callable[P, Iterator[R]]: ...
    def __get__(
        self, face: Face[C] | None, owner: type[Face[C]]
    ) -> Self | Callable[P, Iterator[R]]:
        if face is None:
            return self

        def call(*args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
            found = self._method(face.client, *args, **kwargs)
            try:
                while (each := face.portal.call(_next, found)) is not _END:
                    yield each  # type: ignore[misc]  # _END is the only other thing
            finally:
                if isinstance(found, AsyncGenerator):
                    face.portal.call(found.aclose)

        return call


async def _next(found: AsyncIterator[R]) -> R | object:
    return await anext(found, _END)


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
