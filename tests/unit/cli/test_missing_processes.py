"""A watching command warns once about a missing process, and only after a grace period."""

import pytest

from runnel.backends.memory import MemoryBackend
from runnel.cli.session.follow import GRACE_S, NO_ORCHESTRATOR, NO_WORKER, MissingProcessWarning
from runnel.client.operations import StoreOperations
from runnel.core.ids import ExecutionId
from runnel.ports.workers import WorkerInfo
from runnel.settings.model import Settings
from runnel.testing.clock import FakeClock, FakeIds

SETTINGS = Settings(lease_s=6.0, heartbeat_timeout_s=6.0)
EXECUTION = ExecutionId("e1")


class MissingProcessHarness:
    """A store, and the warnings that a watching command prints."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.backend = MemoryBackend(self.clock, FakeIds("store"))
        self.warnings: list[str] = []
        self._warning = MissingProcessWarning(
            StoreOperations(self.backend, self.clock, SETTINGS),
            self.clock,
            queues=frozenset({"tasks:output"}),
        )

    async def check_for(self, *, seconds: float) -> list[str]:
        """Checks once a second for `seconds`; returns the new warnings."""
        before = len(self.warnings)
        for _ in range(int(seconds) + 1):
            await self._warning.check(EXECUTION, self.warnings.append)
            await self.clock.advance(1.0)
        return self.warnings[before:]


@pytest.fixture
def harness() -> MissingProcessHarness:
    return MissingProcessHarness()


async def test_a_missing_process_is_reported_once_after_the_grace_period(
    harness: MissingProcessHarness,
) -> None:
    assert await harness.check_for(seconds=GRACE_S - 1) == []
    assert await harness.check_for(seconds=5) == [NO_ORCHESTRATOR, NO_WORKER]
    assert await harness.check_for(seconds=5) == []


async def test_a_process_that_started_and_died_is_reported_again(
    harness: MissingProcessHarness,
) -> None:
    await harness.check_for(seconds=3)
    await harness.backend.store.acquire(await harness.backend.store.route(EXECUTION), "one")
    await harness.backend.tasks.beat("worker", [], about=WorkerInfo())

    assert await harness.check_for(seconds=1) == []
    # Neither process renews its lease or sends a heartbeat.
    assert await harness.check_for(seconds=7) == [NO_ORCHESTRATOR, NO_WORKER]


async def test_a_worker_with_a_long_heartbeat_interval_is_reported_later(
    harness: MissingProcessHarness,
) -> None:
    await harness.check_for(seconds=3)
    await harness.backend.tasks.beat("worker", [], about=WorkerInfo(beat_s=4.0))

    assert await harness.check_for(seconds=12) == []
    assert await harness.check_for(seconds=2) == [NO_WORKER]
