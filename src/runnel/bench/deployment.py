"""The deployment that a workload runs on, and functions that run executions on it."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

import runnel
from runnel.app.stores import StoreSession
from runnel.bench.functions import FUNCTION_WORKFLOWS, FunctionKind
from runnel.client.store_client import StoreClient
from runnel.core.ids import ExecutionId
from runnel.core.states import FINAL_EXECUTION_STATES, ExecutionState
from runnel.core.values import Json
from runnel.core.workflow import Workflow
from runnel.errors import NotFoundError, RunnelError
from runnel.ports.clock import Clock
from runnel.ports.feed import FeedPage
from runnel.settings.variables import VARIABLES

# The pause between two reads of the feed. The end of an execution is noticed with at most this
# delay.
FEED_PAUSE_S = 0.005
FEED_PAGE_LIMIT = 1_000
FEED_WAIT_S = 5.0
LOOKUP_BATCH = 50


class WrongEndError(RunnelError):
    """Raised if a measured execution did not complete, so that its time is not reported."""

    code = "wrong_end"

    def __init__(self, execution_id: ExecutionId, state: ExecutionState) -> None:
        super().__init__(
            f"execution {execution_id} ended as {state}, not as COMPLETED: nothing was measured"
        )


class WrongResultError(RunnelError):
    """Raised if a measured execution returned a wrong result, so that its time is not reported."""

    code = "wrong_result"

    def __init__(self, execution_id: ExecutionId, result: object, *, expected: object) -> None:
        super().__init__(
            f"execution {execution_id} returned {result}, not {expected}: nothing was measured"
        )


class CompletionWaiter(Protocol):
    """Waits until executions are completed."""

    async def wait_until_completed(self, execution_id: ExecutionId) -> float:
        """Returns the monotonic time at which this process noticed the end.

        Raises WrongEndError if the execution did not complete.
        """


class BenchmarkDeployment(Protocol):
    """A deployment that is ready for a measurement, and that no other program uses."""

    client: StoreClient
    clock: Clock

    def watch_completions(
        self, *, pause_s: float = 0.0
    ) -> AbstractAsyncContextManager[CompletionWaiter]:
        """Yields a waiter for executions that the block submits; it notices an end up to `pause_s`
        later.
        """

    def pids(self) -> Mapping[str, Sequence[int]]:
        """Returns the process ids by role; this process is included if it runs a role."""


def check_completed(execution_id: ExecutionId, state: ExecutionState) -> None:
    """Raises WrongEndError if `state` is not COMPLETED."""
    if state is not ExecutionState.COMPLETED:
        raise WrongEndError(execution_id, state)


RunExecution: TypeAlias = Callable[[int], Awaitable[float]]
"""Runs the execution with a number; returns the monotonic time of its end."""


class MeasuredWork(Protocol):
    """Executions of one workflow, as a benchmark runs them."""

    @property
    def node_count(self) -> int: ...

    def open(
        self, deployment: BenchmarkDeployment, *, pause_s: float = 0.0
    ) -> AbstractAsyncContextManager[RunExecution]:
        """Yields a function that runs one execution; it may notice an end up to `pause_s` late."""


@dataclass(frozen=True, slots=True)
class EngineOnlyWork:
    """Executions whose nodes do nothing, and whose result is not read."""

    workflow: Workflow
    input: Json = None

    @property
    def node_count(self) -> int:
        return len(self.workflow.nodes)

    @asynccontextmanager
    async def open(
        self, deployment: BenchmarkDeployment, *, pause_s: float = 0.0
    ) -> AsyncIterator[RunExecution]:
        async with deployment.watch_completions(pause_s=pause_s) as waiter:

            async def run(_number: int) -> float:
                execution_id = await deployment.client.submit(self.workflow, self.input)
                return await waiter.wait_until_completed(execution_id)

            yield run


@dataclass(frozen=True, slots=True)
class FunctionWork:
    """Executions of decorated functions, run as `runnel.run` does; each result is checked.

    The input of an execution is its number.
    """

    kind: FunctionKind
    shape: str

    @property
    def node_count(self) -> int:
        return len(FUNCTION_WORKFLOWS[self.kind][self.shape].flow.to_workflow().nodes)

    @asynccontextmanager
    async def open(
        self, deployment: BenchmarkDeployment, *, pause_s: float = 0.0
    ) -> AsyncIterator[RunExecution]:
        flow, compute_result = FUNCTION_WORKFLOWS[self.kind][self.shape]

        async def run(number: int) -> float:
            client = deployment.client
            execution_id = await client.submit(flow.to_workflow(), flow.bind((number,), {}))
            header, output = await client.wait_for_output(execution_id)
            check_completed(execution_id, header.state)
            result = flow.decode_result(output)
            ended = deployment.clock.monotonic()
            if result != compute_result(number):
                raise WrongResultError(execution_id, result, expected=compute_result(number))
            return ended

        yield run


async def run_all(deployment: BenchmarkDeployment, work: MeasuredWork, count: int) -> float:
    """Submits all executions at once; returns the seconds from the first submit to the last end."""
    async with work.open(deployment, pause_s=FEED_PAUSE_S) as run:
        started = deployment.clock.monotonic()
        ended = await asyncio.gather(*map(run, range(count)))
    return max(ended) - started


async def run_sequentially(
    deployment: BenchmarkDeployment, work: MeasuredWork, count: int
) -> list[float]:
    """Runs one execution after another; returns the duration of each in seconds."""
    async with work.open(deployment) as run:
        seconds = []
        for number in range(count):
            started = deployment.clock.monotonic()
            seconds.append(await run(number) - started)
    return seconds


class FeedCompletionWaiter:
    """Waits for the completion of many executions with one reader of the feed.

    Waiting for each of 2,000 executions separately would take 4,000 reads of the measured store. A
    pause after each page makes the next page larger. Without the pause, with 4 slots, a read for
    each commit took 15 % of the processor time of the deployment.
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
        """Records the ends on a page. After a gap, reads the state of every awaited execution."""
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
    """Returns the environment of this process without settings of Runnel, updated by `environ`.

    A process with this environment runs the same code of Runnel from any working directory, and can
    import modules from the folders `import_from`.
    """
    kept = {name: text for name, text in os.environ.items() if name not in VARIABLES}
    source = Path(runnel.__file__).resolve().parents[1]
    folders = [*map(str, (source, *import_from)), *filter(None, [kept.get("PYTHONPATH")])]
    path = os.pathsep.join(folders)
    return {**kept, "PYTHONPATH": path, **environ}
