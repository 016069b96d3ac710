"""Sends commands to the inboxes of partitions in batches, and estimates the time of the server."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

from runnel.backends.mailboxes import build_definition_deleted_error
from runnel.backends.redis.connection import Arg
from runnel.backends.redis.connection_pool import RedisConnectionPool
from runnel.backends.redis.keys import RedisKeyNames, RedisLayout, build_message_args
from runnel.core.commands import Command, CreateExecution
from runnel.ports.clock import Clock
from runnel.ports.store import NO_BLOBS

T = TypeVar("T")


class CommandBatcher(Generic[T]):
    """Collects commands while a call is in progress, and sends them with the next call.

    Several callers share one call. The call continues if one caller is cancelled, and all callers
    that still wait get its error.
    """

    def __init__(self, send: Callable[[Sequence[Command]], Awaitable[T]]) -> None:
        self._send = send
        self._lock = asyncio.Lock()
        self._batch: list[Command] = []
        self._next: asyncio.Task[T] | None = None
        self._calls: set[asyncio.Task[T]] = set()

    async def send(self, commands: Sequence[Command]) -> T | None:
        """Sends the commands and returns the result of the shared call; None without commands.

        If the caller is cancelled while the call is in progress, the commands of the caller may
        have been sent.
        """
        if not commands:
            return None
        self._batch += commands
        if self._next is None:
            self._next = asyncio.create_task(self._send_batch())
            self._calls.add(self._next)
            self._next.add_done_callback(self._settle)
        return await asyncio.shield(self._next)

    async def close(self) -> None:
        """Cancels the calls in progress.

        The owner of the batcher ensures that no caller still waits.
        """
        calls = [*self._calls]
        for call in calls:
            call.cancel()
        if calls:
            await asyncio.wait(calls)

    async def _send_batch(self) -> T:
        async with self._lock:
            commands, self._batch, self._next = self._batch, [], None
            return await self._send(commands)

    def _settle(self, call: "asyncio.Task[T]") -> None:
        self._calls.discard(call)
        if not call.cancelled():
            call.exception()  # keeps asyncio from logging it if no caller is left


# The maximum number of commands per script call. A longer script would block other clients. It is
# the maximum of inputs in one submit, so that the executions of a submit are stored together.
SEND_BATCH_SIZE = 1_000
NO_DEADLINE = ""


class RedisMailbox:
    def __init__(self, pool: RedisConnectionPool, keys: RedisKeyNames, layout: RedisLayout) -> None:
        self._pool = pool
        self._keys = [
            *(keys.headers, keys.ids_by_created_at, keys.ids, keys.blobs, keys.inbox, keys.blob),
            *(keys.feed, keys.definition, keys.deleted_versions),
        ]
        self._layout = layout
        self._batcher = CommandBatcher(self._deliver_all)

    async def send(
        self,
        commands: Sequence[Command],
        *,
        blobs: Mapping[str, bytes] = NO_BLOBS,
        requires_definition: bool = False,
    ) -> None:
        """Sends a command in a batch with other callers. Sends it alone if it has blobs or can be
        refused, and sends several commands alone.

        Other callers therefore neither wait for large values nor get the error of a refused
        command. Up to SEND_BATCH_SIZE commands are stored together, or none of them.
        """
        if blobs or requires_definition or len(commands) > 1:
            await self.deliver(commands, blobs=blobs, of_stored=requires_definition)
        else:
            await self._batcher.send(commands)

    async def close(self) -> None:
        await self._batcher.close()

    async def deliver(
        self,
        commands: Sequence[Command],
        *,
        blobs: Mapping[str, bytes] = NO_BLOBS,
        deadline_at: float | None = None,
        of_stored: bool = False,
    ) -> bool:
        """Stores the commands; returns False if they reached the server after `deadline_at`.

        `deadline_at` is on the clock of the server. If the commands need several script calls, the
        commands of the first calls may be stored although the result is False. With `of_stored`,
        the first call checks the definitions of all commands. Raises NotFoundError as
        `Mailbox.send` does.
        """
        creations = [
            command for command in commands if of_stored and isinstance(command, CreateExecution)
        ]
        deadline = NO_DEADLINE if deadline_at is None else repr(deadline_at)
        for first in range(0, len(commands), SEND_BATCH_SIZE):
            args: list[Arg] = [deadline]
            args += _build_definition_args(() if first else creations)
            args += _build_blob_args(NO_BLOBS if first else blobs)
            for command in commands[first : first + SEND_BATCH_SIZE]:
                args += build_message_args(self._layout.route(command.aggregate_id), command)
            sent: int = await self._pool.run_script("send_messages", self._keys, args)
            if sent < 0:
                raise build_definition_deleted_error(creations[-sent - 1])
            if not sent:
                return False
        return True

    async def _deliver_all(self, commands: Sequence[Command]) -> None:
        await self.deliver(commands)


def _build_definition_args(commands: Sequence[CreateExecution]) -> list[Arg]:
    args: list[Arg] = [len(commands)]
    for command in commands:
        args += (command.definition, command.workflow)
    return args


def _build_blob_args(blobs: Mapping[str, bytes]) -> list[Arg]:
    args: list[Arg] = [len(blobs)]
    for key, data in blobs.items():
        args += (key, data)
    return args


# -- the server's clock, read once a minute ----------------------------------------------------

CLOCK_REFRESH_S = 60.0


class ServerClock:
    """Estimates the time of the server.

    The estimate is never ahead of the server's clock, and lags by at most one round trip.
    """

    def __init__(self, pool: RedisConnectionPool, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock
        self._offset_s = 0.0
        self._read_at: float | None = None

    async def now(self) -> float:
        now = self._clock.monotonic()
        if self._read_at is None or now - self._read_at > CLOCK_REFRESH_S:
            server_time = await self._pool.read_time()
            now = self._clock.monotonic()
            self._offset_s = server_time - now
            self._read_at = now
        return now + self._offset_s

    def reset(self) -> None:
        """Discards the cached time, because another server may have taken over the address."""
        self._read_at = None
