"""Asynchronous methods for code without an event loop: run by a loop in a thread of its own."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from anyio.from_thread import BlockingPortal

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
