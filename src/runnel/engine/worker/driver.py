"""Steps a coroutine of user code inside the slot's own asyncio task.

A task of its own for each coroutine would cost 6 µs; a plain `await` could neither raise a soft
timeout at the place where the code waits, nor end code that swallows its cancellation. Standing
between the asyncio task and the coroutine, this does all three. The first step is made at once,
`asyncio.current_task()` is the same after each suspension (so `asyncio.timeout` and task groups
of the user's work), and context variables that the code sets do not reach the slot's next task.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from runnel.engine.worker.code import Code
from runnel.errors import SoftTimeoutError


class Driver(Code):
    """Takes over after the first step, in which the code has come to wait for `awaited`.

    `enter` is the `run` of the contextvars.Context that the code sees.
    """

    __slots__ = ("_awaited", "_coroutine", "_enter", "_is_killed", "_soft")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        awaited: Any,
        runner: asyncio.Task[None],
        enter: Callable[..., Any],
    ) -> None:
        super().__init__(runner)
        self._coroutine = coroutine
        self._awaited = awaited
        self._enter = enter
        self._soft: SoftTimeoutError | None = None
        self._is_killed = False

    def __await__(self) -> Generator[Any, None, Any]:
        enter, step, awaited = self._enter, self._coroutine.send, self._awaited
        try:
            while True:
                try:
                    yield awaited
                except BaseException as error:  # noqa: BLE001  # handed on to the coroutine
                    awaited = self._throw(error)
                else:
                    awaited = enter(step, None)
        except StopIteration as stop:
            return stop.value

    def soften(self, error: SoftTimeoutError) -> None:
        """Raises `error` where the code waits; the code may catch it and go on."""
        self._soft = error
        self.runner.cancel()

    def cancel(self) -> None:
        self._soft = None
        self.runner.cancel()

    def kill(self) -> None:
        """The code's `finally` blocks run, up to their first await; nothing resumes it again."""
        self._is_killed = True
        self.runner.cancel()

    def _throw(self, error: BaseException) -> Any:
        if self._is_killed or isinstance(error, GeneratorExit):
            self._enter(self._coroutine.close)
            raise error
        if self._soft is not None and isinstance(error, asyncio.CancelledError):
            error, self._soft = self._soft, None
            self.runner.uncancel()
        return self._enter(self._coroutine.throw, error)
