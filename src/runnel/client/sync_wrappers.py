"""Blocking wrappers of asynchronous objects, for code without an event loop.

`SyncClient` and the engine of a `with` block declare their methods with these descriptors.
"""

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
)
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from anyio.from_thread import BlockingPortal

from runnel.client.protocol import (
    Bulk,
    DeadLetters,
    Operations,
    Schedules,
    Values,
    Workflows,
)
from runnel.errors import InputError

C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)
P = ParamSpec("P")
R = TypeVar("R")
_END = object()


class SyncWrapper(Generic[C_co]):
    """Base class of blocking wrappers of a client.

    `portal` runs calls on the client's event loop.
    """

    portal: BlockingPortal
    client: C_co

    def call(self, work: Callable[[], Awaitable[R]]) -> R:
        """Runs the work on the client's event loop, and waits for its result."""
        return call_in_portal(self.portal, work)


def call_in_portal(portal: BlockingPortal, work: Callable[[], Awaitable[R]]) -> R:
    """Raises InputError if the portal can't be called, because it is closed or in this thread."""
    try:
        return portal.call(work)
    except RuntimeError as error:
        if str(error) == "This portal is not running":
            raise InputError("this engine or client is closed; open a new one") from error
        if str(error) == "This method cannot be called from the event loop thread":
            raise InputError(
                "code on the event loop of the engine or client can't block it; make the task a "
                "plain function, which runs in a thread"
            ) from error
        raise


class SyncSubWrapper(SyncWrapper[C_co]):
    """Base class of blocking wrappers of a client's method groups."""

    def __init__(self, portal: BlockingPortal, client: C_co) -> None:
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
            # By name: the method may be one of a protocol, which the client implements.
            method = getattr(wrapper.client, self._method.__name__)
            result: R = wrapper.call(partial(method, *args, **kwargs))
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
            method = getattr(wrapper.client, self._method.__name__)
            result = wrapper.call(partial(_begin, method, *args, **kwargs))
            try:
                while (item := wrapper.call(partial(_read_next, result))) is not _END:
                    yield item  # type: ignore[misc]  # _END is the only other type
            finally:
                if isinstance(result, AsyncGenerator):
                    wrapper.call(result.aclose)

        return call


async def _begin(
    method: Callable[P, AsyncIterator[R]], *args: P.args, **kwargs: P.kwargs
) -> AsyncIterator[R]:
    """Calls the method on the event loop, which some methods need."""
    return method(*args, **kwargs)


async def _read_next(iterator: AsyncIterator[R]) -> R | object:
    return await anext(iterator, _END)


# The method groups of a client.


class SyncSchedules(SyncSubWrapper[Schedules]):
    add = BlockingMethod(Schedules.add)
    list = BlockingMethod(Schedules.list)
    get = BlockingMethod(Schedules.get)
    pause = BlockingMethod(Schedules.pause)
    remove = BlockingMethod(Schedules.remove)


class SyncDeadLetters(SyncSubWrapper[DeadLetters]):
    list = IteratingMethod(DeadLetters.list)
    count = BlockingMethod(DeadLetters.count)
    get = BlockingMethod(DeadLetters.get)
    retry = BlockingMethod(DeadLetters.retry)
    retry_many = BlockingMethod(DeadLetters.retry_many)
    purge = BlockingMethod(DeadLetters.purge)
    purge_many = BlockingMethod(DeadLetters.purge_many)


class SyncOperations(SyncSubWrapper[Operations]):
    workers = BlockingMethod(Operations.workers)
    worker = BlockingMethod(Operations.worker)
    drain = BlockingMethod(Operations.drain)
    queues = BlockingMethod(Operations.queues)
    limits = IteratingMethod(Operations.limits)
    partitions = BlockingMethod(Operations.partitions)
    partition_of = BlockingMethod(Operations.partition_of)


class SyncBulk(SyncSubWrapper[Bulk]):
    cancel = IteratingMethod(Bulk.cancel)
    rerun = IteratingMethod(Bulk.rerun)


class SyncValues(SyncSubWrapper[Values]):
    output = BlockingMethod(Values.output)
    input = BlockingMethod(Values.input)
    stream_output = IteratingMethod(Values.stream_output)
    stream_input = IteratingMethod(Values.stream_input)


class SyncWorkflows(SyncSubWrapper[Workflows]):
    list = BlockingMethod(Workflows.list)
    versions = BlockingMethod(Workflows.versions)
    get = BlockingMethod(Workflows.get)
    activate = BlockingMethod(Workflows.activate)
    active = BlockingMethod(Workflows.active)
    load_graph = BlockingMethod(Workflows.load_graph)
    store = BlockingMethod(Workflows.store)
    delete = BlockingMethod(Workflows.delete)
