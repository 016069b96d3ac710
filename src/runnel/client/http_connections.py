"""Connections of the HTTP client: HTTP/1.1 on asyncio streams, as a transport of httpx.

The pool of httpx looks at all connections for each request, and asks the system about each idle
one. It also searches for a package that is not installed. With 32 callers, that took 6 ms of
processor time per request; this pool takes 0.1 ms. It does not know proxies: if the environment
names a proxy, the client uses the pool of httpx.
"""

import asyncio
import re
import select
import ssl
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, contextmanager, suppress
from http import HTTPStatus

import httpx

from runnel.ports.clock import Clock

# A connection is closed if it was idle for this time, as httpx does. A server may close it later.
IDLE_S_MAX = 5.0
# A connection that was idle for a shorter time is not asked whether the server has closed it.
UNCHECKED_IDLE_S = 0.5
# The delay of httpx before the next address of a host is tried.
NEXT_ADDRESS_DELAY_S = 0.25
# A body of at most this size is read at once. A larger one is read as the caller iterates.
WHOLE_BODY_BYTES_MAX = 65_536
HEAD_BYTES_MAX = 131_072
CHUNK_BYTES = 65_536
_FIRST_FINAL_STATUS = HTTPStatus.OK
_STATUSES_WITHOUT_BODY = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: (.*))?")
_ERRNO = re.compile(r"\[Errno (\d+)\]")


class HttpConnectionPool(httpx.AsyncBaseTransport):
    """Keeps the connections to one server open, at most `idle_max` of them while idle.

    The connection that was used last is used first, so that the others can expire. A request waits
    while `connections_max` connections are in use.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        connections_max: int,
        idle_max: int,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._clock = clock
        self._ssl_context = ssl_context
        self._idle_max = idle_max
        self._idle: deque[_Connection] = deque()
        self._free = asyncio.Semaphore(connections_max)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        timeouts = request.extensions["timeout"]
        if self._free.locked():
            with _limit(httpx.PoolTimeout, request):
                async with self._clock.timeout(timeouts["pool"]):
                    await self._free.acquire()
        else:
            await self._free.acquire()  # does not wait
        try:
            connection = self._take_idle() or await self._connect(request, timeouts["connect"])
        except BaseException:
            self._free.release()
            raise
        try:
            return await self._exchange(connection, request, timeouts["read"])
        except BaseException:
            self.release(connection, is_reusable=False)
            raise

    async def aclose(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _take_idle(self) -> "_Connection | None":
        now = self._clock.monotonic()
        while self._idle and self._idle[0].idle_since < now - IDLE_S_MAX:
            self._idle.popleft().close()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable(now):
                return connection
            connection.close()
        return None

    async def _connect(self, request: httpx.Request, timeout_s: float) -> "_Connection":
        url = request.url
        is_encrypted = url.scheme == "https"
        port = url.port or (443 if is_encrypted else 80)
        try:
            with _limit(httpx.ConnectTimeout, request):
                async with self._clock.timeout(timeout_s):
                    reader, writer = await asyncio.open_connection(
                        url.host,
                        port,
                        ssl=self._ssl_context if is_encrypted else None,
                        limit=HEAD_BYTES_MAX,
                        happy_eyeballs_delay=NEXT_ADDRESS_DELAY_S,
                    )
        except OSError as error:
            raise httpx.ConnectError(str(error), request=request) from _find_cause(error)
        return _Connection(reader, writer)

    async def _exchange(
        self, connection: "_Connection", request: httpx.Request, read_s: float
    ) -> httpx.Response:
        body = await request.aread()
        with _translate_errors(request):
            connection.writer.write(_encode_head(request) + body)
            async with self._clock.timeout(read_s):
                head = await connection.read_head()
                length = head.content_length
                is_small = length is not None and length <= WHOLE_BODY_BYTES_MAX
                content = await connection.reader.readexactly(length or 0) if is_small else None
        if content is None:
            parts = self._read_parts(connection, head, request, read_s)
            return head.build_response(stream=_BodyStream(self, connection, parts, head))
        response = head.build_response(content=content)
        self.release(connection, is_reusable=head.keeps_open)
        return response

    async def _read_parts(
        self,
        connection: "_Connection",
        head: "_ResponseHead",
        request: httpx.Request,
        read_s: float,
    ) -> AsyncGenerator[bytes, None]:
        """Yields the parts of a body; `read_s` is the limit of the wait for one part."""
        remaining = head.content_length
        while remaining != 0:
            with _translate_errors(request):
                async with self._clock.timeout(read_s):
                    part = await _read_part(
                        connection.reader, remaining, is_chunked=head.is_chunked
                    )
            if not part:
                return
            yield part
            if remaining is not None:
                remaining -= len(part)

    def release(self, connection: "_Connection", *, is_reusable: bool) -> None:
        if is_reusable and len(self._idle) < self._idle_max:
            connection.idle_since = self._clock.monotonic()
            self._idle.append(connection)
        else:
            connection.close()
        self._free.release()


class _ResponseHead:
    """The status and the headers of a response, and how its body ends."""

    def __init__(self, data: bytes) -> None:
        """Raises httpx.RemoteProtocolError if the data is not the head of an HTTP/1.1 response."""
        first, *lines = data[:-4].split(b"\r\n")
        match = _STATUS_LINE.fullmatch(first)
        if match is None:
            raise httpx.RemoteProtocolError("the response does not begin with an HTTP/1.1 status")
        self.status = int(match[2])
        self._reason = match[3] or b""
        self._headers = [_parse_header(line) for line in lines]
        values = {name.lower(): value.lower() for name, value in self._headers}
        self.is_chunked = values.get(b"transfer-encoding", b"").endswith(b"chunked")
        self.keeps_open = match[1] == b"1" and b"close" not in values.get(b"connection", b"")
        self.content_length = self._find_content_length(values.get(b"content-length"))

    def _find_content_length(self, value: bytes | None) -> int | None:
        """Returns None if the body is chunked, or ends with the connection."""
        if self.status in _STATUSES_WITHOUT_BODY:
            return 0
        if self.is_chunked or value is None:
            return None
        if not value.isdigit():
            raise httpx.RemoteProtocolError("the Content-Length of the response is not a number")
        return int(value)

    def build_response(
        self, *, content: bytes | None = None, stream: "_BodyStream | None" = None
    ) -> httpx.Response:
        return httpx.Response(
            self.status,
            headers=self._headers,
            content=content,
            stream=stream,
            extensions={"http_version": b"HTTP/1.1", "reason_phrase": self._reason},
        )


def _parse_header(line: bytes) -> tuple[bytes, bytes]:
    name, colon, value = line.partition(b":")
    if not colon or not name or name != name.strip():
        raise httpx.RemoteProtocolError("the response has a header without a name")
    return name, value.strip()


class _Connection:
    """An open connection, which one request at a time uses."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.idle_since = 0.0

    def is_usable(self, now: float) -> bool:
        """Returns False if the server has closed the idle connection, or has sent anything."""
        if self.reader.at_eof() or self.writer.is_closing():
            return False
        return now - self.idle_since < UNCHECKED_IDLE_S or not self._has_unread_bytes()

    def _has_unread_bytes(self) -> bool:
        """Asks the system, because the event loop may not have run since the bytes arrived."""
        poll = select.poll()
        poll.register(self.writer.get_extra_info("socket"), select.POLLIN)
        return bool(poll.poll(0))

    async def read_head(self) -> _ResponseHead:
        """Skips informational responses, such as 103 Early Hints."""
        while True:
            head = _ResponseHead(await self.reader.readuntil(b"\r\n\r\n"))
            if head.status >= _FIRST_FINAL_STATUS:
                return head

    def close(self) -> None:
        with suppress(RuntimeError):  # the event loop of the connection may be closed already
            self.writer.close()


