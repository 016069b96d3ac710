"""`runnel.SyncClient`: the same client for code without an event loop.

Each method is the one of `Client`, run by a loop in a thread of its own: nothing is written twice.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from anyio.from_thread import BlockingPortal, start_blocking_portal

from runnel.remote.client import RETRIES, Client

P = ParamSpec("P")
R = TypeVar("R")
_END = object()


class _Blocking(Generic[P, R]):
    """A method that waits for the asynchronous one."""

    def __init__(self, method: Callable[Concatenate[Client, P], Coroutine[Any, Any, R]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, client: None, owner: type["SyncClient"]) -> Self: ...
    @overload
    def __get__(self, client: "SyncClient", owner: type["SyncClient"]) -> Callable[P, R]: ...
    def __get__(
        self, client: "SyncClient | None", owner: type["SyncClient"]
    ) -> Self | Callable[P, R]:
        if client is None:
            return self

        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            work = partial(self._method, client.client, *args, **kwargs)
            found: R = client.portal.call(work)
            return found

        return call


class _Iterating(Generic[P, R]):
    """A method that gives one after the other, asked for as they are needed."""

    def __init__(self, method: Callable[Concatenate[Client, P], AsyncIterator[R]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, client: None, owner: type["SyncClient"]) -> Self: ...
    @overload
    def __get__(
        self, client: "SyncClient", owner: type["SyncClient"]
    ) -> Callable[P, Iterator[R]]: ...
    def __get__(
        self, client: "SyncClient | None", owner: type["SyncClient"]
    ) -> Self | Callable[P, Iterator[R]]:
        if client is None:
            return self

        def call(*args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
            found = self._method(client.client, *args, **kwargs)
            try:
                while (each := client.portal.call(_next, found)) is not _END:
                    yield each  # type: ignore[misc]  # _END is the only other thing
            finally:
                if isinstance(found, AsyncGenerator):
                    client.portal.call(found.aclose)

        return call


async def _next(found: AsyncIterator[R]) -> R | object:
    return await anext(found, _END)


class SyncClient:
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

    submit = _Blocking(Client.submit)
    run = _Blocking(Client.run)
    hold = _Blocking(Client.hold)
    trigger = _Blocking(Client.trigger)
    wait = _Blocking(Client.wait)
    get = _Blocking(Client.get)
    node = _Blocking(Client.node)
    history = _Blocking(Client.history)
    follow = _Iterating(Client.follow)
    list_executions = _Blocking(Client.list_executions)
    executions = _Iterating(Client.executions)
    count_executions = _Blocking(Client.count_executions)
    cancel = _Blocking(Client.cancel)
    signal = _Blocking(Client.signal)
    rerun = _Blocking(Client.rerun)
    store = _Blocking(Client.store)
    delete_workflow = _Blocking(Client.delete_workflow)
    workflows = _Iterating(Client.workflows)
    versions = _Blocking(Client.versions)
    document = _Blocking(Client.document)
    server = _Blocking(Client.server)
    ready = _Blocking(Client.ready)
