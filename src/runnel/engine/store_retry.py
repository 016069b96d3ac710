"""Retries of store calls while the store can't be reached."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from runnel.errors import StoreError
from runnel.ports.clock import Clock
from runnel.ports.telemetry import STORE_FAILED, Telemetry

RETRY_DELAY_S_FIRST = 0.1
RETRY_DELAY_S_MAX = 5.0

T = TypeVar("T")


class StoreRetry:
    """Repeats calls to a store that can't be reached, with a delay that grows after each
    failure.
    """

    def __init__(self, clock: Clock, telemetry: Telemetry, worker: str) -> None:
        self._clock = clock
        self._telemetry = telemetry
        self._worker = worker

    async def run(self, call: Callable[[], Awaitable[T]], call_name: str) -> T:
        """Repeats the call after each retryable StoreError; raises every other error.

        The call must be safe to repeat. All store calls of a worker are safe to repeat. The store
        detects claims whose reply was lost, and counts a start or a report once per token.
        """
        delay_s = RETRY_DELAY_S_FIRST
        while True:
            try:
                return await call()
            except StoreError as error:
                if not error.retryable:
                    raise
                self._telemetry.event(
                    STORE_FAILED, worker=self._worker, call=call_name, error=str(error)
                )
            await self._clock.sleep(delay_s)
            delay_s = min(2 * delay_s, RETRY_DELAY_S_MAX)
