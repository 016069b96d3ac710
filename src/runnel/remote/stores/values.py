"""Large values as a server hands them out."""

import msgspec

from runnel.remote.transport import Call, Transport


class RemoteValues:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def get(self, key: str) -> bytes:
        """Raises NotFoundError."""
        call = Call(
            method="GET",
            path="/v1/values",
            query=[("key", key)],
            is_repeatable=True,
            is_for_any=True,
        )
        return msgspec.json.encode(await self._transport.send(call))
