"""Connection pools for outbound HTTP requests, one per event loop. Every address is checked."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import httpcore
import httpx

from runnel.errors import ServiceError
from runnel.handlers.permissions import AddressPermissions

CONNECTIONS_MAX = 100
IDLE_CONNECTIONS_MAX = 20
IDLE_TIMEOUT_S = 30.0


class AddressCheckedNetwork(httpcore.AsyncNetworkBackend):
    """Resolves a host, checks its addresses, and connects to the checked addresses only.

    So a host name that later resolves to another address (DNS rebinding) can't bypass the check.
    """

    def __init__(self, addresses: AddressPermissions) -> None:
        self._addresses = addresses
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connects to a host; raises ServiceRefusedError if one of its addresses is not allowed."""
        addresses = await self._resolve(host, port)
        for address in addresses:
            self._addresses.check(host, address)
        for address in addresses[:-1]:
            try:
                return await self._connect(address, port, timeout, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue  # tries the next address
        return await self._connect(addresses[-1], port, timeout, socket_options)

    async def sleep(self, seconds: float) -> None:
        await self._network.sleep(seconds)

    async def _connect(
        self,
        address: str,
        port: int,
        timeout: float | None,
        options: Iterable[httpcore.SOCKET_OPTION] | None,
    ) -> httpcore.AsyncNetworkStream:
        return await self._network.connect_tcp(
            address, port, timeout=timeout, socket_options=options
        )

    async def _resolve(self, host: str, port: int) -> list[str]:
        loop = asyncio.get_running_loop()
        try:
            entries = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (socket.gaierror, UnicodeError) as error:
            raise ServiceError(f"there is no host '{host}': {error}") from error
        return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


class _EventLoopPool:
    """The pool of one event loop. A retired pool is closed after its last request."""

    def __init__(self, addresses: AddressPermissions) -> None:
        self.connections = httpcore.AsyncConnectionPool(
            ssl_context=httpx.create_ssl_context(),
            max_connections=CONNECTIONS_MAX,
            max_keepalive_connections=IDLE_CONNECTIONS_MAX,
            keepalive_expiry=IDLE_TIMEOUT_S,
            network_backend=AddressCheckedNetwork(addresses),
        )
        self._users = 0
        self._is_retired = False

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[httpcore.AsyncConnectionPool]:
        self._users += 1
        try:
            yield self.connections
        finally:
            self._users -= 1
            await self._close_if_unused()

    async def retire(self) -> None:
        self._is_retired = True
        await self._close_if_unused()

    async def _close_if_unused(self) -> None:
        if self._is_retired and not self._users:
            await self.connections.aclose()


class OutboundConnections:
    """The connection pools of all event loops."""

    def __init__(self, addresses: AddressPermissions) -> None:
        self._addresses = addresses
        self._pools: dict[asyncio.AbstractEventLoop, _EventLoopPool] = {}

    @asynccontextmanager
    async def acquire_pool(self) -> AsyncIterator[httpcore.AsyncConnectionPool]:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            for closed_loop in [known for known in self._pools if known.is_closed()]:
                del self._pools[closed_loop]
            pool = self._pools[loop] = _EventLoopPool(self._addresses)
        async with pool.acquire() as connections:
            yield connections

    async def close(self) -> None:
        """Closes the pool of the running event loop when its current requests have ended."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.retire()
