"""Connections to the server: short calls share a few, each wait for news has one of its own.

Redis-py does the connecting, the reading and the closing; its pool is left out, because each
connection here knows which life of the server it belongs to, and because nothing may ever be
sent twice.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from math import ceil
from typing import Any, TypeAlias

import hiredis
from redis.asyncio.connection import AbstractConnection, Connection, parse_url
from redis.exceptions import NoScriptError, RedisError, ResponseError

from runnel.backends.redis.scripts import SCRIPTS, Script
from runnel.errors import InputError, StoreError
from runnel.ports.clock import Clock

Arg: TypeAlias = str | bytes | int | float
Reply: TypeAlias = Any
"""What Redis answers: its shape is that of the command."""

# Short calls at a time: the server does one after the other anyway.
CALLS_MAX = 16
BLOCK_S = 30.0
# A wait that the server should have ended by now is ended here.
LATE_S = 0.05
# As much as the loop takes at once: a larger write may have to wait for the server to read.
SENT_AT_ONCE_BYTES = 65_536


# What a URL may say; all else is set here, or would change what the answers look like.
OPTIONS = frozenset(
    {"host", "port", "db", "username", "password", "path", "client_name", "socket_keepalive"}
)


class OtherRunError(Exception):
    """The server is not the one it was: it has restarted, or is another one."""


class Line:
    """One connection; `run_id` names the life of the server that it leads to."""

    def __init__(self, connection: AbstractConnection, call_s: float) -> None:
        self._connection = connection
        self._call_s = call_s
        self.run_id = ""

    @property
    def is_open(self) -> bool:
        return bool(self._connection.is_connected)

    async def is_stale(self) -> bool:
        """Whether the server has closed it while it lay idle, as far as is known here.

        Without asking, a server that has restarted would fail one call for each connection.
        """
        try:
            return bool(await self._connection.can_read())
        except (RedisError, OSError):
            return True

    async def open(self) -> None:
        connecting = self._connection.connect()  # type: ignore[no-untyped-call]  # redis-py's gap
        await _or_cancelled(connecting)
        info: bytes = await self.ask("INFO", "server")
        self.run_id = info.partition(b"run_id:")[2].split(b"\r", 1)[0].decode()

    async def ask(self, *args: Arg, wait_s: float = 0.0) -> Reply:
        """Cancelling it closes the connection: an answer that nobody reads must not stay in it."""
        connection = self._connection
        packed = hiredis.pack_command(args)  # type: ignore[arg-type]  # it takes any length
        # A limit for the write costs a task each time (17 µs), and a small one never waits.
        is_small = len(packed) < SENT_AT_ONCE_BYTES
        connection.socket_timeout = None if is_small else self._call_s
        sending = connection.send_packed_command(packed, check_health=False)
        await (sending if is_small else _or_cancelled(sending))
        connection.socket_timeout = self._call_s + wait_s
        return await connection.read_response()

    async def close(self) -> None:
        await self._connection.disconnect()


class Lines:
    """Raises StoreError for whatever goes wrong on the way, and never a redis-py exception."""

    def __init__(
        self,
        url: str,
        clock: Clock,
        *,
        call_s: float,
        calls_max: int = CALLS_MAX,
        block_s: float = BLOCK_S,
    ) -> None:
        self._clock = clock
        self._call_s = call_s
        self._block_s = block_s
        self._kind, self._settings = _parse(url)
        self._idle: list[Line] = []
        self._idle_waiters: list[Line] = []
        self._room = asyncio.Semaphore(calls_max)

    @property
    def address(self) -> str:
        """Where the server is, without a user or a password."""
        settings = self._settings
        if "path" in settings:
            return f"{settings['path']}/{settings.get('db', 0)}"
        host = str(settings.get("host", "localhost")).lower()
        name = f"[{host}]" if ":" in host else host
        return f"{name}:{settings.get('port', 6379)}/{settings.get('db', 0)}"

    async def run_id(self) -> str:
        """Of the server as it is now."""
        return str(await self._call(None, "", ()))

    async def call(self, *args: Arg, under: str | None = None) -> Reply:
        """With `under` it raises OtherRunError, before it sends anything, on another life."""
        return await self._call(under, str(args[0]), args)

    async def run(
        self, name: str, keys: Sequence[str], args: Sequence[Arg], *, under: str | None = None
    ) -> Reply:
        """Runs a script; one that the server does not know has not run, so it is sent again."""
        script = SCRIPTS[name]
        command: tuple[Arg, ...] = ("EVALSHA", script.sha, len(keys), *keys, *args)
        return await self._call(under, name, command, script)

    async def wait(self, *args: Arg, wait_s: float, under: str | None = None) -> Reply:
        """A command that blocks for up to `wait_s`, and at most `block_s`: then it gives None.

        `BLOCK` and the milliseconds are put behind the first argument.
        """
        wait_s = min(wait_s, self._block_s)
        blocking = (args[0], "BLOCK", max(1, ceil(wait_s * 1_000)), *args[1:])
        line: Line | None = None
        try:
            async with self._clock.timeout(wait_s + LATE_S):
                line = await self._take(self._idle_waiters, under)
                return await line.ask(*blocking, wait_s=wait_s)
        except TimeoutError:
            return None
        except (RedisError, OSError) as error:
            raise await self._failed(str(args[0]), error) from error
        finally:
            await self._give_back(self._idle_waiters, line)

    async def close(self) -> None:
        """Those that lie idle; one by one, because others may take and give meanwhile."""
        for idle in (self._idle, self._idle_waiters):
            while idle:
                await idle.pop().close()

    async def _call(
        self, under: str | None, what: str, args: tuple[Arg, ...], script: Script | None = None
    ) -> Reply:
        async with self._room:
            line: Line | None = None
            try:
                line = await self._take(self._idle, under)
                return await _ask(line, args, script)
            except (RedisError, OSError) as error:
                raise await self._failed(what, error) from error
            finally:
                await self._give_back(self._idle, line)

    async def _take(self, idle: list[Line], under: str | None) -> Line:
        """One that lies idle may lead to a former life; a new one tells which is the current."""
        while idle:
            line = idle.pop()
            if under in (None, line.run_id) and not await line.is_stale():
                return line
            await line.close()
        line = await self._open()
        if under is not None and line.run_id != under:
            idle.append(line)
            raise OtherRunError
        return line

    async def _open(self) -> Line:
        connection = self._kind(
            **self._settings,
            protocol=2,
            socket_timeout=self._call_s,
            socket_connect_timeout=self._call_s,
        )
        line = Line(connection, self._call_s)
        try:
            await line.open()
        except BaseException:
            await line.close()
            raise
        return line

    async def _give_back(self, idle: list[Line], line: Line | None) -> None:
        if line is None:
            return
        if line.is_open:
            idle.append(line)
        else:
            await line.close()

    async def _failed(self, what: str, error: Exception) -> StoreError:
        """The other connections have most likely the same fate: the next call makes a new one."""
        if not isinstance(error, ResponseError):
            await self.close()
        return StoreError(
            f"Redis: '{what}' failed, and whether it was done is not known: "
            f"{type(error).__name__}: {error}"
        )


async def _ask(line: Line, args: tuple[Arg, ...], script: Script | None) -> Reply:
    if not args:
        return line.run_id
    if script is None:
        return await line.ask(*args)
    try:
        return await line.ask(*args)
    except NoScriptError:
        await line.ask("SCRIPT", "LOAD", script.text)
        return await line.ask(*args)


async def _or_cancelled(work: Awaitable[None]) -> None:
    """For what limits its time by `wait_for`: on Python 3.11 that may swallow a cancellation."""
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    await work
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError


def _parse(url: str) -> tuple[type[AbstractConnection], Mapping[str, Any]]:
    try:
        settings: dict[str, Any] = dict(parse_url(url))
    except ValueError as error:
        # Without the URL, and without what it was taken for: either may hold the password.
        raise InputError(
            "expected the URL of a Redis server, such as redis://host:6379/0, got another text"
        ) from error
    kind = settings.pop("connection_class", Connection)
    unknown = [name for name in settings if name not in OPTIONS and not name.startswith("ssl_")]
    if unknown:
        raise InputError(
            f"the URL of a Redis server may have the options client_name, socket_keepalive and "
            f"ssl_..., got '{unknown[0]}'; how long calls may take is REDIS_SOCKET_TIMEOUT"
        )
    return kind, settings
