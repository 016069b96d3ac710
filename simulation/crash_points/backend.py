"""A backend whose every call to a port is a crash point."""

import inspect
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from runnel.backends.redis.backend import CALL_S
from runnel.backends.redis.connection import Arg, Line, Reply
from runnel.backends.redis.connection_pool import Lines
from runnel.errors import StoreError
from runnel.ports import Backend
from runnel.ports.archive import Archive
from runnel.ports.clock import Clock
from runnel.ports.feed import Feed
from runnel.ports.records import BlobStore, Records, RequestWindows
from runnel.ports.store import Mailbox, Store, TaskQueue
from simulation.crash_points.journal import CUT, About, Diary

# The moments of a process at which something can happen to it: before each call, and after it if
# it changes what is stored.

CRASHED = 77

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """At the moment `at` (1-based; None is never) the process ends, or only the call fails."""

    at: int | None = None
    is_deadly: bool = True


UNDISTURBED = Disturbance()


class Moments:
    """Counts, and disturbs at the moment that was asked for.

    A call has two moments: before it is made, and when it has had its effect but whoever waits
    for the answer has not seen it. One that is cancelled while it waits has only the first; so has
    one that only reads, because it leaves behind what was there before it.
    """

    def __init__(self, diary: Diary, disturbance: Disturbance) -> None:
        self.calls = 0
        self.passed = 0
        self._diary = diary
        self._disturbance = disturbance
        self._is_over = False

    async def around(
        self, call: str, work: Callable[[], Awaitable[T]], *, only_reads: bool = False
    ) -> T:
        self.calls += 1
        self._pass("before", call)
        if only_reads:
            return await work()
        try:
            answer = await work()
        except Exception:
            self._pass("after", call)
            raise
        self._pass("after", call)
        return answer

    def end(self) -> None:
        """Calls that fail from now on prove nothing: nobody is left to go on."""
        self._is_over = not self._disturbance.is_deadly

    def _pass(self, when: str, call: str) -> None:
        if self._is_over:
            return
        self.passed += 1
        if self.passed == self._disturbance.at:
            self._diary.note(About.MOMENT, f"{when} {call}")
            if self._disturbance.is_deadly:
                os._exit(CRASHED)
            raise StoreError(f"{CUT}: {when} {call}")


# Not all that there are, but all of which a life has many.
_READS = frozenset(
    {
        "archive.get_definition",
        "archive.get_header",
        "archive.list_headers",
        "blobs.get",
        "feed.end",
        "feed.read",
        "store.due_timers",
        "store.keys_of",
        "store.load",
        "store.next_due",
        "store.observe",
        "store.read_inbox",
        "store.route",
        "store.running",
    }
)


class CrashingBackend:
    """Every asynchronous method of every port counts; all else passes through."""

    def __init__(self, backend: Backend, moments: Moments) -> None:
        self.store: Store = _Counted("store", backend.store, moments)
        self.mailbox: Mailbox = _Counted("mailbox", backend.mailbox, moments)
        self.tasks: TaskQueue = _Counted("tasks", backend.tasks, moments)
        self.archive: Archive = _Counted("archive", backend.archive, moments)
        self.blobs: BlobStore = _Counted("blobs", backend.blobs, moments)
        self.records: Records = _Counted("records", backend.records, moments)
        self.windows: RequestWindows = _Counted("windows", backend.windows, moments)
        self.feed: Feed = _Counted("feed", backend.feed, moments)
        self._backend = backend
        self._moments = moments

    async def claim_home(self, owner: str) -> int:
        return await self._moments.around("claim_home", lambda: self._backend.claim_home(owner))

    async def close(self) -> None:
        await self._backend.close()


class _Counted:
    def __init__(self, name: str, part: object, moments: Moments) -> None:
        self._name = name
        self._part = part
        self._moments = moments

    # Any: it stands for whichever port it is asked to be.
    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if not inspect.iscoroutinefunction(found):
            return found
        call = _counted(f"{self._name}.{name}", found, self._moments)
        setattr(self, name, call)
        return call


def _counted(name: str, method: Callable[..., Any], moments: Moments) -> Callable[..., Any]:
    async def call(*args: Any, **named: Any) -> Any:
        return await moments.around(name, lambda: method(*args, **named), only_reads=name in _READS)

    return call


# Connections to a Redis server whose every round trip is a crash point.
#
# Finer than the ports: one call to a port may take several of them.


class CrashingLines(Lines):
    def __init__(self, url: str, clock: Clock, moments: Moments) -> None:
        super().__init__(url, clock, call_s=CALL_S)
        self._moments = moments

    async def call(self, *args: Arg, under: str | None = None, is_large: bool = False) -> Reply:
        call = partial(super().call, *args, under=under, is_large=is_large)
        return await self._moments.around(_name(args), call)

    async def run(
        self,
        name: str,
        keys: Sequence[str],
        args: Sequence[Arg],
        *,
        under: str | None = None,
        is_large: bool = False,
    ) -> Reply:
        run = partial(super().run, name, keys, args, under=under, is_large=is_large)
        return await self._moments.around(name, run)

    async def wait(self, *args: Arg, wait_s: float, under: str | None = None) -> Reply:
        wait = partial(super().wait, *args, wait_s=wait_s, under=under)
        return await self._moments.around(f"{_name(args)}, waiting", wait)

    async def listen(
        self, channel: str, told: Callable[[bytes, bytes], None], *, line: Line | None
    ) -> Line:
        listen = partial(super().listen, channel, told, line=line)
        return await self._moments.around("SUBSCRIBE", listen)


def _name(args: Sequence[Arg]) -> str:
    """The command, and what kind of key it is about: `XREAD inbox`."""
    keys = [str(arg).split(":")[2] for arg in args if str(arg).count(":") > 1]
    return " ".join([str(args[0]), *keys[:1]])
