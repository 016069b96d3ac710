"""One connection to the server: what is asked is sent at once, answers come in the same order."""

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
_NOT_YET = object()
_MESSAGE = b"message"


class LineError(Exception):
    """The connection can't be made, or is lost; what was asked may have been done or not."""


def pack(args: tuple[Arg, ...]) -> bytes:
    packed: bytes = hiredis.pack_command(args)  # type: ignore[arg-type]  # it takes any length
    return packed


class Line(asyncio.BufferedProtocol):
    """`run_id` names the life of the server that it leads to.

    Who asks may give up: its answer is thrown away when it comes, and those behind it get theirs.
    A server that leaves a question without an answer for `call_s` has lost the connection, and
    with it all that was asked.
    """

    def __init__(self, call_s: float) -> None:
        self.run_id = ""
        self.is_open = False
        self.answered: Callable[[], None] | None = None
        """Called once for each answer, and for each that will never come."""
        self.told: Callable[[bytes, bytes], None] | None = None
        """Called with the channel and the words of each message, for a line that has subscribed."""
        self._call_s = call_s
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        """Done when nothing of the connection is left."""
        self._transport: asyncio.Transport | None = None
        # A view: TLS of asyncio writes into a part of it, and a part of a bytearray is a copy.
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._reader = hiredis.Reader(notEnoughData=_NOT_YET)
        self._asked: deque[tuple[asyncio.Future[Reply], float]] = deque()
        self._unsent: list[bytes] = []
        self._alarm: asyncio.TimerHandle | None = None

    def ask(self, packed: bytes, *, wait_s: float = 0.0) -> asyncio.Future[Reply]:
        """Raises LineError, and has sent nothing, when the connection is not open."""
        if self._transport is None or not self.is_open:
            raise LineError("the connection is closed")
        answer: asyncio.Future[Reply] = self._loop.create_future()
        due = self._loop.time() + self._call_s + wait_s
        self._asked.append((answer, due))
        if self._alarm is None:
            self._alarm = self._loop.call_at(due, self._look)
        if not self._unsent:
            self._loop.call_soon(self._send)
        self._unsent.append(packed)
        return answer

    def close(self) -> None:
        """At once: whoever waits for an answer gets a LineError."""
        self._fail("the connection was closed here")

    # -- what asyncio calls --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # that of a stream, as was asked for
        self.is_open = True

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        reader, asked, answered = self._reader, self._asked, self.answered
        reader.feed(self._buffer, 0, nbytes)  # type: ignore[arg-type]  # it takes any buffer
        try:
            while (reply := reader.gets()) is not _NOT_YET:
                if self.told is not None and isinstance(reply, list) and reply[0] == _MESSAGE:
                    self.told(reply[1], reply[2])
                    continue
                if not asked:
                    self._fail(f"the server said what nobody had asked for: {reply}")
                    return
                answer, _ = asked.popleft()
                if not answer.done():
                    answer.set_result(reply)
                if answered is not None:
                    answered()
        except hiredis.ProtocolError as error:
            self._fail(f"what answers there is no Redis: {error}")

    def eof_received(self) -> None:
        self._fail("the server closed the connection")

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("the connection was lost" if exc is None else f"the connection was lost: {exc}")
        if not self.lost.done():
            self.lost.set_result(None)

    def _send(self) -> None:
        """What was asked in one turn of the loop goes together: it is read and answered so too."""
        unsent, self._unsent = self._unsent, []
        if self._transport is not None and self.is_open:
            self._transport.write(unsent[0] if len(unsent) == 1 else b"".join(unsent))

    # -- patience ------------------------------------------------------------------------------

    def _look(self) -> None:
        """One alarm for all that is asked: it costs a timer per `call_s`, not one per call."""
        self._alarm = None
        if not self._asked:
            return
        due = self._asked[0][1]
        if self._loop.time() >= due:
            self._fail(f"no answer within {self._call_s:g} s")
        else:
            self._alarm = self._loop.call_at(due, self._look)

    def _fail(self, why: str) -> None:
        self.is_open = False
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._transport is not None:
            self._transport.abort()
        asked, self._asked = self._asked, deque()
        for answer, _ in asked:
            if not answer.done():
                answer.set_exception(LineError(why))
            if self.answered is not None:
                self.answered()


# Talking to a server over TLS, as the options of its URL say.

_PREFIX = "ssl_"
_CHECKS = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_OFF = frozenset({"", "0", "f", "false", "n", "no"})


class Tls(msgspec.Struct, frozen=True, kw_only=True):
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
        if self.cert_reqs not in _CHECKS:
            raise ValueError(f"{_PREFIX}cert_reqs is {' or '.join(_CHECKS)}")
        if self.min_version is not None:
            ssl.TLSVersion(int(self.min_version))


TLS_OPTIONS = frozenset(_PREFIX + name for name in Tls.__struct_fields__)


def tls_of(options: Mapping[str, str]) -> Tls:
    """Of all options of a URL; raises ValueError for a value that an option can't have."""
    named = {name.removeprefix(_PREFIX): options[name] for name in TLS_OPTIONS & options.keys()}
    return Tls(**named)


@lru_cache(maxsize=8)
def tls_context(tls: Tls) -> ssl.SSLContext:
    """Made once: it reads files. Raises OSError, or ValueError, for what they can't be used for."""
    context = ssl.create_default_context()
    verify = _CHECKS[tls.cert_reqs]
    is_checked = verify is not ssl.CERT_NONE and tls.check_hostname.lower() not in _OFF
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


