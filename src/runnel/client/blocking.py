"""Blocking wrappers of asynchronous objects, for code without an event loop.

`SyncClient` and the engine of a `with` block declare their methods with these descriptors.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from anyio.from_thread import BlockingPortal

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
