"""Runs synchronous user code in threads: one call per thread, or a batch of short calls in one.

The threads are reused, and not joined when the process ends. They are daemon threads on purpose.
The interpreter joins the threads of concurrent.futures at exit, so a function that hangs would keep
a worker from shutting down.

To hand a call to a thread, and to wake the event loop afterwards, takes longer than many functions.
So calls of short functions share a thread, in a batch. The event loop waits for the batch, because
the interpreter lock lets it do little else in that time. The wait ends after WAIT_S. Then the batch
continues by itself, and each of its calls is treated like a call in a thread of its own.

`node_plan.CallDuration` decides which calls are short.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context as ContextVariables
from contextvars import copy_context
from math import inf
from queue import SimpleQueue
from typing import Any, Protocol, TypeAlias

from runnel.engine.worker.node_plan import CallDuration, PreparedCall
from runnel.engine.worker.slots import RunSlot, Slots
from runnel.engine.worker.task_run import RunningCode, TaskRun, get_code
from runnel.ports.clock import Clock
from runnel.ports.store import TaskQueue

# A batch takes up to BATCH_S by the mean durations of its calls.
BATCH_S = 0.001
BATCH_CALLS_MAX = 64
# The event loop waits this long for a batch.
WAIT_S = 0.002
# A call of a batch that is not done after the wait is checked after this time. It is as long as a
# thread may have to wait for the interpreter lock.
CHECK_AFTER_S = 0.005

Outcome: TypeAlias = tuple[Any, BaseException | None]
"""The result of a call and None, or None and the error."""
RunCallback: TypeAlias = Callable[[TaskRun], None]


# -- the threads --------------------------------------------------------------------------------


class ThreadWork(Protocol):
    """Something that a thread of the pool executes."""

    def execute(self) -> bool:
        """Runs in the thread and never raises. Returns False if the event loop is closed."""


class ThreadPool:
    """A pool of daemon threads. The event loop counts the idle ones."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: SimpleQueue[ThreadWork | None] = SimpleQueue()
        self._started = 0
        self._idle = 0

    def start(self, work: ThreadWork) -> None:
        """Starts the work in a thread. Call `add_idle` on the event loop when it has ended."""
        if self._idle:
            self._idle -= 1
        else:
            self._started += 1
            name = f"{self._name}-{self._started}"
            threading.Thread(target=self._run, name=name, daemon=True).start()
        self._work.put(work)

    def add_idle(self) -> None:
        self._idle += 1

    def close(self) -> None:
        """Ends idle threads at once, and busy ones when their work has ended."""
        for _ in range(self._started):
            self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None and work.execute():
            del work  # an idle thread must not keep its last work in memory


class ThreadJob:
    """A call in a thread of its own.

    `on_return` is called on the event loop when the call returns, in every case. If `outcome` is
    cancelled, the call continues and its result is dropped.
    """

    __slots__ = (
        "_clock",
        "_context",
        "_duration",
        "_function",
        "_loop",
        "_on_return",
        "has_returned",
        "outcome",
    )

    def __init__(
        self,
        function: Callable[[], Any],
        duration: CallDuration,
        clock: Clock,
        on_return: Callable[[], None],
    ) -> None:
        self._function = function
        self._duration = duration
        self._clock = clock
        self._context: ContextVariables = copy_context()
        self._on_return = on_return
        self._loop = asyncio.get_running_loop()
        self.has_returned = False
        self.outcome: asyncio.Future[Outcome] = self._loop.create_future()

    def execute(self) -> bool:
        began_at = self._clock.monotonic()
        outcome = call_in_context(self._context, self._function)
        self._duration.add(self._clock.monotonic() - began_at)
        try:
            self._loop.call_soon_threadsafe(self._settle, outcome)
        except RuntimeError:
            return False  # the event loop is closed, so no task waits for this result
        return True

    def _settle(self, outcome: Outcome) -> None:
        self.has_returned = True
        self._on_return()
        if not self.outcome.done():
            self.outcome.set_result(outcome)


def call_in_context(context: ContextVariables, function: Callable[[], Any]) -> Outcome:
    try:
        return context.run(function), None
    except BaseException as error:  # noqa: BLE001  # SystemExit too is the task's error
        return None, error


