"""The HTTP client of handlers: limits size and time, and reaches allowed addresses only."""

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from runnel.handlers.environment import HandlerEnvironment
from runnel.handlers.http.request import HttpRequest

if TYPE_CHECKING:
    from runnel.handlers.http.connections import OutboundConnections
    from runnel.handlers.http.exchange import StreamedResponse


class OutboundHttpClient:
    """Sends the requests of handlers, over connections that stay open between tasks."""

    def __init__(self, environment: HandlerEnvironment) -> None:
        self._environment = environment
        self._connections: OutboundConnections | None = None

    def open(self, request: HttpRequest) -> "AbstractAsyncContextManager[StreamedResponse]":
        """Sends a request and opens the response. `exchange.send_request` describes the errors."""
        from runnel.handlers.http.connections import OutboundConnections
        from runnel.handlers.http.exchange import send_request

        if self._connections is None:
            self._connections = OutboundConnections(self._environment.addresses)
        return send_request(self._connections, request, self._environment.clock)

    async def close(self) -> None:
        """Closes the connections of the running event loop; a later request opens new ones."""
        if self._connections is not None:
            await self._connections.close()
