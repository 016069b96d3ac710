"""Large values as a server hands them out."""

import msgspec

from runnel.remote.transport import Transport


class RemoteValues:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def get(self, key: str) -> bytes:
        """Raises NotFoundError."""
        return msgspec.json.encode(await self._transport.get("/v1/values", [("key", key)]))
