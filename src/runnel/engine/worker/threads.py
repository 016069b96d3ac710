"""Threads for synchronous user code: reused, and never waited for when the process ends.

They are daemons on purpose: a function that hangs must not keep a worker from shutting down, as
the threads of concurrent.futures do, which the interpreter joins on its way out. Their number is
bounded by the worker's slots: a function keeps its slot until it has returned.
"""

import asyncio
import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from queue import SimpleQueue
from typing import Any


class ThreadJob:
    """`outcome` is (result, None) or (None, error); `on_return` is called on the loop, always.

    When `outcome` was cancelled the function goes on all the same, and its result is dropped.
    """

    __slots__ = ("_context", "_function", "_on_return", "has_returned", "outcome")

    def __init__(self, function: Callable[[], Any], on_return: Callable[[], None]) -> None:
        self._function = function
        self._context: Context = copy_context()
        self._on_return = on_return
        self.has_returned = False
        self.outcome: asyncio.Future[tuple[Any, BaseException | None]] = (
            asyncio.get_running_loop().create_future()
        )

    def execute(self) -> tuple[Any, BaseException | None]:
        try:
            return self._context.run(self._function), None
        except BaseException as error:  # noqa: BLE001  # SystemExit too is the task's error
            return None, error

    def settle(self, outcome: tuple[Any, BaseException | None]) -> None:
        self.has_returned = True
        self._on_return()
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class Threads:
    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[ThreadJob | None] = SimpleQueue()
        self._started = 0
        self._idle = 0

    def start(self, function: Callable[[], Any], on_return: Callable[[], None]) -> ThreadJob:
        """To be called on the event loop, which also gets the outcome."""
        job = ThreadJob(function, on_return)
        if self._idle:
            self._idle -= 1
        else:
            self._started += 1
            threading.Thread(
                target=self._work,
                args=(asyncio.get_running_loop(),),
                name=f"{self._name}-{self._started}",
                daemon=True,
            ).start()
        self._jobs.put(job)
        return job

    def close(self) -> None:
        """Idle threads end; busy ones end when their function returns, if it ever does."""
        for _ in range(self._started):
            self._jobs.put(None)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while (job := self._jobs.get()) is not None:
            outcome = job.execute()
            try:
                loop.call_soon_threadsafe(self._done, job, outcome)
            except RuntimeError:
                return  # the loop is closed: nobody waits for this result any more
            del job, outcome

    def _done(self, job: ThreadJob, outcome: tuple[Any, BaseException | None]) -> None:
        self._idle += 1
        job.settle(outcome)