# -- batches of short calls ---------------------------------------------------------------------


class ShortCall(RunningCode):
    """A call in a batch, and the code of its run.

    `began_at` is None until a thread begins the call, `outcome` until the call has ended. A
    cancellation ends the run. If the call has begun, it continues, and its outcome is dropped.
    """

    __slots__ = ("_context", "_function", "batch", "began_at", "outcome", "prepared", "run", "slot")

    batch: "CallBatch"

    def __init__(self, prepared: PreparedCall, slot: RunSlot, function: Callable[[], Any]) -> None:
        super().__init__(get_code(prepared.run).runner)
        self.prepared = prepared
        self.run = prepared.run
        self.slot = slot
        self.began_at: float | None = None
        self.outcome: Outcome | None = None
        self._function = function
        self._context: ContextVariables = copy_context()

    def execute(self) -> None:
        self.outcome = call_in_context(self._context, self._function)

    def cancel(self) -> None:
        self.batch.pool.cancel(self)

    def kill(self) -> None:
        """Does nothing: the run has ended with its cancellation."""


class CallBatch:
    """Calls that one thread makes one after another. They share one slot.

    The thread takes a call from `waiting` and appends it to `ended`. The event loop may also take a
    call from `waiting`, which then never begins. All these operations are atomic.
    """

    def __init__(self, pool: "ShortCalls", tasks: TaskQueue, clock: Clock) -> None:
        self.calls: list[ShortCall] = []
        self.waiting: deque[ShortCall] = deque()
        self.ended: deque[ShortCall] = deque()
        self.unsettled = 0
        self.is_late = False
        self.is_done = False
        self.is_settled = False
        self._expected_s = 0.0
        self._current: ShortCall | None = None
        self.pool = pool
        self._tasks = tasks
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._wakes_loop = False
        self._done = threading.Lock()
        self._done.acquire()

    def add(self, call: ShortCall) -> None:
        call.batch = self
        self.calls.append(call)
        self.waiting.append(call)
        self.unsettled += 1
        self._expected_s += call.prepared.plan.duration.mean_s

    @property
    def is_full(self) -> bool:
        return self._expected_s >= BATCH_S or len(self.calls) >= BATCH_CALLS_MAX

    def wait(self) -> bool:
        """Waits up to WAIT_S for the thread; returns True if it has made all calls."""
        self.is_late = not self._done.acquire(timeout=WAIT_S)
        return not self.is_late

    def wake_loop_on_progress(self) -> None:
        """Makes the thread wake the event loop when its current call has ended."""
        self._wakes_loop = True
        if self.is_done or self.ended:  # the thread may not have seen the flag
            self._wake_loop()

    def is_blocked(self, now: float) -> bool:
        """Returns True if the current call has been running for CHECK_AFTER_S."""
        began_at = None if (current := self._current) is None else current.began_at
        return began_at is not None and now - began_at >= CHECK_AFTER_S

    def execute(self) -> bool:
        clock, tasks = self._clock, self._tasks
        began_at = clock.monotonic()
        while (call := self._take_next()) is not None:
            tasks.begin(call.run.token)
            call.run.started_at = clock.now()
            call.began_at = began_at
            self._current = call
            call.execute()
            self._current = None
            tasks.end(call.run.token)
            ended_at = clock.monotonic()
            call.prepared.plan.duration.add(ended_at - began_at)
            began_at = ended_at
            self.ended.append(call)
            if self._wakes_loop:
                self._wake_loop()
        self.is_done = True
        self._done.release()
        return not self._wakes_loop or self._wake_loop()

    def _take_next(self) -> ShortCall | None:
        try:
            return self.waiting.popleft()
        except IndexError:
            return None

    def _wake_loop(self) -> bool:
        """Wakes the event loop; returns False if it is closed."""
        self._wakes_loop = False
        try:
            self._loop.call_soon_threadsafe(self.pool.settle, self)
        except RuntimeError:
            return False
        return True


class ShortCallOwner(Protocol):
    """Handles the events of short calls, on the event loop."""

    def end_short_call(self, call: ShortCall) -> None:
        """Handles a call that has ended, or that was cancelled."""

    def watch_short_call(self, call: ShortCall, at: float) -> None:
        """Makes sure that `ShortCalls.check` is called at the monotonic time `at`."""

    def return_short_call(self, call: ShortCall) -> None:
        """Queues the run of a call again that has not begun, because its batch is blocked."""


