"""Waiting for an execution to end: here, where this process runs it, or anywhere else."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from math import inf
from typing import TypeAlias

import msgspec

from runnel.core.ids import ExecutionId
from runnel.core.states import FINAL_EXECUTION_STATES
from runnel.ports.clock import Clock
from runnel.ports.store import ExecutionHeader, Store

# For executions that another process runs, when no reader publishes their end.
POLL_INTERVAL_S = 0.5
POLL_INTERVAL_S_MAX = 5.0
WATCHED_EXECUTIONS_MAX = 10_000


class Completion:
    """Of one execution, for all who wait for it; `header` is there once this process has ended it.

    `is_notified` once `notify` was called: when the header is there, and when it is time to look at
    the store again.
    """

    __slots__ = ("__weakref__", "_listeners", "header", "is_notified")

    def __init__(self) -> None:
        self.header: ExecutionHeader | None = None
        self.is_notified = False
        self._listeners: list[asyncio.Event] = []

    def notify(self) -> None:
        self.is_notified = True
        for news in self._listeners:
            news.set()

    def add_listener(self) -> asyncio.Event:
        """Set by each `notify`, until `remove_listener`. Of one waiter alone, who clears it:
        shared, it was cleared by one who had been told while another one looked at the store, and
        that one waited for 5 s.
        """
        news = asyncio.Event()
        self._listeners.append(news)
        return news

    def remove_listener(self, wakeup: asyncio.Event) -> None:
        self._listeners.remove(wakeup)


ListenForEnd: TypeAlias = Callable[
    [ExecutionId, asyncio.Event], AbstractAsyncContextManager[object]
]
"""Sets the event, within the block, whenever the execution has ended or may have ended."""


class CompletionSources(msgspec.Struct, frozen=True, kw_only=True):
    """Who tells of endings: `get_completion` of those that this process brings about.

    It also tells when this process stops to own a partition; `owns` says which ones it owns.
    `listen` is for the others, which without it are looked at every few seconds.
    """

    get_completion: Callable[[str], Completion]
    owns: Callable[[int], bool] = lambda _partition: False
    listen: ListenForEnd | None = None


class ExecutionWaiter:
    """`read_header` gives the header as it is stored, or raises NotFoundError."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        sources: CompletionSources,
        read_header: Callable[[ExecutionId], Awaitable[ExecutionHeader]],
    ) -> None:
        self._store = store
        self._clock = clock
        self._sources = sources
        self._read_header = read_header
        # From before they can end, so that waiting for them needs no look at the store.
        self._submitted: OrderedDict[str, Completion] = OrderedDict()

    async def watch(self, execution_id: ExecutionId) -> None:
        """It is about to be submitted, by an id that was made for it.

        Of what another process will run nobody tells here: that is not kept.
        """
        if not self._sources.owns(await self._store.route(execution_id, is_new=True)):
            return
        self._submitted[execution_id] = self._sources.get_completion(execution_id)
        if len(self._submitted) > WATCHED_EXECUTIONS_MAX:
            self._submitted.popitem(last=False)

    async def wait(self, execution_id: ExecutionId, timeout_s: float | None) -> ExecutionHeader:
        """As `Client.wait`."""
        deadline = None if timeout_s is None else self._clock.monotonic() + timeout_s
        watched = self._submitted.pop(execution_id, None)
        ending = watched or self._sources.get_completion(execution_id)
        # Watched since before it could end: the first look at the store can be spared.
        is_surely_told = watched is not None and not ending.is_notified
        news = ending.add_listener()
        try:
            return await self._wait_until_final(
                execution_id, ending, news, deadline=deadline, will_be_notified=is_surely_told
            )
        finally:
            ending.remove_listener(news)

    async def _wait_until_final(
        self,
        execution_id: ExecutionId,
        completion: Completion,
        wakeup: asyncio.Event,
        *,
        deadline: float | None,
        will_be_notified: bool = False,
        is_listening: bool = False,
    ) -> ExecutionHeader:
        listen = self._sources.listen
        pause_s = POLL_INTERVAL_S if listen is None else POLL_INTERVAL_S_MAX
        while completion.header is None:
            is_here = self._sources.owns(await self._store.route(execution_id))
            if not (is_here or is_listening) and listen is not None:
                # Before the look at the store: what ends behind it is told.
                async with listen(execution_id, wakeup):
                    return await self._wait_until_final(
                        execution_id, completion, wakeup, deadline=deadline, is_listening=True
                    )
            if not (will_be_notified and is_here):
                header = await self._read_header(execution_id)
                if header.state in FINAL_EXECUTION_STATES:
                    return header
            will_be_notified = False
            left_s = None if is_here else pause_s
            if deadline is not None:
                left_s = min(left_s or inf, deadline - self._clock.monotonic())
                if left_s <= 0:
                    raise TimeoutError(f"execution {execution_id} is not final yet")
            await self._clock.wait(wakeup, left_s)
            wakeup.clear()
            pause_s = min(POLL_INTERVAL_S_MAX, 1.5 * pause_s)
        return completion.header