class _BodyStream(httpx.AsyncByteStream):
    """The body of a response that is read in parts; closing it gives the connection back."""

    def __init__(
        self,
        pool: HttpConnectionPool,
        connection: _Connection,
        parts: AsyncGenerator[bytes, None],
        head: _ResponseHead,
    ) -> None:
        self._pool = pool
        self._connection: _Connection | None = connection
        self._parts = parts
        self._keeps_open = head.keeps_open and (head.is_chunked or head.content_length is not None)
        self._is_complete = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async with aclosing(self._parts):
            async for part in self._parts:
                yield part
        self._is_complete = True

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            is_reusable = self._is_complete and self._keeps_open
            self._pool.release(connection, is_reusable=is_reusable)


async def _read_part(
    reader: asyncio.StreamReader, remaining: int | None, *, is_chunked: bool
) -> bytes:
    """Returns the next part of a body; b"" at its end. `remaining` is None without a length."""
    if is_chunked:
        return await _read_chunk(reader)
    if remaining is None:
        return await reader.read(CHUNK_BYTES)
    part = await reader.read(min(CHUNK_BYTES, remaining))
    if not part:
        raise asyncio.IncompleteReadError(part, remaining)
    return part


async def _read_chunk(reader: asyncio.StreamReader) -> bytes:
    """Returns the next chunk; b"" after the last one, whose trailer is read and ignored."""
    size_text = (await reader.readuntil(b"\r\n")).partition(b";")[0].strip()
    try:
        size = int(size_text, 16)
    except ValueError:
        raise httpx.RemoteProtocolError("the size of a chunk is not a number") from None
    if not size:
        while await reader.readuntil(b"\r\n") != b"\r\n":
            pass
        return b""
    return (await reader.readexactly(size + 2))[:-2]


def _encode_head(request: httpx.Request) -> bytes:
    lines = [request.method.encode() + b" " + request.url.raw_path + b" HTTP/1.1"]
    for name, value in request.headers.raw:
        if b"\n" in value or b"\r" in value:
            text = f"the header {name.decode()} has a line break"
            raise httpx.LocalProtocolError(text, request=request)
        lines.append(name + b": " + value)
    return b"\r\n".join([*lines, b"", b""])


@contextmanager
def _limit(kind: type[httpx.TimeoutException], request: httpx.Request) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise kind("", request=request) from error


@contextmanager
def _translate_errors(request: httpx.Request) -> Iterator[None]:
    """Raises the errors of an open connection as those of httpx."""
    try:
        with _limit(httpx.ReadTimeout, request):
            yield
    except asyncio.IncompleteReadError as error:
        text = "the server closed the connection before the end of its response"
        raise httpx.RemoteProtocolError(text, request=request) from error
    except asyncio.LimitOverrunError as error:
        text = f"the head of the response has more than {HEAD_BYTES_MAX} bytes"
        raise httpx.RemoteProtocolError(text, request=request) from error
    except OSError as error:
        raise httpx.ReadError(str(error), request=request) from error


def _find_cause(error: OSError) -> OSError:
    """Returns an error with the number of the first one, if each address of a host failed.

    asyncio then raises an error without a number, whose text lists all errors.
    """
    match = None if error.errno is not None else _ERRNO.search(str(error))
    return error if match is None else OSError(int(match[1]), str(error))
