"""Backends in which every call to a port or every Redis round trip is a crash point."""

import inspect
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from runnel.backends.redis.connection import Arg, RedisConnection, Reply
from runnel.backends.redis.connection_pool import RedisConnectionPool
from runnel.errors import StoreError
from runnel.ports import Backend
from runnel.ports.archive import Archive
from runnel.ports.clock import Clock
from runnel.ports.feed import Feed
from runnel.ports.records import RandomAccessBlobStore, Records, RequestWindows
from runnel.ports.store import Mailbox, Store, Submission, TaskQueue
from simulation.crash_points.journal import CUT_OFF_MESSAGE, JournalFile, RunJournal

CRASH_EXIT_CODE = 77

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedFault:
    """A fault at the crash point number `point` (from 1; None for no fault).

    If `kills_process`, the process is killed at this point. If not, only the call fails.
    """

    point: int | None = None
    kills_process: bool = True


NO_FAULT = InjectedFault()


class CrashPointCounter:
    """Counts crash points and injects the fault at the requested one.

    A call has two crash points: before it is made, and after its effect but before the caller gets
    the response. A call that is cancelled while it waits has only the first point. A call that only
    reads also has only the first point, because it changes nothing.
    """

    def __init__(self, journal: RunJournal, fault: InjectedFault) -> None:
        self.calls = 0
        self.points = 0
        self._journal = journal
        self._fault = fault
        self._is_disabled = False

    async def run_call(
        self, name: str, work: Callable[[], Awaitable[T]], *, only_reads: bool = False
    ) -> T:
        self.calls += 1
        self._reach_point("before", name)
        if only_reads:
            return await work()
        try:
            answer = await work()
        except Exception:
            self._reach_point("after", name)
            raise
        self._reach_point("after", name)
        return answer

    def disable(self) -> None:
        """Stops the injection of faults, because a process that shuts down can't prove
        a recovery.
        """
        self._is_disabled = not self._fault.kills_process

    def _reach_point(self, side: str, name: str) -> None:
        if self._is_disabled:
            return
        self.points += 1
        if self.points == self._fault.point:
            self._journal.append(JournalFile.POINTS, f"{side} {name}")
            if self._fault.kills_process:
                os._exit(CRASH_EXIT_CODE)
            raise StoreError(f"{CUT_OFF_MESSAGE}: {side} {name}")


# The names of frequent calls that only read. The list is not complete.
_READ_ONLY_CALLS = frozenset(
    {
        "archive.get_definition",
        "archive.get_header",
        "archive.list_headers",
        "blobs.get",
        "blobs.read_parts",
        "feed.end",
        "feed.read",
        "store.due_timers",
        "store.list_concurrency_keys",
        "store.load",
        "store.next_due",
        "store.observe",
        "store.read_inbox",
        "store.route",
        "store.running",
    }
)


class CrashingBackend:
    """A backend that counts the calls of all asynchronous methods of its ports as crash points.

    All other attributes are passed through.
    """

    def __init__(self, backend: Backend, points: CrashPointCounter) -> None:
        self.store: Store = _CountedPort("store", backend.store, points)
        self.mailbox: Mailbox = _CountedPort("mailbox", backend.mailbox, points)
        self.tasks: TaskQueue = _CountedPort("tasks", backend.tasks, points)
        self.archive: Archive = _CountedPort("archive", backend.archive, points)
        self.blobs: RandomAccessBlobStore = _CountedPort("blobs", backend.blobs, points)
        self.records: Records = _CountedPort("records", backend.records, points)
        self.windows: RequestWindows = _CountedPort("windows", backend.windows, points)
        self.feed: Feed = _CountedPort("feed", backend.feed, points)
        self._backend = backend
        self._points = points

    async def claim_home_partition(self, owner: str, *, submits: Submission | None = None) -> int:
        return await self._points.run_call(
            "claim_home_partition",
            lambda: self._backend.claim_home_partition(owner, submits=submits),
        )

    async def close(self) -> None:
        await self._backend.close()


class _CountedPort:
    def __init__(self, name: str, part: object, points: CrashPointCounter) -> None:
        self._name = name
        self._part = part
        self._points = points

    # Any: the attributes depend on the wrapped port.
    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._part, name)
        if not inspect.iscoroutinefunction(attribute):
            return attribute
        call = _count_method(f"{self._name}.{name}", attribute, self._points)
        setattr(self, name, call)
        return call


def _count_method(
    name: str, method: Callable[..., Any], points: CrashPointCounter
) -> Callable[..., Any]:
    async def call(*args: Any, **named: Any) -> Any:
        return await points.run_call(
            name, lambda: method(*args, **named), only_reads=name in _READ_ONLY_CALLS
        )

    return call


class CrashingRedisConnectionPool(RedisConnectionPool):
    """A connection pool in which every round trip is a crash point.

    This pool has more crash points than the ports, because one call to a port may need several
    round trips.
    """

    def __init__(self, url: str, clock: Clock, points: CrashPointCounter) -> None:
        super().__init__(url, clock)
        self._points = points

    async def call(
        self, *args: Arg, expected_run_id: str | None = None, is_large: bool = False
    ) -> Reply:
        call = partial(super().call, *args, expected_run_id=expected_run_id, is_large=is_large)
        return await self._points.run_call(_format_command(args), call)

    async def run_script(
        self,
        name: str,
        keys: Sequence[str],
        args: Sequence[Arg],
        *,
        expected_run_id: str | None = None,
        is_large: bool = False,
    ) -> Reply:
        run = partial(
            super().run_script, name, keys, args, expected_run_id=expected_run_id, is_large=is_large
        )
        return await self._points.run_call(name, run)

    async def call_blocking(
        self, *args: Arg, wait_s: float, expected_run_id: str | None = None
    ) -> Reply:
        call = partial(super().call_blocking, *args, wait_s=wait_s, expected_run_id=expected_run_id)
        return await self._points.run_call(f"{_format_command(args)}, waiting", call)

    async def subscribe(
        self,
        channel: str,
        on_message: Callable[[bytes, bytes], None],
        *,
        connection: RedisConnection | None,
    ) -> RedisConnection:
        listen = partial(super().subscribe, channel, on_message, connection=connection)
        return await self._points.run_call("SUBSCRIBE", listen)


def _format_command(args: Sequence[Arg]) -> str:
    """Returns the command and the kind of its key, for example `XREAD inbox`."""
    keys = [str(arg).split(":")[2] for arg in args if str(arg).count(":") > 1]
    return " ".join([str(args[0]), *keys[:1]])
