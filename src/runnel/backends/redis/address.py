"""Where a server is and how one gets in, as its URL says; and a connection to it."""

import asyncio
import os
import socket
from collections.abc import Mapping
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

import hiredis
import msgspec

from runnel.backends.redis.line import Line, LineError, Reply, pack
from runnel.backends.redis.tls import TLS_OPTIONS, Tls, tls_context, tls_of
from runnel.errors import InputError

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
