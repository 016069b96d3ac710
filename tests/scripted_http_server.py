"""A real HTTP server on loopback that sends bytes which the test has chosen.

The answers may be correct, slow, broken or malicious.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

LOOPBACK = "127.0.0.1"
REASONS = {200: "OK", 302: "Found", 404: "Not Found", 429: "Too Many Requests"}


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int


@dataclass(frozen=True, slots=True)
class ScriptedAnswer:
    """`is_last` closes the connection after the answer; `hangs` keeps it open and sends no more."""

    data: bytes = b""
    is_last: bool = False
    hangs: bool = False


def make_answer(status: int = 200, body: bytes = b"", **headers: str) -> ScriptedAnswer:
    """Returns a well-formed answer; the keyword `content_type` sets the header Content-Type."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    lines = {"content-length": str(len(body)), **named}
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    head = f"HTTP/1.1 {status} {REASONS.get(status, 'Whatever')}\r\n{text}\r\n"
    return ScriptedAnswer(head.encode() + body)


def make_json_answer(body: bytes, status: int = 200, **headers: str) -> ScriptedAnswer:
    return make_answer(status, body, content_type="application/json", **headers)


@dataclass
class ScriptedServer:
    """Sends the answers of a path one after another, then repeats the last one."""

    port: int = 0
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    client_left: asyncio.Event = field(default_factory=asyncio.Event)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _answers: dict[str, list[ScriptedAnswer]] = field(default_factory=lambda: defaultdict(list))

    @property
    def open_connections(self) -> int:
        return len(self._writers)

    def url(self, path: str = "/", *, host: str = LOOPBACK) -> str:
        return f"http://{host}:{self.port}{path}"

    def says(self, path: str, *answers: ScriptedAnswer) -> str:
        """Sets the answers of a path and returns its URL."""
        self._answers[path] = list(answers)
        return self.url(path)

    def send_more(self, data: bytes) -> None:
        """Sends `data` on all open connections."""
        for writer in self._writers:
            writer.write(data)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        self._writers.add(writer)
        try:
            while (request := await _read_request(reader, number)) is not None:
                self.requests.append(request)
                answer = self._next(request.target.partition("?")[0])
                writer.write(answer.data)
                await writer.drain()
                if answer.hangs:
                    await reader.read()  # until the client closes the connection
                    self.client_left.set()
                if answer.is_last or answer.hangs:
                    return
        except ConnectionError:
            self.client_left.set()
        finally:
            writer.close()
            await writer.wait_closed()
            self._writers.discard(writer)

    def _next(self, path: str) -> ScriptedAnswer:
        answers = self._answers.get(path) or [make_answer(404, b"no such thing")]
        return answers.pop(0) if len(answers) > 1 else answers[0]


@asynccontextmanager
async def open_scripted_server() -> AsyncIterator[ScriptedServer]:
    scripted = ScriptedServer()
    server = await asyncio.start_server(scripted.serve, LOOPBACK, 0)
    scripted.port = server.sockets[0].getsockname()[1]
    try:
        yield scripted
    finally:
        server.close()


async def _read_request(reader: asyncio.StreamReader, connection: int) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, target, headers, body, connection)
