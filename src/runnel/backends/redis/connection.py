"""One connection to a Redis server, and the parser of Redis URLs.

A connection sends commands without waiting for earlier replies. Replies arrive in the order of the
commands.
"""

import asyncio
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

import hiredis
import msgspec

from runnel.errors import InputError

Arg: TypeAlias = str | bytes | int | float
Reply: TypeAlias = Any
"""A reply of Redis, whose type depends on the command; an error reply is a `hiredis.ReplyError`."""

# The size of one read; a longer reply takes several reads.
BUFFER_BYTES = 65_536
_INCOMPLETE = object()
_MESSAGE = b"message"


class RedisConnectionError(Exception):
    """Raised if the connection can't be opened or was lost.

    The server may or may not have executed the pending commands.
    """


def pack_command(args: tuple[Arg, ...]) -> bytes:
    packed: bytes = hiredis.pack_command(args)  # type: ignore[arg-type]  # the function accepts a tuple of any length
    return packed


class RedisConnection(asyncio.BufferedProtocol):
    """One connection to a server; `run_id` identifies the server process since its last start.

    If a caller is cancelled, its reply is discarded on arrival, and later callers still get their
    replies. If the server does not reply within `call_timeout_s`, the connection is closed and all
    pending commands fail.
    """

    def __init__(self, call_timeout_s: float) -> None:
        self.run_id = ""
        self.is_open = False
        self.on_reply: Callable[[], None] | None = None
        """Called once per pending command, when its reply arrives or when the connection is
        lost.
        """
        self.on_message: Callable[[bytes, bytes], None] | None = None
        """Called with the channel and the payload of each message after a subscription."""
        self._call_timeout_s = call_timeout_s
        self._loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        """Done when the connection is closed completely."""
        self._transport: asyncio.Transport | None = None
        # The buffer is a memoryview, because asyncio's TLS writes into slices of it, and a slice of
        # a bytearray would be a copy.
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._reader = hiredis.Reader(notEnoughData=_INCOMPLETE)
        self._pending: deque[tuple[asyncio.Future[Reply], float]] = deque()
        self._unsent: list[bytes] = []
        self._timeout_handle: asyncio.TimerHandle | None = None

    def send_command(self, packed: bytes, *, wait_s: float = 0.0) -> asyncio.Future[Reply]:
        """Sends the command and returns a future of its reply.

        Raises RedisConnectionError and sends nothing if the connection is not open.
        """
        if self._transport is None or not self.is_open:
            raise RedisConnectionError("the connection is closed")
        reply: asyncio.Future[Reply] = self._loop.create_future()
        due = self._loop.time() + self._call_timeout_s + wait_s
        self._pending.append((reply, due))
        if self._timeout_handle is None:
            self._timeout_handle = self._loop.call_at(due, self._check_timeout)
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(packed)
        return reply

    def close(self) -> None:
        """Closes the connection at once; pending commands fail with RedisConnectionError."""
        self._fail("this process closed the connection")

    # -- callbacks of asyncio -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # asyncio passes a stream transport
        self.is_open = True

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        reader, pending, on_reply = self._reader, self._pending, self.on_reply
        reader.feed(self._buffer, 0, nbytes)  # type: ignore[arg-type]  # `feed` accepts any buffer
        try:
            while (reply := reader.gets()) is not _INCOMPLETE:
                if self.on_message is not None and isinstance(reply, list) and reply[0] == _MESSAGE:
                    self.on_message(reply[1], reply[2])
                    continue
                if not pending:
                    self._fail(f"the server sent a reply without a command: {reply}")
                    return
                future, _ = pending.popleft()
                if not future.done():
                    future.set_result(reply)
                if on_reply is not None:
                    on_reply()
        except hiredis.ProtocolError as error:
            self._fail(f"the server does not speak the Redis protocol: {error}")

    def eof_received(self) -> None:
        self._fail("the server closed the connection")

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("the connection was lost" if exc is None else f"the connection was lost: {exc}")
        if not self.closed.done():
            self.closed.set_result(None)

    def _flush(self) -> None:
        """Sends all commands of one iteration of the event loop with one write."""
        unsent, self._unsent = self._unsent, []
        if self._transport is not None and self.is_open:
            self._transport.write(unsent[0] if len(unsent) == 1 else b"".join(unsent))

    # -- timeout --------------------------------------------------------------------------------

    def _check_timeout(self) -> None:
        """Closes the connection if the reply to the oldest command is overdue.

        One timer per `call_timeout_s` serves all commands.
        """
        self._timeout_handle = None
        if not self._pending:
            return
        due = self._pending[0][1]
        if self._loop.time() >= due:
            self._fail(f"no reply within {self._call_timeout_s:g} s")
        else:
            self._timeout_handle = self._loop.call_at(due, self._check_timeout)

    def _fail(self, reason: str) -> None:
        self.is_open = False
        if self._timeout_handle is not None:
            self._timeout_handle.cancel()
            self._timeout_handle = None
        if self._transport is not None:
            self._transport.abort()
        pending, self._pending = self._pending, deque()
        for future, _ in pending:
            if not future.done():
                future.set_exception(RedisConnectionError(reason))
            if self.on_reply is not None:
                self.on_reply()


