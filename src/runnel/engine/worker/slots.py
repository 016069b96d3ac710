"""The slots of a worker, counted over all queues, and the loop that claims tasks for free slots.

Each used slot has an asyncio task of its own, a runner, which executes one run after another. A
batch of claimed runs wakes one runner only. A runner that is about to wait wakes the next runner
for the remaining runs. As a result, one runner executes four handlers that never wait in one turn
of the event loop. Four handlers that wait run in parallel, in four runners.

With no-op handlers and the memory backend, a task costs 26 µs at 4 slots and 12 µs at 64. The tasks
of a batch share two turns of the event loop, a claim and a report. These numbers were measured with
a separate start check.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from contextvars import ContextVar
from typing import Any, Protocol

from runnel.core.effects import TaskMessage
from runnel.core.ids import ExecutionId
from runnel.core.retry import SUSPECT_LOSSES
from runnel.engine.worker import WorkerDependencies
from runnel.engine.worker.reports import Reporter
from runnel.engine.worker.task_run import HeldTasks, TaskRun
from runnel.errors import TooManyWaitingTasksError

# The most tasks of a worker that may wait without a slot, each with its coroutine or its thread.
# Each level of nesting has its own maximum. With one maximum for all, tasks of the first level
# could wait for tasks of the second level that never get to wait themselves.
LENT_MAX = 1_000


class Slots:
    """Counts free slots and queues claimed runs for them.

    `claim_ahead` is the number of runs that may be queued without a free slot, as long as all
    recent runs ended without waiting. After a run that waits, such runs would be claimed too early.

    A run that waits for another execution lends its slot. When the wait ends, the run takes a slot
    back before any queued run.

    Runs in a batch share one slot. The others of them count as claimed ahead.

    `suspects` are runs that must not get company, because processes died with earlier attempts of
    their tasks. While there is a suspect, no task may be claimed.
    """

    def __init__(self, count: int, *, claim_ahead: int = 0) -> None:
        self.count = count
        self._claim_ahead = claim_ahead
        self._ended_at_once = 0
        self.free = count
        self._ready: deque[TaskRun] = deque()
        # Runs that waited for a rate token and may run now. They and claimed runs take turns.
        self._resumed: deque[TaskRun] = deque()
        self._is_claims_turn = False
        self._is_claim_due = False
        self._idle: list[asyncio.Future[None]] = []
        self._claimer: asyncio.Future[None] | None = None
        self._runners = 0
        self._batched = 0
        self._lent = 0
        self._lent_at: Counter[int] = Counter()  # by level of nesting
        self.loop: asyncio.AbstractEventLoop | None = None
        self._returning: deque[asyncio.Future[None]] = deque()
        self._suspects: set[TaskRun] = set()
        self._start_runner: Callable[[], None] | None = None

    def open(self, start_runner: Callable[[], None]) -> None:
        """Sets the callback that starts a further runner when one is needed, up to `count`."""
        self._start_runner = start_runner
        self.loop = asyncio.get_running_loop()

    @property
    def claimable(self) -> int:
        """The number of tasks that may be claimed now.

        A free slot belongs to a resumed run, unless the last slot went to a resumed run.
        """
        if self._suspects:
            return 0
        ahead = self._claim_ahead if self._ended_at_once >= self.count else 0
        resumed = 0 if self._is_claims_turn else len(self._resumed)
        return self.free + ahead - len(self._ready) - self._batched - resumed

    @property
    def has_ended_calls(self) -> bool:
        """True if a run is queued whose call has ended, so that it must not be returned."""
        return any(run.finish is not None and run.stop_reason is None for run in self._ready)

    @property
    def has_resumed(self) -> bool:
        """True if a run that may run now waits for a slot, so that a claim must not wait."""
        return bool(self._resumed)

    async def wait_claimable(self) -> int:
        self._is_claim_due = True
        while self.claimable <= 0:
            self._claimer = asyncio.get_running_loop().create_future()
            await self._claimer
        # A claim that waits for tasks must not keep a slot from the runs that resume meanwhile.
        self._is_claim_due = self.has_resumed
        return self.claimable

    def end_claim(self, claimed: int) -> None:
        """Ends the turn of the claim; the turn goes back to the resumed runs if it was empty."""
        self._is_claim_due = False
        if not claimed:
            self._is_claims_turn = False
            self.wake_runner()

    def put(self, runs: Iterable[TaskRun]) -> None:
        self._ready.extend(runs)
        self.wake_runner()

    def put_first(self, run: TaskRun) -> None:
        """Queues a run before all others, because it was taken before them."""
        self._ready.appendleft(run)
        self.wake_runner()

    def add_suspects(self, runs: Iterable[TaskRun]) -> None:
        self._suspects.update(runs)

    def discard_suspect(self, run: TaskRun) -> None:
        if self._suspects:
            self._suspects.discard(run)
            self._wake_claimer()

    def put_resumed(self, run: TaskRun) -> None:
        """Queues a run that has waited for a rate token.

        Resumed runs and claimed runs take turns, so that the tasks of a rate limit do not delay all
        other tasks.
        """
        self._resumed.append(run)
        self.wake_runner()

    def wake_runner(self) -> None:
        """Wakes a runner for the queued runs. A runner calls `wake_runner` before it waits."""
        if not (self._ready or self._resumed) or self.free <= 0:
            return
        while self._idle:
            idle = self._idle.pop()
            if not idle.done():
                idle.set_result(None)
                return
        # A run that has lent its slot still occupies its runner.
        if self._runners < self.count + self._lent and self._start_runner is not None:
            self._runners += 1
            self._start_runner()

    def take_at_once(self) -> TaskRun | None:
        """Returns the next run that was not stopped, and occupies a slot until `release`.

        Returns None if no run can begin now.
        """
        while self.free > 0 and (run := self._pop_next()) is not None:
            if run.stop_reason is None:
                self.free -= 1
                return run
            run.is_finished = True
            self._suspects.discard(run)
            self._wake_claimer()
        return None

    async def take(self) -> TaskRun:
        """Waits for the next run, as `take_at_once` returns it."""
        while (run := self.take_at_once()) is None:
            idle = asyncio.get_running_loop().create_future()
            self._idle.append(idle)
            await idle
        return run

    def note_suspended(self) -> None:
        """Notes that a run waits, which stops claiming ahead for now."""
        self._ended_at_once = 0
        self.wake_runner()

    def release(self, *, has_waited: bool = False) -> None:
        self._ended_at_once = 0 if has_waited else self._ended_at_once + 1
        if self._returning:
            self._free_one()
            return
        self.free += 1
        if self._claimer is not None:
            self._wake_claimer()

    def join_batch(self) -> None:
        """Frees the slot of a run that shares the slot of a batch from now on."""
        self._batched += 1
        self._free_one()

    def leave_batch(self, *, has_waited: bool) -> None:
        """Notes that a run leaves a batch that keeps its slot."""
        self._batched -= 1
        self._ended_at_once = 0 if has_waited else self._ended_at_once + 1
        self._wake_claimer()

    def lend(self, level: int = 1) -> None:
        """Frees the slot of a run that waits for another execution.

        Raises TooManyWaitingTasksError if LENT_MAX runs of the level wait already.
        """
        if self._lent_at[level] >= LENT_MAX:
            raise TooManyWaitingTasksError(
                f"{LENT_MAX:,} tasks of this worker already wait in runnel.run, which is the "
                "maximum. Start more workers, or call the workflow in the graph, not in a task"
            )
        self._lent += 1
        self._lent_at[level] += 1
        self._free_one()
        self.wake_runner()

    async def take_back(self, level: int = 1) -> None:
        """Waits for a slot. A cancelled caller gets a slot at once, above the limit if none is
        free: cancelled code only cleans up.
        """
        if self.free > 0:
            self.take_back_at_once(level)
            return
        returned = asyncio.get_running_loop().create_future()
        self._returning.append(returned)
        try:
            await returned
        finally:
            self._note_taken_back(level)
            if returned.cancelled():
                self.free -= 1

    def take_back_at_once(self, level: int = 1) -> None:
        self._note_taken_back(level)
        self.free -= 1

    def _note_taken_back(self, level: int) -> None:
        self._lent -= 1
        self._lent_at[level] -= 1

    def _free_one(self) -> None:
        """Passes a slot to the first run that takes one back, or else makes the slot free."""
        while self._returning and self.free >= 0:
            returned = self._returning.popleft()
            if not returned.done():
                returned.set_result(None)
                return
        self.free += 1
        self._wake_claimer()

    def drain_ready(self) -> list[TaskRun]:
        """Removes and returns the runs that have not begun, for a worker that shuts down."""
        queued = [*self._ready, *self._resumed]
        self._ready = deque(run for run in queued if run.finish is not None)
        self._resumed.clear()
        return [run for run in queued if run.finish is None]

    def _pop_next(self) -> TaskRun | None:
        """Removes and returns the next run; None if there is none, or if a claim comes first."""
        if not self._resumed:
            return self._ready.popleft() if self._ready else None
        if self._is_claims_turn:
            if self._ready:
                self._is_claims_turn = False
                return self._ready.popleft()
            if self._is_claim_due:
                return None
        self._is_claims_turn = True
        return self._resumed.popleft()

    def _wake_claimer(self) -> None:
        claimer = self._claimer
        if claimer is not None and not claimer.done():
            claimer.set_result(None)


# -- slots of tasks that wait for executions ----------------------------------------------------


class TaskSlot(Protocol):
    """The slot of the task whose code calls `runnel.run`."""

    @property
    def execution_id(self) -> ExecutionId: ...

    def lend(self, level: int = 1) -> AbstractAsyncContextManager[None]:
        """Frees the slot for other tasks inside the block, and takes one back at its end.

        `level` is the level of nesting of the execution that the task waits for.
        """


# The slot of the task that the current code belongs to. None outside of tasks.
current_slot: ContextVar[TaskSlot | None] = ContextVar("current_slot", default=None)


class RunSlot:
    """The slot of a run in this process, for code on any event loop of any thread.

    A run may wait for several executions at once. The slot is lent until the last of them ends.
    """

    # Each async task gets a RunSlot, and almost none lends it. So the constructor sets two
    # attributes, and these are the defaults of the others.
    _waits = 0
    _level = 1
    _is_lent = _is_returning = _is_closed = False
    _waiting: dict[asyncio.Task[Any] | None, asyncio.AbstractEventLoop] | None = None

    def __init__(self, slots: Slots, run: TaskRun) -> None:
        self._slots = slots
        self._run = run

    @property
    def execution_id(self) -> ExecutionId:
        return self._run.token.execution_id

    @asynccontextmanager
    async def lend(self, level: int = 1) -> AsyncIterator[None]:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        is_foreign = self._slots.loop not in (None, loop)
        waiting = self._waiting = {} if self._waiting is None else self._waiting
        if is_foreign:
            waiting[task] = loop
        try:
            await self._call(self.begin_wait(level), is_foreign=is_foreign)
            try:
                yield
            except BaseException as error:
                if isinstance(error, asyncio.CancelledError):
                    self._end_wait_at_once(is_foreign=is_foreign)
                else:
                    await self._call(self.end_wait(), is_foreign=is_foreign)
                raise
            await self._call(self.end_wait(), is_foreign=is_foreign)
        finally:
            waiting.pop(task, None)

    async def begin_wait(self, level: int = 1) -> None:
        if not self._is_lent and not self._is_closed:
            self._level = level
            self._lend()
        self._waits += 1

    async def end_wait(self) -> None:
        self._waits -= 1
        if self._waits or self._is_returning or not self._is_lent:
            return
        self._is_returning = True
        try:
            await self._slots.take_back(self._level)
        finally:
            self._is_lent = self._is_returning = False
        self._lend_if_waiting()

    def _lend_if_waiting(self) -> None:
        """Lends the slot again if the code began to wait for another execution meanwhile."""
        if self._waits and not self._is_closed:
            with suppress(TooManyWaitingTasksError):  # the code then waits with its slot
                self._lend()

    def _lend(self) -> None:
        self._slots.lend(self._level)
        self._is_lent = True
        # The execution that a suspect waits for may need this worker.
        self._slots.discard_suspect(self._run)

    def close(self) -> None:
        """Takes the slot back at once, because the run is about to release it.

        If the run was stopped, ends the waits of its code in other threads, which the worker can't
        cancel otherwise.
        """
        self._is_closed = True
        if self._is_lent and not self._is_returning:
            self._is_lent = False
            self._slots.take_back_at_once(self._level)
        if self._run.stop_reason is not None:
            for task, loop in list((self._waiting or {}).items()):
                if task is not None:
                    with suppress(RuntimeError):  # that loop has ended
                        loop.call_soon_threadsafe(task.cancel)

    async def _call(self, step: Coroutine[Any, Any, None], *, is_foreign: bool) -> None:
        if is_foreign and self._slots.loop is not None:
            future = asyncio.run_coroutine_threadsafe(step, self._slots.loop)
            await asyncio.wrap_future(future)
        else:
            await step

    def _end_wait_at_once(self, *, is_foreign: bool) -> None:
        if is_foreign and self._slots.loop is not None:
            with suppress(RuntimeError):  # the worker's loop has ended
                self._slots.loop.call_soon_threadsafe(self._take_back_at_once)
        else:
            self._take_back_at_once()

    def _take_back_at_once(self) -> None:
        self._waits -= 1
        if self._is_lent and not self._waits and not self._is_returning:
            self._is_lent = False
            self._slots.take_back_at_once(self._level)


# -- the claim loop -----------------------------------------------------------------------------

# The longest duration of one claim call. The call returns as soon as the store has a task.
CLAIM_WAIT_S = 30.0


class ClaimLoop:
    """Claims as many tasks as there are free slots."""

    def __init__(
        self,
        dependencies: WorkerDependencies,
        slots: Slots,
        reporter: Reporter,
        *,
        held: HeldTasks,
        queues: Sequence[str] | None,
    ) -> None:
        self._dependencies = dependencies
        self._slots = slots
        self._reporter = reporter
        self._held = held
        self._queues = queues
        self._waiting: asyncio.Task[None] | None = None
        self._is_stopped = False

    async def run(self) -> None:
        while not self._is_stopped:
            await self.tick()

    async def tick(self) -> int:
        claimed = await self._claim()
        if not claimed:
            # A claim that does not wait may end without a turn of the event loop, in which the
            # resumed runs take their slots.
            await asyncio.sleep(0)
            return 0
        # After a rollback, the store delivers tasks again that are already running here. Such tasks
        # are not run twice.
        runs = [self._held.add(task) for task in claimed if self._held.find(task.token) is None]
        self._held.claimed_at = self._dependencies.clock.now()
        self._slots.add_suspects(run for run in runs if run.task.losses >= SUSPECT_LOSSES)
        self._slots.put(runs)
        # Runs that never wait end in this turn of the event loop, so the next claim covers all
        # their slots. Without this `sleep(0)`, the worker kept filling four slots with claims of
        # three tasks and of one, which took twice as many claims.
        await asyncio.sleep(0)
        return len(runs)

    def stop(self) -> None:
        """Stops claiming. A batch that is already claimed still starts."""
        self._is_stopped = True
        if self._waiting is not None:
            self._waiting.cancel()

    async def _claim(self) -> Sequence[TaskMessage]:
        """Claims tasks. `stop` may cancel this method at any point.

        The store then counts tasks of an unfinished claim as lost.
        """
        dependencies = self._dependencies
        self._waiting = asyncio.current_task()
        try:
            await self._reporter.wait_room()
            pause_s = dependencies.refusals.claim_pause_s
            if pause_s:
                await dependencies.clock.sleep(pause_s)
            limit = await self._slots.wait_claimable()
            wait_s = 0.0 if pause_s or self._slots.has_resumed else CLAIM_WAIT_S
            claimed = await dependencies.store_retry.run(
                lambda: dependencies.tasks.claim(
                    dependencies.worker,
                    self._queues,
                    limit=limit,
                    wait_s=wait_s,
                    starts_tasks=True,
                ),
                "claim",
            )
        finally:
            self._waiting = None
        # An error or a cancellation ends the loop, and no runner may start after it.
        self._slots.end_claim(len(claimed))
        return claimed
