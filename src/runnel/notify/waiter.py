"""Waiting for an execution to end: here, where this process runs it, or anywhere else."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from math import inf
from typing import TypeAlias

import msgspec

from runnel.core.ids import ExecutionId
from runnel.core.states import EXECUTION_FINAL
from runnel.ports.clock import Clock
from runnel.ports.store import Header, Store

# Of executions that another process runs, when nobody tells of their end.
LOOK_AGAIN_S = 0.5
LOOK_AGAIN_S_MAX = 5.0
WATCHED_MAX = 10_000


class Ending:
    """Of one execution, for all who wait for it; `header` is there once this process has ended it.

    `is_told` once `tell` was called: when the header is there, and when it is time to look at the
    store again.
    """

    __slots__ = ("__weakref__", "_waiting", "header", "is_told")

    def __init__(self) -> None:
        self.header: Header | None = None
        self.is_told = False
        self._waiting: list[asyncio.Event] = []

    def tell(self) -> None:
        self.is_told = True
        for news in self._waiting:
            news.set()

    def listen(self) -> asyncio.Event:
        """Set by each `tell`, until `leave`. Of one waiter alone, who clears it: shared, it was
        cleared by one who had been told while another one looked at the store, and that one waited
        for 5 s.
        """
        news = asyncio.Event()
        self._waiting.append(news)
        return news

    def leave(self, news: asyncio.Event) -> None:
        self._waiting.remove(news)


Listen: TypeAlias = Callable[[ExecutionId, asyncio.Event], AbstractAsyncContextManager[object]]
"""Sets the event, within the block, whenever the execution has ended or may have ended."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """Who tells of endings: `ending_of` of those that this process brings about.

    It also tells when this process stops to own a partition; `owns` says which ones it owns.
    `listen` is for the others, which without it are looked at every few seconds.
    """

    ending_of: Callable[[str], Ending]
    owns: Callable[[int], bool] = lambda _partition: False
    listen: Listen | None = None


class Endings:
    """`look` gives the header as it is stored, or raises NotFoundError."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        told: Told,
        look: Callable[[ExecutionId], Awaitable[Header]],
    ) -> None:
        self._store = store
        self._clock = clock
        self._told = told
        self._look = look
        # From before they can end, so that waiting for them needs no look at the store.
        self._submitted: OrderedDict[str, Ending] = OrderedDict()

    async def watch(self, execution_id: ExecutionId) -> None:
        """It is about to be submitted, by an id that was made for it.

        Of what another process will run nobody tells here: that is not kept.
        """
        if not self._told.owns(await self._store.route(execution_id, is_new=True)):
            return
        self._submitted[execution_id] = self._told.ending_of(execution_id)
        if len(self._submitted) > WATCHED_MAX:
            self._submitted.popitem(last=False)

    async def wait(self, execution_id: ExecutionId, timeout_s: float | None) -> Header:
        """As `Client.wait`."""
        deadline = None if timeout_s is None else self._clock.monotonic() + timeout_s
        watched = self._submitted.pop(execution_id, None)
        ending = watched or self._told.ending_of(execution_id)
        # Watched since before it could end: the first look at the store can be spared.
        is_surely_told = watched is not None and not ending.is_told
        news = ending.listen()
        try:
            return await self._until_final(
                execution_id, ending, news, deadline=deadline, is_surely_told=is_surely_told
            )
        finally:
            ending.leave(news)

    async def _until_final(
        self,
        execution_id: ExecutionId,
        ending: Ending,
        news: asyncio.Event,
        *,
        deadline: float | None,
        is_surely_told: bool = False,
        is_listening: bool = False,
    ) -> Header:
        listen = self._told.listen
        pause_s = LOOK_AGAIN_S if listen is None else LOOK_AGAIN_S_MAX
        while ending.header is None:
            is_here = self._told.owns(await self._store.route(execution_id))
            if not (is_here or is_listening) and listen is not None:
                # Before the look at the store: what ends behind it is told.
                async with listen(execution_id, news):
                    return await self._until_final(
                        execution_id, ending, news, deadline=deadline, is_listening=True
                    )
            if not (is_surely_told and is_here):
                header = await self._look(execution_id)
                if header.state in EXECUTION_FINAL:
                    return header
            is_surely_told = False
            left_s = None if is_here else pause_s
            if deadline is not None:
                left_s = min(left_s or inf, deadline - self._clock.monotonic())
                if left_s <= 0:
                    raise TimeoutError(f"execution {execution_id} is not final yet")
            await self._clock.wait(news, left_s)
            news.clear()
            pause_s = min(LOOK_AGAIN_S_MAX, 1.5 * pause_s)
        return ending.header