# -- TLS, from the options of the URL -----------------------------------------------------------

_TLS_PREFIX = "ssl_"
_CERT_REQS = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_FALSE_VALUES = frozenset({"", "0", "f", "false", "n", "no"})


class TlsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The TLS options of a Redis URL, where each option name has the prefix `ssl_`.

    The certificate of the server is verified unless `cert_reqs` is `none`.
    """

    cert_reqs: str = "required"
    check_hostname: str = "true"
    ca_certs: str | None = None
    ca_path: str | None = None
    ca_data: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    password: str | None = None
    min_version: str | None = None
    ciphers: str | None = None

    def __post_init__(self) -> None:
        """Raises ValueError if an option has an invalid value."""
        if self.cert_reqs not in _CERT_REQS:
            raise ValueError(f"{_TLS_PREFIX}cert_reqs must be {' or '.join(_CERT_REQS)}")
        if self.min_version is not None:
            ssl.TLSVersion(int(self.min_version))


TLS_OPTION_NAMES = frozenset(_TLS_PREFIX + name for name in TlsOptions.__struct_fields__)


def parse_tls_options(options: Mapping[str, str]) -> TlsOptions:
    """Returns the TLS options among the options of a URL; raises ValueError for an
    invalid value.
    """
    named = {
        name.removeprefix(_TLS_PREFIX): options[name] for name in TLS_OPTION_NAMES & options.keys()
    }
    return TlsOptions(**named)


@lru_cache(maxsize=8)
def make_tls_context(tls: TlsOptions) -> ssl.SSLContext:
    """Returns the TLS context. The result is cached, because building it reads files.

    Raises OSError or ValueError if the certificate files can't be used.
    """
    context = ssl.create_default_context()
    verify = _CERT_REQS[tls.cert_reqs]
    is_checked = verify is not ssl.CERT_NONE and tls.check_hostname.lower() not in _FALSE_VALUES
    context.check_hostname = is_checked
    context.verify_mode = verify
    if tls.certfile or tls.keyfile:
        context.load_cert_chain(tls.certfile or "", tls.keyfile, tls.password)
    if tls.ca_certs or tls.ca_path or tls.ca_data:
        context.load_verify_locations(tls.ca_certs, tls.ca_path, tls.ca_data)
    if tls.min_version is not None:
        context.minimum_version = ssl.TLSVersion(int(tls.min_version))
    if tls.ciphers is not None:
        context.set_ciphers(tls.ciphers)
    return context


# -- address -----------------------------------------------------------------------------------

PORT_DEFAULT = 6379
# With these keepalive options, a dead server is detected after one minute instead of two hours.
KEEPALIVE_OPTIONS = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
# The options that a URL can have. All other options are refused: Runnel sets them itself, or they
# would change the format of replies.
_URL_OPTIONS = frozenset({"db", "username", "password", "client_name", "socket_keepalive"})


class RedisAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a Redis server; `path` is a Unix socket and replaces `host` and `port`."""

    host: str = "localhost"
    port: int = PORT_DEFAULT
    path: str | None = None
    db: int = 0
    username: str | None = None
    password: str | None = None
    client_name: str | None = None
    has_keepalive: bool = True
    tls: TlsOptions | None = None

    def __str__(self) -> str:
        """Returns the address without user and password."""
        if self.path is not None:
            return f"{self.path}/{self.db}"
        host = self.host.lower()
        name = f"[{host}]" if ":" in host else host
        return f"{name}:{self.port}/{self.db}"

    async def connect(self, connection: RedisConnection, *, timeout_s: float) -> None:
        """Connects to the server, and reads its run id.

        Raises RedisConnectionError if the server can't be reached, and hiredis.ReplyError if it
        refuses the handshake.
        """
        is_connected = False
        try:
            async with asyncio.timeout(timeout_s):
                await self._open(connection)
                await self._handshake(connection)
            is_connected = True
        except TimeoutError as error:
            raise RedisConnectionError(f"no connection to {self} within {timeout_s:g} s") from error
        except (OSError, ValueError) as error:
            raise RedisConnectionError(_describe_error(error, str(self))) from error
        finally:
            if not is_connected:
                connection.close()

    async def _open(self, connection: RedisConnection) -> None:
        loop = asyncio.get_running_loop()
        if self.path is not None:
            await loop.create_unix_connection(lambda: connection, self.path)
            return
        context = None if self.tls is None else make_tls_context(self.tls)
        transport, _ = await loop.create_connection(
            lambda: connection, self.host, self.port, ssl=context
        )
        if self.has_keepalive:
            _enable_keepalive(transport.get_extra_info("socket"))

    async def _handshake(self, connection: RedisConnection) -> None:
        """Sends all commands of the handshake at once; raises the first error, which explains the
        later ones.
        """
        steps: list[tuple[str | int, ...]] = []
        if self.password is not None:
            username = () if self.username is None else (self.username,)
            steps.append(("AUTH", *username, self.password))
        if self.client_name is not None:
            steps.append(("CLIENT", "SETNAME", self.client_name))
        if self.db:
            steps.append(("SELECT", self.db))
        steps.append(("INFO", "server"))
        replies: list[Reply] = await asyncio.gather(
            *[connection.send_command(pack_command(step)) for step in steps]
        )
        for reply in replies:
            if isinstance(reply, hiredis.ReplyError):
                raise reply
        server_info = replies[-1]
        if not isinstance(server_info, bytes):
            raise RedisConnectionError(
                f"the server at {self} is not a Redis server: its reply to INFO is not a text"
            )
        connection.run_id = server_info.partition(b"run_id:")[2].split(b"\r", 1)[0].decode()


