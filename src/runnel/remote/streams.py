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
    async for line in _lines(answer):
        name, _, value = line.partition(":")
        if line:
            fields[name] = value.removeprefix(" ")
        elif "event" in fields:
            data = msgspec.json.decode(fields.get("data", "null"))
            yield Message(fields.get("id", ""), fields["event"], data)
            fields = {}


async def _lines(answer: httpx.Response) -> AsyncIterator[str]:
    """Those that have ended. Not httpx's own: for it, U+0085, U+2028 and U+2029 end a line too, and
    JSON may have them inside a text.
    """
    rest: list[bytes] = []
    async for data in answer.aiter_bytes():
        first, *others = data.split(b"\n")
        rest.append(first)
        for each in others:
            yield b"".join(rest).removesuffix(b"\r").decode(errors="replace")
            rest = [each]
