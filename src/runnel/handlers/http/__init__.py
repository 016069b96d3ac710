"""HTTP requests of workflows: bounded, classified, and only to where the operator lets them go."""

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from runnel.handlers.http.request import Wanted
from runnel.handlers.permissions import Means

if TYPE_CHECKING:
    from runnel.handlers.http.connections import Connections
    from runnel.handlers.http.exchange import Opened


# The way out for handlers: requests over connections that are kept from task to task.


class Web:
    def __init__(self, means: Means) -> None:
        self._means = means
        self._connections: Connections | None = None

    def open(self, wanted: Wanted) -> "AbstractAsyncContextManager[Opened]":
        """See `exchange`."""
        from runnel.handlers.http.connections import Connections
        from runnel.handlers.http.exchange import exchange

        if self._connections is None:
            self._connections = Connections(self._means.addresses)
        return exchange(self._connections, wanted, self._means.clock)

    async def close(self) -> None:
        """Those of the running event loop; a later request makes new ones."""
        if self._connections is not None:
            await self._connections.close()
