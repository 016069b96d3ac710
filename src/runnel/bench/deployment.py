"""The deployment that a workload runs on: its client, executions on it, and how they end."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

import runnel
from runnel.app.stores import StoreSession
from runnel.client.store_client import StoreClient
from runnel.core.ids import ExecutionId
from runnel.core.states import FINAL_EXECUTION_STATES, ExecutionState
from runnel.core.values import Json
from runnel.core.workflow import Workflow
from runnel.errors import NotFoundError, RunnelError
from runnel.ports.clock import Clock
from runnel.ports.feed import FeedPage
from runnel.settings.variables import VARIABLES

# Of many at once, the last end may be known so much later: a hundredth of half a second.
FEED_PAUSE_S = 0.005
FEED_PAGE_LIMIT = 1_000
FEED_WAIT_S = 5.0
LOOKUP_BATCH = 50


class WrongEndError(RunnelError):
    """A measured execution did not complete, so its time is not a figure."""

    code = "wrong_end"

    def __init__(self, execution_id: ExecutionId, state: ExecutionState) -> None:
        super().__init__(f"execution {execution_id} ended as {state}: nothing was measured")


class CompletionWaiter(Protocol):
    async def wait_until_completed(self, execution_id: ExecutionId) -> float:
        """Wait for the end, and return when it was known, on the monotonic clock.

        Raises WrongEndError if it ended in another way.
        """


class BenchmarkDeployment(Protocol):
    """A deployment that is ready and used by this measurement only."""

    client: StoreClient
    clock: Clock

    def watch_completions(
        self, *, pause_s: float = 0.0
    ) -> AbstractAsyncContextManager[CompletionWaiter]:
        """Watch what is submitted within the block; an end may be noticed `pause_s` later."""

    def pids(self) -> Mapping[str, Sequence[int]]:
        """Return the process ids of each measured role, with this process if it is one of them."""


def check_completed(execution_id: ExecutionId, state: ExecutionState) -> None:
    """Raises WrongEndError."""
    if state is not ExecutionState.COMPLETED:
        raise WrongEndError(execution_id, state)


async def run_all(deployment: BenchmarkDeployment, workflow: Workflow, count: int) -> float:
    """Seconds from the first submit to the last end, with everything submitted at once."""
    async with deployment.watch_completions(pause_s=FEED_PAUSE_S) as ends:
        started = deployment.clock.monotonic()
        ids = await asyncio.gather(*[deployment.client.submit(workflow) for _ in range(count)])
        ended = await asyncio.gather(*map(ends.wait_until_completed, ids))
    return max(ended) - started


async def run_one(
    deployment: BenchmarkDeployment, workflow: Workflow, input_: Json = None
) -> float:
    """Seconds from its submit to its end."""
    async with deployment.watch_completions() as ends:
        started = deployment.clock.monotonic()
        return (
            await ends.wait_until_completed(await deployment.client.submit(workflow, input_))
            - started
        )


async def run_sequentially(
    deployment: BenchmarkDeployment, workflow: Workflow, count: int
) -> list[float]:
    """Seconds of each, one at a time."""
    async with deployment.watch_completions() as ends:
        seconds = []
        for _ in range(count):
            started = deployment.clock.monotonic()
            seconds.append(
                await ends.wait_until_completed(await deployment.client.submit(workflow)) - started
            )
    return seconds


class FeedCompletionWaiter:
    """Reads the feed once for all executions: a wait for each of 2,000 would be 4,000 reads of the
    store that is measured.

    It pauses for `pause_s` after each page, so that the next page is larger: with 4 slots, a read
    for each commit took 15 % of the processor time of a whole deployment.
    """

    def __init__(self, stores: StoreSession, pause_s: float) -> None:
        self._stores = stores
        self._pause_s = pause_s
        self._completions: dict[str, tuple[float, ExecutionState]] = {}
        self._waiters: dict[str, asyncio.Future[tuple[float, ExecutionState]]] = {}

    async def wait_until_completed(self, execution_id: ExecutionId) -> float:
        completion = self._completions.get(execution_id)
        if completion is None:
            waiter = self._waiters.get(execution_id)
            if waiter is None:
                waiter = self._waiters[execution_id] = asyncio.get_running_loop().create_future()
            completion = await waiter
        at, state = completion
        check_completed(execution_id, state)
        return at

    @asynccontextmanager
    async def follow_feed(self) -> AsyncIterator["FeedCompletionWaiter"]:
        feed, clock = self._stores.backend.feed, self._stores.clock
        position = await feed.end()

        async def read() -> None:
            after = position
            while True:
                page = await feed.read(after, limit=FEED_PAGE_LIMIT, wait_s=FEED_WAIT_S)
                after = page.position
                await self._apply_page(page)
                if self._pause_s:
                    await clock.sleep(self._pause_s)

        async with asyncio.TaskGroup() as group:
            reading = group.create_task(read())
            try:
                yield self
            finally:
                reading.cancel()

    async def _apply_page(self, page: FeedPage) -> None:
        """Record the ends on a page. After a gap, look up every execution that is waited for."""
        now = self._stores.clock.monotonic()
        for change in page.changes:
            if change.state in FINAL_EXECUTION_STATES:
                self._record_completion(change.execution_id, now, change.state)
        if page.has_gap:
            ids = list(self._waiters)
            for first in range(0, len(ids), LOOKUP_BATCH):
                batch = ids[first : first + LOOKUP_BATCH]
                await asyncio.gather(*[self._check_execution(ExecutionId(id_)) for id_ in batch])

    def _record_completion(self, execution_id: str, at: float, state: ExecutionState) -> None:
        self._completions[execution_id] = at, state
        waiter = self._waiters.pop(execution_id, None)
        if waiter is not None and not waiter.done():
            waiter.set_result((at, state))

    async def _check_execution(self, execution_id: ExecutionId) -> None:
        try:
            header = await self._stores.client.get_header(execution_id)
        except NotFoundError:
            return
        if header.state in FINAL_EXECUTION_STATES:
            self._record_completion(execution_id, self._stores.clock.monotonic(), header.state)


def clean_environment(
    environ: Mapping[str, str], import_from: Sequence[Path] = ()
) -> dict[str, str]:
    """Return this process's environment without any setting of Runnel, updated by `environ`.

    A process that gets it runs the same code, wherever it runs, and can import what is in the
    folders `import_from`.
    """
    kept = {name: text for name, text in os.environ.items() if name not in VARIABLES}
    source = Path(runnel.__file__).resolve().parents[1]
    folders = [*map(str, (source, *import_from)), *filter(None, [kept.get("PYTHONPATH")])]
    path = os.pathsep.join(folders)
    return {**kept, "PYTHONPATH": path, **environ}