class ShortCalls:
    """Gathers the short calls of one turn of the event loop in batches, and runs the batches.

    Set `owner` before the first call. `on_abandoned` is called when a run ends while its thread
    continues, and `on_returned` when that thread returns after all.
    """

    owner: ShortCallOwner

    def __init__(
        self,
        threads: ThreadPool,
        slots: Slots,
        tasks: TaskQueue,
        clock: Clock,
        *,
        on_abandoned: RunCallback,
        on_returned: RunCallback,
    ) -> None:
        self._threads = threads
        self._slots = slots
        self._tasks = tasks
        self._clock = clock
        self._on_abandoned = on_abandoned
        self._on_returned = on_returned
        self._pending: deque[CallBatch] = deque()

    def add(self, call: ShortCall) -> None:
        """Adds the call to a batch, which begins in the next turn of the event loop at the latest.

        The batch takes over the slot of the run. It keeps the slot of its first run, and frees the
        others.
        """
        batch = self._pending[-1] if self._pending else None
        if batch is None or batch.is_full or not batch.unsettled:
            if batch is None:
                asyncio.get_running_loop().call_soon(self.run_next)
            batch = CallBatch(self, self._tasks, self._clock)
            self._pending.append(batch)
        else:
            self._slots.join_batch()
        batch.add(call)

    def run_next(self) -> None:
        """Runs one batch, if there is one. Others follow in later turns of the event loop."""
        batch = self._pending.popleft() if self._pending else None
        if self._pending:
            asyncio.get_running_loop().call_soon(self.run_next)
        if batch is None or not batch.unsettled:
            return  # all calls were cancelled
        self._threads.start(batch)
        if not batch.wait():
            self._slots.note_suspended()
            check_at = self._clock.monotonic() + CHECK_AFTER_S
            for call in batch.calls:
                self.owner.watch_short_call(call, check_at)
        self.settle(batch)

    def check(self, call: ShortCall, now: float) -> float:
        """Handles a call that was not done in time; returns the time of its next check.

        A call that runs gets the deadlines of its task. The calls that wait for a blocked call are
        returned.
        """
        if call.began_at is not None:
            return call.run.watch(since=call.began_at)
        if call.batch.is_blocked(now):
            self._return_waiting(call.batch)
        return inf if call.run.code is None else now + CHECK_AFTER_S

    def cancel(self, call: ShortCall) -> None:
        """Ends the run of the call. If the call has begun, its thread is abandoned."""
        batch, run = call.batch, call.run
        try:
            batch.waiting.remove(call)
        except ValueError:
            if call.outcome is not None:
                return  # `settle` ends the run
            self._on_abandoned(run)
            self._return_waiting(batch)
        self._end(call)

    def settle(self, batch: CallBatch) -> None:
        """Ends the runs of all calls that have ended."""
        is_done = batch.is_done
        while batch.ended:
            call = batch.ended.popleft()
            if call.run.is_abandoned:
                self._on_returned(call.run)
            else:
                self._end(call)
        if not is_done:
            batch.wake_loop_on_progress()
        elif not batch.is_settled:
            batch.is_settled = True
            batch.calls.clear()  # a cycle would keep the calls until a garbage collection
            self._threads.add_idle()

    def _return_waiting(self, batch: CallBatch) -> None:
        while batch.waiting:
            with suppress(IndexError):  # the thread took the last one
                call = batch.waiting.pop()
                self._leave(call)
                self.owner.return_short_call(call)

    def _end(self, call: ShortCall) -> None:
        call.slot.close()
        self._leave(call)
        self.owner.end_short_call(call)

    def _leave(self, call: ShortCall) -> None:
        """Frees the slot of the batch with its last call, unless an abandoned thread keeps it."""
        batch = call.batch
        batch.unsettled -= 1
        if batch.unsettled:
            self._slots.leave_batch(has_waited=batch.is_late)
        elif not call.run.keeps_slot:
            self._slots.release(has_waited=batch.is_late)
            self._slots.wake_runner()
