"""A connection to Redis for one loop of a floor: the engine's own, with nothing around it."""

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import hiredis
import msgspec

from runnel.backends.redis.connection import Arg, Line, LineError, pack, parse_address
from runnel.errors import StoreError

CALL_S = 60.0


class FloorLine:
    """Raises StoreError for an answer that is an error."""

    def __init__(self, line: Line) -> None:
        self._line = line

    async def call(self, *words: Arg) -> Any:
        return _checked(await self._line.ask(pack(words)))

    async def calls(self, commands: Sequence[tuple[Arg, ...]]) -> list[Any]:
        """All are sent before the first answer is waited for."""
        answers = [self._line.ask(pack(each)) for each in commands]
        return [_checked(await each) for each in answers]

    async def listen(self, channel: str, told: Callable[[bytes, bytes], None]) -> None:
        """From now on `told` hears what is published there; nothing else can be asked then."""
        self._line.told = told
        await self.call("SUBSCRIBE", channel)

    async def load(self, name: str) -> str:
        """A script of this folder, by the name that EVALSHA takes from then on."""
        text = Path(__file__).with_name(f"{name}.lua").read_text(encoding="utf-8")
        sha: bytes = await self.call("SCRIPT", "LOAD", text)
        return sha.decode()


@asynccontextmanager
async def open_line(url: str) -> AsyncIterator[FloorLine]:
    line = Line(CALL_S)
    try:
        await parse_address(url).connect(line, within_s=CALL_S)
        yield FloorLine(line)
    except LineError as error:
        raise StoreError(f"Redis: a floor has lost its connection: {error}") from error
    finally:
        line.close()


def _checked(answer: Any) -> Any:
    if isinstance(answer, hiredis.ReplyError):
        raise StoreError(f"Redis refused what a floor asked: {answer}")
    return answer


# The keys of the floor on Redis, and what its processes are told: as little as they need.

VARIABLE = "RUNNEL_BENCH_FLOOR"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """In the environment of the processes, because anybody may read their arguments."""

    redis_url: str
    postgres_url: str | None
    name: str
    workload: str
    slots: int

    def environ(self) -> dict[str, str]:
        return {VARIABLE: msgspec.json.encode(self).decode()}

    @property
    def names(self) -> "Names":
        return Names(self.name)


def read_plan() -> Plan:
    return msgspec.json.decode(os.environ[VARIABLE], type=Plan)


class Names:
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
