"""A connection to Redis for one loop of a floor: the engine's own, with nothing around it."""

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
    """Raises StoreError for an answer that is an error."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection

    async def call(self, *words: Arg) -> Any:
        return _raise_for_error(await self._connection.send_command(pack_command(words)))

    async def call_pipelined(self, commands: Sequence[tuple[Arg, ...]]) -> list[Any]:
        """All are sent before the first answer is waited for."""
        answers = [self._connection.send_command(pack_command(each)) for each in commands]
        return [_raise_for_error(await each) for each in answers]

    async def listen(self, channel: str, callback: Callable[[bytes, bytes], None]) -> None:
        """From now on `callback` hears what is published there; nothing else can be asked then."""
        self._connection.on_message = callback
        await self.call("SUBSCRIBE", channel)

    async def load_script(self, name: str) -> str:
        """A script of this folder, by the name that EVALSHA takes from then on."""
        text = Path(__file__).with_name(f"{name}.lua").read_text(encoding="utf-8")
        sha: bytes = await self.call("SCRIPT", "LOAD", text)
        return sha.decode()


@asynccontextmanager
async def open_connection(url: str) -> AsyncIterator[FloorConnection]:
    line = RedisConnection(CALL_TIMEOUT_S)
    try:
        await parse_address(url).connect(line, timeout_s=CALL_TIMEOUT_S)
        yield FloorConnection(line)
    except RedisConnectionError as error:
        raise StoreError(f"Redis: a floor has lost its connection: {error}") from error
    finally:
        line.close()


def _raise_for_error(answer: Any) -> Any:
    if isinstance(answer, hiredis.ReplyError):
        raise StoreError(f"Redis refused what a floor asked: {answer}")
    return answer


# The keys of the floor on Redis, and what its processes are told: as little as they need.

CONFIG_VARIABLE = "RUNNEL_BENCH_FLOOR"


class FloorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """In the environment of the processes, because anybody may read their arguments."""

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
    """Of one partition, as the engine has for each; `held`, `hand` and `history` are prefixes."""

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
