"""`runnel.SyncClient`: the blocking `runnel.Client`, for code without an event loop.

Each method runs the `HttpClient` method of the same name on an event loop in a separate thread.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from anyio.from_thread import BlockingPortal, start_blocking_portal

from runnel.client.http_client import DEFAULT_RETRIES, HttpClient
from runnel.client.http_resources import (
    HttpBulk,
    HttpDeadLetters,
    HttpOperations,
    HttpSchedules,
    HttpTokens,
    HttpValues,
    HttpWebhooks,
    HttpWorkflows,
)

C = TypeVar("C")
P = ParamSpec("P")
R = TypeVar("R")
_END = object()


class SyncWrapper(Generic[C]):
    """Base class of blocking wrappers of a client.

    `portal` runs calls on the client's event loop.
    """

    portal: BlockingPortal
    client: C


class SyncSubWrapper(SyncWrapper[C]):
    """Base class of blocking wrappers of a client's method groups."""

    def __init__(self, portal: BlockingPortal, client: C) -> None:
        self.portal = portal
        self.client = client


class BlockingMethod(Generic[C, P, R]):
    """A descriptor for a method that runs an asynchronous method and waits for its result."""

    def __init__(self, method: Callable[Concatenate[C, P], Coroutine[Any, Any, R]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, wrapper: None, owner: type[SyncWrapper[C]]) -> Self: ...
    @overload
    def __get__(self, wrapper: SyncWrapper[C], owner: type[SyncWrapper[C]]) -> Callable[P, R]: ...
    def __get__(
        self, wrapper: SyncWrapper[C] | None, owner: type[SyncWrapper[C]]
    ) -> Self | Callable[P, R]:
        if wrapper is None:
            return self

        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            work = partial(self._method, wrapper.client, *args, **kwargs)
            result: R = wrapper.portal.call(work)
            return result

        return call


class IteratingMethod(Generic[C, P, R]):
    """A descriptor for a method that yields items of an asynchronous iterator on demand."""

    def __init__(self, method: Callable[Concatenate[C, P], AsyncIterator[R]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, wrapper: None, owner: type[SyncWrapper[C]]) -> Self: ...
    @overload
    def __get__(
        self, wrapper: SyncWrapper[C], owner: type[SyncWrapper[C]]
    ) -> Callable[P, Iterator[R]]: ...
    def __get__(
        self, wrapper: SyncWrapper[C] | None, owner: type[SyncWrapper[C]]
    ) -> Self | Callable[P, Iterator[R]]:
        if wrapper is None:
            return self

        def call(*args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
            result = self._method(wrapper.client, *args, **kwargs)
            try:
                while (item := wrapper.portal.call(_read_next, result)) is not _END:
                    yield item  # type: ignore[misc]  # _END is the only other type
            finally:
                if isinstance(result, AsyncGenerator):
                    wrapper.portal.call(result.aclose)

        return call


async def _read_next(iterator: AsyncIterator[R]) -> R | object:
    return await anext(iterator, _END)


class SyncSchedules(SyncSubWrapper[HttpSchedules]):
    add = BlockingMethod(HttpSchedules.add)
    list = BlockingMethod(HttpSchedules.list)
    get = BlockingMethod(HttpSchedules.get)
    pause = BlockingMethod(HttpSchedules.pause)
    remove = BlockingMethod(HttpSchedules.remove)


class SyncWebhooks(SyncSubWrapper[HttpWebhooks]):
    add = BlockingMethod(HttpWebhooks.add)
    list = BlockingMethod(HttpWebhooks.list)
    get = BlockingMethod(HttpWebhooks.get)
    remove = BlockingMethod(HttpWebhooks.remove)


class SyncDeadLetters(SyncSubWrapper[HttpDeadLetters]):
    list = IteratingMethod(HttpDeadLetters.list)
    count = BlockingMethod(HttpDeadLetters.count)
    get = BlockingMethod(HttpDeadLetters.get)
    retry = BlockingMethod(HttpDeadLetters.retry)
    retry_many = BlockingMethod(HttpDeadLetters.retry_many)
    purge = BlockingMethod(HttpDeadLetters.purge)
    purge_many = BlockingMethod(HttpDeadLetters.purge_many)


class SyncOperations(SyncSubWrapper[HttpOperations]):
    workers = BlockingMethod(HttpOperations.workers)
    worker = BlockingMethod(HttpOperations.worker)
    drain = BlockingMethod(HttpOperations.drain)
    queues = BlockingMethod(HttpOperations.queues)
    limits = IteratingMethod(HttpOperations.limits)
    partitions = BlockingMethod(HttpOperations.partitions)
    partition_of = BlockingMethod(HttpOperations.partition_of)


class SyncBulk(SyncSubWrapper[HttpBulk]):
    cancel = IteratingMethod(HttpBulk.cancel)
    rerun = IteratingMethod(HttpBulk.rerun)


class SyncValues(SyncSubWrapper[HttpValues]):
    output = BlockingMethod(HttpValues.output)
    input = BlockingMethod(HttpValues.input)
    stream_output = IteratingMethod(HttpValues.stream_output)
    stream_input = IteratingMethod(HttpValues.stream_input)


class SyncTokens(SyncSubWrapper[HttpTokens]):
    create = BlockingMethod(HttpTokens.create)
    list = BlockingMethod(HttpTokens.list)
    revoke = BlockingMethod(HttpTokens.revoke)


class SyncWorkflows(SyncSubWrapper[HttpWorkflows]):
    list = BlockingMethod(HttpWorkflows.list)
    versions = BlockingMethod(HttpWorkflows.versions)
    get = BlockingMethod(HttpWorkflows.get)
    activate = BlockingMethod(HttpWorkflows.activate)
    active = BlockingMethod(HttpWorkflows.active)
    load_graph = BlockingMethod(HttpWorkflows.load_graph)
    store = BlockingMethod(HttpWorkflows.store)
    delete = BlockingMethod(HttpWorkflows.delete)


class SyncClient(SyncWrapper[HttpClient]):
    """The blocking `HttpClient`; use it in a `with` block, from any number of threads."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout_s: float = 30.0,
        retries: int = DEFAULT_RETRIES,
    ) -> None:
        self._exit_stack = ExitStack()
        self.portal: BlockingPortal = self._exit_stack.enter_context(start_blocking_portal())
        try:
            self.client: HttpClient = self.portal.call(
                partial(HttpClient, url, token, timeout_s=timeout_s, retries=retries)
            )
        except BaseException:
            self._exit_stack.close()
            raise
        self._exit_stack.callback(self.portal.call, self.client.close)
        self.schedules = SyncSchedules(self.portal, self.client.schedules)
        self.webhooks = SyncWebhooks(self.portal, self.client.webhooks)
        self.dead_letters = SyncDeadLetters(self.portal, self.client.dead_letters)
        self.operations = SyncOperations(self.portal, self.client.operations)
        self.many = SyncBulk(self.portal, self.client.many)
        self.tokens = SyncTokens(self.portal, self.client.tokens)
        self.library = SyncWorkflows(self.portal, self.client.library)
        self.values = SyncValues(self.portal, self.client.values)

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
        """Closes the connections; a second call has no effect."""
        self._exit_stack.close()

    submit = BlockingMethod(HttpClient.submit)
    submit_many = BlockingMethod(HttpClient.submit_many)
    run = BlockingMethod(HttpClient.run)
    run_many = IteratingMethod(HttpClient.run_many)
    hold = BlockingMethod(HttpClient.hold)
    trigger = BlockingMethod(HttpClient.trigger)
    wait = BlockingMethod(HttpClient.wait)
    get = BlockingMethod(HttpClient.get)
    node = BlockingMethod(HttpClient.node)
    history = BlockingMethod(HttpClient.history)
    follow = IteratingMethod(HttpClient.follow)
    list_executions = BlockingMethod(HttpClient.list_executions)
    executions = IteratingMethod(HttpClient.executions)
    count_executions = BlockingMethod(HttpClient.count_executions)
    find = BlockingMethod(HttpClient.find)
    summaries = BlockingMethod(HttpClient.summaries)
    cancel = BlockingMethod(HttpClient.cancel)
    signal = BlockingMethod(HttpClient.signal)
    rerun = BlockingMethod(HttpClient.rerun)
    store = BlockingMethod(HttpClient.store)
    delete_workflow = BlockingMethod(HttpClient.delete_workflow)
    workflows = IteratingMethod(HttpClient.workflows)
    versions = BlockingMethod(HttpClient.versions)
    document = BlockingMethod(HttpClient.document)
    server = BlockingMethod(HttpClient.server)
    ready = BlockingMethod(HttpClient.ready)
