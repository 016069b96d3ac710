"""One connection to a Redis server, and the address that its URL names.

Commands are sent at once; replies come in the same order.
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
"""What Redis answers: its shape is that of the command. A refusal is a `hiredis.ReplyError`."""

# What is read at once: a longer answer takes several turns.
BUFFER_BYTES = 65_536
_INCOMPLETE = object()
_MESSAGE = b"message"


class RedisConnectionError(Exception):
    """The connection can't be made, or is lost; what was asked may have been done or not."""


def pack_command(args: tuple[Arg, ...]) -> bytes:
    packed: bytes = hiredis.pack_command(args)  # type: ignore[arg-type]  # it takes any length
    return packed


class RedisConnection(asyncio.BufferedProtocol):
    """`run_id` names the life of the server that it leads to.

    Who asks may give up: its answer is thrown away when it comes, and those behind it get theirs.
    A server that leaves a question without an answer for `call_timeout_s` has lost the connection,
    and with it all that was asked.
    """

    def __init__(self, call_timeout_s: float) -> None:
        self.run_id = ""
        self.is_open = False
        self.on_reply: Callable[[], None] | None = None
        """Called once for each answer, and for each that will never come."""
        self.on_message: Callable[[bytes, bytes], None] | None = None
        """Called with the channel and the payload of each message, once it has subscribed."""
        self._call_timeout_s = call_timeout_s
        self._loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        """Done when nothing of the connection is left."""
        self._transport: asyncio.Transport | None = None
        # A view: TLS of asyncio writes into a part of it, and a part of a bytearray is a copy.
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._reader = hiredis.Reader(notEnoughData=_INCOMPLETE)
        self._pending: deque[tuple[asyncio.Future[Reply], float]] = deque()
        self._unsent: list[bytes] = []
        self._timeout_handle: asyncio.TimerHandle | None = None

    def send_command(self, packed: bytes, *, wait_s: float = 0.0) -> asyncio.Future[Reply]:
        """Raises RedisConnectionError, and has sent nothing, when the connection is not open."""
        if self._transport is None or not self.is_open:
            raise RedisConnectionError("the connection is closed")
        answer: asyncio.Future[Reply] = self._loop.create_future()
        due = self._loop.time() + self._call_timeout_s + wait_s
        self._pending.append((answer, due))
        if self._timeout_handle is None:
            self._timeout_handle = self._loop.call_at(due, self._check_timeout)
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(packed)
        return answer

    def close(self) -> None:
        """At once: whoever waits for an answer gets a RedisConnectionError."""
        self._fail("the connection was closed here")

    # -- what asyncio calls --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # that of a stream, as was asked for
        self.is_open = True

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        reader, pending, on_reply = self._reader, self._pending, self.on_reply
        reader.feed(self._buffer, 0, nbytes)  # type: ignore[arg-type]  # it takes any buffer
        try:
            while (reply := reader.gets()) is not _INCOMPLETE:
                if self.on_message is not None and isinstance(reply, list) and reply[0] == _MESSAGE:
                    self.on_message(reply[1], reply[2])
                    continue
                if not pending:
                    self._fail(f"the server said what nobody had asked for: {reply}")
                    return
                answer, _ = pending.popleft()
                if not answer.done():
                    answer.set_result(reply)
                if on_reply is not None:
                    on_reply()
        except hiredis.ProtocolError as error:
            self._fail(f"what answers there is no Redis: {error}")

    def eof_received(self) -> None:
        self._fail("the server closed the connection")

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("the connection was lost" if exc is None else f"the connection was lost: {exc}")
        if not self.closed.done():
            self.closed.set_result(None)

    def _flush(self) -> None:
        """What was asked in one turn of the loop goes together: it is read and answered so too."""
        unsent, self._unsent = self._unsent, []
        if self._transport is not None and self.is_open:
            self._transport.write(unsent[0] if len(unsent) == 1 else b"".join(unsent))

    # -- patience ------------------------------------------------------------------------------

    def _check_timeout(self) -> None:
        """One alarm for all calls: it costs a timer per `call_timeout_s`, not one per call."""
        self._timeout_handle = None
        if not self._pending:
            return
        due = self._pending[0][1]
        if self._loop.time() >= due:
            self._fail(f"no answer within {self._call_timeout_s:g} s")
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
        for answer, _ in pending:
            if not answer.done():
                answer.set_exception(RedisConnectionError(reason))
            if self.on_reply is not None:
                self.on_reply()


# -- TLS, as the options of the URL say --------------------------------------------------------

_TLS_PREFIX = "ssl_"
_CERT_REQS = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_FALSE_VALUES = frozenset({"", "0", "f", "false", "n", "no"})


class TlsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Each is an option of the URL, with `ssl_` before its name; the server is checked, unless
    `cert_reqs` says `none`.
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
        """Raises ValueError."""
        if self.cert_reqs not in _CERT_REQS:
            raise ValueError(f"{_TLS_PREFIX}cert_reqs is {' or '.join(_CERT_REQS)}")
        if self.min_version is not None:
            ssl.TLSVersion(int(self.min_version))


TLS_OPTION_NAMES = frozenset(_TLS_PREFIX + name for name in TlsOptions.__struct_fields__)


def parse_tls_options(options: Mapping[str, str]) -> TlsOptions:
    """Of all options of a URL; raises ValueError for a value that an option can't have."""
    named = {
        name.removeprefix(_TLS_PREFIX): options[name] for name in TLS_OPTION_NAMES & options.keys()
    }
    return TlsOptions(**named)


@lru_cache(maxsize=8)
def make_tls_context(tls: TlsOptions) -> ssl.SSLContext:
    """Made once: it reads files. Raises OSError, or ValueError, for what they can't be used for."""
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
# A peer that is gone without a word is noticed after a minute, not after two hours.
KEEPALIVE_OPTIONS = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
# What a URL may say; all else is set here, or would change what the answers look like.
_URL_OPTIONS = frozenset({"db", "username", "password", "client_name", "socket_keepalive"})


class RedisAddress(msgspec.Struct, frozen=True, kw_only=True):
    """`path` is that of a socket in the file system; without it, `host` and `port` count."""

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
        """Without a user or a password."""
        if self.path is not None:
            return f"{self.path}/{self.db}"
        host = self.host.lower()
        name = f"[{host}]" if ":" in host else host
        return f"{name}:{self.port}/{self.db}"

    async def connect(self, connection: RedisConnection, *, timeout_s: float) -> None:
        """Connects to the server, and reads its run id.

        Raises RedisConnectionError if it can't be reached, and hiredis.ReplyError if it refuses.
        """
        is_in = False
        try:
            async with asyncio.timeout(timeout_s):
                await self._open(connection)
                await self._handshake(connection)
            is_in = True
        except TimeoutError as error:
            raise RedisConnectionError(f"no connection to {self} within {timeout_s:g} s") from error
        except (OSError, ValueError) as error:
            raise RedisConnectionError(_describe_error(error, str(self))) from error
        finally:
            if not is_in:
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
        """All in one go: the first refusal is the reason of those behind it."""
        steps: list[tuple[str | int, ...]] = []
        if self.password is not None:
            username = () if self.username is None else (self.username,)
            steps.append(("AUTH", *username, self.password))
        if self.client_name is not None:
            steps.append(("CLIENT", "SETNAME", self.client_name))
        if self.db:
            steps.append(("SELECT", self.db))
        steps.append(("INFO", "server"))
        answers: list[Reply] = await asyncio.gather(
            *[connection.send_command(pack_command(step)) for step in steps]
        )
        for answer in answers:
            if isinstance(answer, hiredis.ReplyError):
                raise answer
        server_info = answers[-1]
        if not isinstance(server_info, bytes):
            raise RedisConnectionError(
                f"what answers at {self} is no Redis: it does not tell of itself"
            )
        connection.run_id = server_info.partition(b"run_id:")[2].split(b"\r", 1)[0].decode()


def parse_address(url: str) -> RedisAddress:
    """Raises InputError without the text of the URL: a password may be anywhere in it."""
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
        f"{', '.join(sorted(TLS_OPTION_NAMES))}, got '{unknown[0]}'; how long calls may take is "
        "REDIS_SOCKET_TIMEOUT"
    )


def _build_address(parts: SplitResult, options: Mapping[str, str]) -> RedisAddress:
    """Raises ValueError."""
    path = unquote(parts.path)
    is_local = parts.scheme == "unix"
    if parts.scheme not in {"redis", "rediss", "unix"} or (is_local and not path):
        raise ValueError("no URL of a Redis server")
    if parts.fragment or (not is_local and "@" in path):
        raise ValueError("the password is not quoted: what was read as the host is its user")
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
    """As in redis://host:6379/3; raises ValueError for what is no number."""
    if text and not text.isdecimal():
        raise ValueError("no number of a database")
    return int(text or 0)


def _unquote_optional(quoted: str | None) -> str | None:
    return unquote(quoted) if quoted else None


def _enable_keepalive(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE_OPTIONS.items():
        if hasattr(socket, name):  # not every system has them
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _describe_error(error: OSError | ValueError, address: str) -> str:
    """What asyncio says is "Connect call failed", whatever was the matter."""
    if not isinstance(error, OSError) or error.errno is None:
        return f"can't connect to {address}: {error}"
    is_plain = isinstance(error, ConnectionError)
    reason = os.strerror(error.errno) if is_plain else error.strerror
    return f"Error {error.errno} connecting to {address}: {reason}"
