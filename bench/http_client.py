"""A small HTTP client on bare sockets: httpx takes as long for a request as the server does."""

import asyncio
from typing import Any

import msgspec

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class WrongAnswerError(Exception):
    """Not a good status."""


class BareHttpClient:
    """Keeps its connections; as many as there are requests at once."""

    def __init__(self, url: str) -> None:
        self.host, _, port = url.removeprefix("http://").partition(":")
        self.port = int(port)
        self._idle_connections: list[Connection] = []

    async def request(self, method: str, path: str, body: object = None) -> Any:
        """What the body of the answer says; raises WrongAnswerError, OSError."""
        connection = (
            self._idle_connections.pop() if self._idle_connections else await self.connect()
        )
        reader, writer = connection
        data = b"" if body is None else msgspec.json.encode(body)
        writer.write(self.build_head(method, path, len(data)) + data)
        head = await reader.readuntil(b"\r\n\r\n")
        _, _, rest = head.lower().partition(b"content-length: ")
        answer = await reader.readexactly(int(rest.partition(b"\r\n")[0]))
        self._idle_connections.append(connection)
        if not head.startswith(b"HTTP/1.1 2"):
            raise WrongAnswerError(f"{method} {path}: {answer.decode()}")
        return msgspec.json.decode(answer)

    async def connect(self) -> Connection:
        return await asyncio.open_connection(self.host, self.port)

    def build_head(self, method: str, path: str, size: int = 0) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.host}:{self.port}"]
        if size:
            lines += ["Content-Type: application/json", f"Content-Length: {size}"]
        return "\r\n".join([*lines, "", ""]).encode()

    def close(self) -> None:
        for _, writer in self._idle_connections:
            writer.close()
