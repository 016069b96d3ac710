"""A relay to a Redis server that tests can watch, block and cut: over TCP, TLS or a socket file."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from runnel.app.private_servers.redis import RedisServer
from runnel.app.private_servers.server import LOOPBACK

PIECE_BYTES = 65_536


class RedisRelay:
    """Forwards connections to `server_port`.

    `asked` holds all bytes that were sent to the server. Replies pass only while `is_clear` is set.
    """

    def __init__(self, port: int) -> None:
        self.port = 0
        self.connections = 0
        self.asked = b""
        self.is_clear = asyncio.Event()
        self.is_clear.set()
        self.server_port = port
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None] | None] = set()

    @property
    def is_idle(self) -> bool:
        """Returns whether no connection is open."""
        return not self._writers

    def cut(self) -> None:
        """Closes all open connections."""
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        self._serving.add(task)
        server_reader, server_writer = await asyncio.open_connection(LOOPBACK, self.server_port)
        ways = {writer, server_writer}
        self._writers |= ways
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._ask(reader, server_writer))
                group.create_task(self._answer(server_reader, writer))
        except* ConnectionError:
            self.cut()
        finally:
            self._writers -= ways
            writer.close()
            server_writer.close()
            self._serving.discard(task)

    async def end(self) -> None:
        self.is_clear.set()
        self.cut()
        serving = [task for task in self._serving if task is not None]
        if serving:
            await asyncio.wait(serving)

    async def _ask(self, reader: asyncio.StreamReader, server_writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(PIECE_BYTES):
            self.asked += data
            server_writer.write(data)
        server_writer.write_eof()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(PIECE_BYTES):
            await self.is_clear.wait()
            writer.write(data)
        writer.close()


@asynccontextmanager
async def open_relay(
    server: RedisServer, *, path: Path | None = None, certificate: Path | None = None
) -> AsyncIterator[RedisRelay]:
    """Opens a relay at a socket file with `path`, else at a port; over TLS with a `certificate`."""
    relay = RedisRelay(server.port)
    if path is not None:
        listening = await asyncio.start_unix_server(relay.serve, path)
    else:
        context = None
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
        listening = await asyncio.start_server(relay.serve, LOOPBACK, 0, ssl=context)
        relay.port = listening.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        listening.close()
        await relay.end()