def parse_address(url: str) -> RedisAddress:
    """Parses the URL of a Redis server.

    Raises InputError if the URL is not valid. The message omits the URL, because any part of it can
    be a password.
    """
    try:
        parts = urlsplit(url)
        query = parse_qs(parts.query, strict_parsing=True) if parts.query else {}
        options = {name: values[0] for name, values in query.items()}
        unknown = [name for name in options if name not in _URL_OPTIONS | TLS_OPTION_NAMES]
        if not unknown:
            return _build_address(parts, options)
    except ValueError:
        raise InputError(
            "expected the URL of a Redis server, such as redis://host:6379/0, got another text"
        ) from None
    raise InputError(
        f"the URL of a Redis server may have the options client_name, socket_keepalive and "
        f"{', '.join(sorted(TLS_OPTION_NAMES))}, got '{unknown[0]}'; set the timeout with "
        "REDIS_SOCKET_TIMEOUT"
    )


def _build_address(parts: SplitResult, options: Mapping[str, str]) -> RedisAddress:
    """Builds the address; raises ValueError if the URL is not valid."""
    path = unquote(parts.path)
    is_local = parts.scheme == "unix"
    if parts.scheme not in {"redis", "rediss", "unix"} or (is_local and not path):
        raise ValueError("not the URL of a Redis server")
    if parts.fragment or (not is_local and "@" in path):
        raise ValueError("the password is not quoted, so the user name was read as the host")
    return RedisAddress(
        host=unquote(parts.hostname or RedisAddress().host),
        port=parts.port or PORT_DEFAULT,
        path=path if is_local else None,
        db=_parse_db(options.get("db", "" if is_local else path.strip("/"))),
        username=_unquote_optional(parts.username) or options.get("username"),
        password=_unquote_optional(parts.password) or options.get("password"),
        client_name=options.get("client_name"),
        has_keepalive=options.get("socket_keepalive", "true").lower() not in _FALSE_VALUES,
        tls=parse_tls_options(options) if parts.scheme == "rediss" else None,
    )


def _parse_db(text: str) -> int:
    """Parses a database number as in redis://host:6379/3; raises ValueError for any other text."""
    if text and not text.isdecimal():
        raise ValueError("not a database number")
    return int(text or 0)


def _unquote_optional(quoted: str | None) -> str | None:
    return unquote(quoted) if quoted else None


def _enable_keepalive(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE_OPTIONS.items():
        if hasattr(socket, name):  # not every operating system has these options
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _describe_error(error: OSError | ValueError, address: str) -> str:
    """Describes a connection error with the text of the operating system.

    The message of asyncio is "Connect call failed" for every cause.
    """
    if not isinstance(error, OSError) or error.errno is None:
        return f"can't connect to {address}: {error}"
    is_plain = isinstance(error, ConnectionError)
    reason = os.strerror(error.errno) if is_plain else error.strerror
    return f"Error {error.errno} connecting to {address}: {reason}"