# Where a server is and how one gets in, as its URL says; and a connection to it.

PORT = 6379
# A peer that is gone without a word is noticed after a minute, not after two hours.
KEPT_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
_FALSE = frozenset({"", "0", "f", "false", "n", "no"})
# What a URL may say; all else is set here, or would change what the answers look like.
_OPTIONS = frozenset({"db", "username", "password", "client_name", "socket_keepalive"})


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """`path` is that of a socket in the file system; without it, `host` and `port` count."""

    host: str = "localhost"
    port: int = PORT
    path: str | None = None
    db: int = 0
    username: str | None = None
    password: str | None = None
    client_name: str | None = None
    is_kept_alive: bool = True
    tls: Tls | None = None

    def __str__(self) -> str:
        """Without a user or a password."""
        if self.path is not None:
            return f"{self.path}/{self.db}"
        host = self.host.lower()
        name = f"[{host}]" if ":" in host else host
        return f"{name}:{self.port}/{self.db}"

    async def connect(self, line: Line, *, within_s: float) -> None:
        """Lets the line lead to the server, and asks which life of it this is.

        Raises LineError when it can't be reached, and hiredis.ReplyError when it refuses.
        """
        is_in = False
        try:
            async with asyncio.timeout(within_s):
                await self._open(line)
                await self._enter(line)
            is_in = True
        except TimeoutError as error:
            raise LineError(f"no connection to {self} within {within_s:g} s") from error
        except (OSError, ValueError) as error:
            raise LineError(_why(error, str(self))) from error
        finally:
            if not is_in:
                line.close()

    async def _open(self, line: Line) -> None:
        loop = asyncio.get_running_loop()
        if self.path is not None:
            await loop.create_unix_connection(lambda: line, self.path)
            return
        context = None if self.tls is None else tls_context(self.tls)
        transport, _ = await loop.create_connection(lambda: line, self.host, self.port, ssl=context)
        if self.is_kept_alive:
            _keep_alive(transport.get_extra_info("socket"))

    async def _enter(self, line: Line) -> None:
        """All in one go: the first refusal is the reason of those behind it."""
        steps: list[tuple[str | int, ...]] = []
        if self.password is not None:
            who = () if self.username is None else (self.username,)
            steps.append(("AUTH", *who, self.password))
        if self.client_name is not None:
            steps.append(("CLIENT", "SETNAME", self.client_name))
        if self.db:
            steps.append(("SELECT", self.db))
        steps.append(("INFO", "server"))
        answers: list[Reply] = await asyncio.gather(*[line.ask(pack(step)) for step in steps])
        for answer in answers:
            if isinstance(answer, hiredis.ReplyError):
                raise answer
        about = answers[-1]
        if not isinstance(about, bytes):
            raise LineError(f"what answers at {self} is no Redis: it does not tell of itself")
        line.run_id = about.partition(b"run_id:")[2].split(b"\r", 1)[0].decode()


def parse_address(url: str) -> Address:
    """Raises InputError without the text of the URL: a password may be anywhere in it."""
    try:
        parts = urlsplit(url)
        query = parse_qs(parts.query, strict_parsing=True) if parts.query else {}
        options = {name: values[0] for name, values in query.items()}
        unknown = [name for name in options if name not in _OPTIONS | TLS_OPTIONS]
        if not unknown:
            return _address(parts, options)
    except ValueError:
        raise InputError(
            "expected the URL of a Redis server, such as redis://host:6379/0, got another text"
        ) from None
    raise InputError(
        f"the URL of a Redis server may have the options client_name, socket_keepalive and "
        f"{', '.join(sorted(TLS_OPTIONS))}, got '{unknown[0]}'; how long calls may take is "
        "REDIS_SOCKET_TIMEOUT"
    )


def _address(parts: SplitResult, options: Mapping[str, str]) -> Address:
    """Raises ValueError."""
    path = unquote(parts.path)
    is_local = parts.scheme == "unix"
    if parts.scheme not in {"redis", "rediss", "unix"} or (is_local and not path):
        raise ValueError("no URL of a Redis server")
    if parts.fragment or (not is_local and "@" in path):
        raise ValueError("the password is not quoted: what was read as the host is its user")
    return Address(
        host=unquote(parts.hostname or Address().host),
        port=parts.port or PORT,
        path=path if is_local else None,
        db=_db(options.get("db", "" if is_local else path.strip("/"))),
        username=_text(parts.username) or options.get("username"),
        password=_text(parts.password) or options.get("password"),
        client_name=options.get("client_name"),
        is_kept_alive=options.get("socket_keepalive", "true").lower() not in _FALSE,
        tls=tls_of(options) if parts.scheme == "rediss" else None,
    )


def _db(text: str) -> int:
    """As in redis://host:6379/3; raises ValueError for what is no number."""
    if text and not text.isdecimal():
        raise ValueError("no number of a database")
    return int(text or 0)


def _text(quoted: str | None) -> str | None:
    return unquote(quoted) if quoted else None


def _keep_alive(found: socket.socket) -> None:
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEPT_ALIVE.items():
        if hasattr(socket, name):  # not every system has them
            found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _why(error: OSError | ValueError, where: str) -> str:
    """What asyncio says is "Connect call failed", whatever was the matter."""
    if not isinstance(error, OSError) or error.errno is None:
        return f"can't connect to {where}: {error}"
    is_plain = isinstance(error, ConnectionError)
    reason = os.strerror(error.errno) if is_plain else error.strerror
    return f"Error {error.errno} connecting to {where}: {reason}"
