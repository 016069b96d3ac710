"""One connection to Redis with nothing around it: commands go out as bytes, answers come back."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

import hiredis

from runnel.errors import StoreError

Arg: TypeAlias = str | bytes | int | float
PORT = 6379
CHUNK_BYTES = 1 << 18


class Line:
    """For one caller at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._parser = hiredis.Reader()

    async def call(self, *words: Arg) -> Any:
        return (await self.calls([words]))[0]

    async def calls(self, commands: Sequence[tuple[Arg, ...]]) -> list[Any]:
        """All in one write; raises StoreError for an answer that is an error."""
        packed = b"".join([hiredis.pack_command(each) for each in commands])  # type: ignore[arg-type]  # it takes any length
        self._writer.write(packed)
        await self._writer.drain()
        return [await self._answer() for _ in commands]

    async def _answer(self) -> Any:
        while (answer := self._parser.gets()) is False:
            chunk = await self._reader.read(CHUNK_BYTES)
            if not chunk:
                raise StoreError("Redis has closed the connection of a floor")
            self._parser.feed(chunk)
        if isinstance(answer, hiredis.ReplyError):
            raise StoreError(f"Redis refused what a floor asked: {answer}")
        return answer

    async def load(self, name: str) -> str:
        """A script of this folder, by the name that EVALSHA takes from then on."""
        text = Path(__file__).with_name(f"{name}.lua").read_text(encoding="utf-8")
        sha: bytes = await self.call("SCRIPT", "LOAD", text)
        return sha.decode()


@asynccontextmanager
async def open_line(url: str) -> AsyncIterator[Line]:
    parts = urlsplit(url)
    if parts.scheme == "unix":
        reader, writer = await asyncio.open_unix_connection(parts.path)
    else:
        host, port = parts.hostname or "localhost", parts.port or PORT
        is_safe = True if parts.scheme == "rediss" else None
        reader, writer = await asyncio.open_connection(host, port, ssl=is_safe)
    try:
        line = Line(reader, writer)
        if parts.password:
            user = [unquote(parts.username)] if parts.username else []
            await line.call("AUTH", *user, unquote(parts.password))
        database = parts.path.strip("/")
        if parts.scheme != "unix" and database:
            await line.call("SELECT", database)
        yield line
    finally:
        writer.close()
        with suppress(OSError):  # a server that is gone
            await writer.wait_closed()
