"""The connections, keys and configuration of the floor on Redis."""

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import hiredis
import msgspec

from runnel.backends.redis.connection import (
    Arg,
    RedisConnection,
    RedisConnectionError,
    pack_command,
    parse_address,
)
from runnel.errors import StoreError

CALL_TIMEOUT_S = 60.0


class FloorConnection:
    """One connection of the engine's kind. It raises StoreError if Redis answers with an error."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection

    async def call(self, *args: Arg) -> Any:
        return _raise_for_error(await self._connection.send_command(pack_command(args)))

    async def call_pipelined(self, commands: Sequence[tuple[Arg, ...]]) -> list[Any]:
        """Sends all commands before it waits for the first answer."""
        answers = [self._connection.send_command(pack_command(command)) for command in commands]
        return [_raise_for_error(await answer) for answer in answers]

    async def listen(self, channel: str, callback: Callable[[bytes, bytes], None]) -> None:
        """Subscribes to a channel. The connection can't send other commands afterwards."""
        self._connection.on_message = callback
        await self.call("SUBSCRIBE", channel)

    async def load_script(self, name: str) -> str:
        """Loads a script of this folder and returns its hash for EVALSHA."""
        text = Path(__file__).with_name(f"{name}.lua").read_text(encoding="utf-8")
        sha: bytes = await self.call("SCRIPT", "LOAD", text)
        return sha.decode()


@asynccontextmanager
async def open_connection(url: str) -> AsyncIterator[FloorConnection]:
    connection = RedisConnection(CALL_TIMEOUT_S)
    try:
        await parse_address(url).connect(connection, timeout_s=CALL_TIMEOUT_S)
        yield FloorConnection(connection)
    except RedisConnectionError as error:
        raise StoreError(f"Redis: the floor has lost its connection: {error}") from error
    finally:
        connection.close()


def _raise_for_error(answer: Any) -> Any:
    if isinstance(answer, hiredis.ReplyError):
        raise StoreError(f"Redis refused a command of the floor: {answer}")
    return answer


CONFIG_VARIABLE = "RUNNEL_BENCH_FLOOR"


class FloorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of the floor's processes.

    It is passed in the environment, because other users can read command-line arguments.
    """

    redis_url: str
    postgres_url: str | None
    name: str
    workload: str
    slots: int

    def environ(self) -> dict[str, str]:
        return {CONFIG_VARIABLE: msgspec.json.encode(self).decode()}

    @property
    def keys(self) -> "FloorKeys":
        return FloorKeys(self.name)


def read_config() -> FloorConfig:
    return msgspec.json.decode(os.environ[CONFIG_VARIABLE], type=FloorConfig)


class FloorKeys:
    """The keys of one partition, as in the engine; `held`, `hand` and `history` are prefixes."""

    def __init__(self, prefix: str) -> None:
        tag = prefix + ":{f}:"
        self.partition = tag + "partition"
        self.inbox = tag + "inbox"
        self.running = tag + "running"
        self.ended = tag + "ended"
        self.headers = tag + "headers"
        self.listed = tag + "listed"
        self.ids = tag + "ids"
        self.journal = tag + "journal"
        self.history = tag + "history:"
        self.tasks = tag + "tasks"
        self.out = tag + "out"
        self.held = tag + "held:"
        self.waiting = tag + "waiting"
        self.hand = tag + "hand:"
        self.ends = tag + "ends"
