"""Retries of the worker while the store can't be reached."""

import pytest

from runnel.engine.store_retry import RETRY_DELAY_S_MAX, StoreRetry
from runnel.errors import StoreError
from runnel.testing.clock import FakeClock
from tests.unit.engine.worker.worker_harness import RecordingTelemetry


class HastyClock(FakeClock):
    """A clock that records sleeps instead of sleeping."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


class HopelessError(StoreError):
    retryable = False


class FailingStore:
    """A store that answers after a number of failures."""

    def __init__(self, *errors: StoreError) -> None:
        self._errors = list(errors)

    async def ask(self) -> str:
        if self._errors:
            raise self._errors.pop(0)
        return "answer"


async def test_each_wait_is_twice_as_long_up_to_a_limit() -> None:
    clock, telemetry = HastyClock(), RecordingTelemetry()
    away = FailingStore(*(StoreError("away") for _ in range(8)))

    answer = await StoreRetry(clock, telemetry, "w1").run(away.ask, "claim")

    assert answer == "answer"
    assert clock.waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, RETRY_DELAY_S_MAX, RETRY_DELAY_S_MAX]
    assert (
        telemetry.named("store.failed") == [{"worker": "w1", "call": "claim", "error": "away"}] * 8
    )


async def test_an_error_that_is_not_retryable_is_raised_at_once() -> None:
    clock = HastyClock()

    with pytest.raises(HopelessError):
        await StoreRetry(clock, RecordingTelemetry(), "w1").run(
            FailingStore(HopelessError("no")).ask, "claim"
        )
    assert clock.waits == []
