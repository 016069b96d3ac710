"""Server-sent events, as a client reads them."""

from collections.abc import AsyncIterator

import httpx
import msgspec

from runnel.core.json_types import Json


class Message(msgspec.Struct, frozen=True):
    """Whoever comes back with the `id` gets what came behind it."""

    id: str
    event: str
    data: Json


async def messages(answer: httpx.Response) -> AsyncIterator[Message]:
    """Until the server ends the stream; comments, which keep it open, are left out."""
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        name, _, value = line.partition(":")
        if line:
            fields[name] = value.removeprefix(" ")
        elif "event" in fields:
            data = msgspec.json.decode(fields.get("data", "null"))
            yield Message(fields.get("id", ""), fields["event"], data)
            fields = {}
