"""Waits for the end of an execution that this process or another one runs."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from math import inf
from typing import TypeAlias

from runnel.core.events import ExecutionFinished
from runnel.core.ids import ExecutionId
from runnel.core.states import FINAL_EXECUTION_STATES
from runnel.ports.clock import Clock
from runnel.ports.store import ExecutionHeader, Store

# The interval of reading the store for an execution that another process runs. Without a feed, the
# interval begins at 0.5 s and grows.
POLL_INTERVAL_S = 0.5
POLL_INTERVAL_S_MAX = 5.0
WATCHED_EXECUTIONS_MAX = 10_000


class Completion:
    """Notifies all waiters of this process of the end of one execution.

    `header` and `end` are set once this process has ended the execution. `is_notified` is true once
    `notify` was called: either the header is set, or the waiters have to read the store again.
    """

    __slots__ = ("__weakref__", "_listeners", "end", "header", "is_notified")

    def __init__(self) -> None:
        self.header: ExecutionHeader | None = None
        self.end: ExecutionFinished | None = None
        self.is_notified = False
        self._listeners: list[asyncio.Event] = []

    def notify(self) -> None:
        self.is_notified = True
        for wakeup in self._listeners:
            wakeup.set()

    def add_listener(self) -> asyncio.Event:
        """Returns an event that each `notify` sets, until `remove_listener`.

        Each waiter has its own event and clears it. With a shared event, one waiter cleared the
        event while another waiter read the store, and the other waiter waited for 5 s.
        """
        wakeup = asyncio.Event()
        self._listeners.append(wakeup)
        return wakeup

    def remove_listener(self, wakeup: asyncio.Event) -> None:
        self._listeners.remove(wakeup)


ListenForEnd: TypeAlias = Callable[
    [ExecutionId, asyncio.Event], AbstractAsyncContextManager[object]
]
"""Sets the event, inside the block, whenever the execution may have ended."""


class ExecutionWaiter:
    """Waits for the end of executions.

    `read_header` reads a stored header, or raises NotFoundError. `owns` returns whether this
    process owns a partition. `get_completion` returns the completion of an execution that this
    process ends. The completion is also notified when this process loses a partition. `listen` is
    for executions of other processes; without `listen`, the waiter polls them.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        read_header: Callable[[ExecutionId], Awaitable[ExecutionHeader]],
        *,
        get_completion: Callable[[str], Completion],
        owns: Callable[[int], bool] = lambda _partition: False,
        listen: ListenForEnd | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._read_header = read_header
        self._get_completion = get_completion
        self._owns = owns
        self._listen = listen
        # Completions of submitted executions, registered before the executions can end, so that a
        # wait needs no read of the store.
        self._submitted: OrderedDict[str, Completion] = OrderedDict()

    async def watch(self, execution_id: ExecutionId) -> None:
        """Registers an execution that is about to be submitted with a new id.

        Does nothing if another process will run the execution, because this process is not notified
        of its end.
        """
        if not self._owns(await self._store.route(execution_id, is_new=True)):
            return
        self._submitted[execution_id] = self._get_completion(execution_id)
        if len(self._submitted) > WATCHED_EXECUTIONS_MAX:
            self._submitted.popitem(last=False)

    async def wait(
        self, execution_id: ExecutionId, timeout_s: float | None
    ) -> tuple[ExecutionHeader, ExecutionFinished | None]:
        """Waits until the execution is final; returns its header, and its last event if known.

        The event is known if this process has ended the execution. Raises TimeoutError and
        NotFoundError.
        """
        deadline = None if timeout_s is None else self._clock.monotonic() + timeout_s
        watched = self._submitted.pop(execution_id, None)
        completion = watched or self._get_completion(execution_id)
        # The completion was registered before the execution could end, so the first read is not
        # needed.
        will_be_notified = watched is not None and not completion.is_notified
        wakeup = completion.add_listener()
        try:
            header = await self._wait_until_final(
                execution_id,
                completion,
                wakeup,
                deadline=deadline,
                will_be_notified=will_be_notified,
            )
            return header, completion.end
        finally:
            completion.remove_listener(wakeup)

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
        listen = self._listen
        pause_s = POLL_INTERVAL_S if listen is None else POLL_INTERVAL_S_MAX
        while completion.header is None:
            is_here = self._owns(await self._store.route(execution_id))
            if not (is_here or is_listening) and listen is not None:
                # The waiter listens before it reads the store, so that it misses no end.
                async with listen(execution_id, wakeup):
                    return await self._wait_until_final(
                        execution_id, completion, wakeup, deadline=deadline, is_listening=True
                    )
            if not (will_be_notified and is_here):
                header = await self._read_header(execution_id)
                if header.state in FINAL_EXECUTION_STATES:
                    return header
            will_be_notified = False
            remaining_s = None if is_here else pause_s
            if deadline is not None:
                remaining_s = min(remaining_s or inf, deadline - self._clock.monotonic())
                if remaining_s <= 0:
                    raise TimeoutError(f"execution {execution_id} is not final yet")
            await self._clock.wait(wakeup, remaining_s)
            wakeup.clear()
            pause_s = min(POLL_INTERVAL_S_MAX, 1.5 * pause_s)
        return completion.header
