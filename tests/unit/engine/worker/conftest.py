import pytest

from runnel.engine.clock import RealClock
from runnel.testing.clock import FakeClock
from tests.unit.engine.worker.worker_harness import WorkerHarness


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def frozen(clock: FakeClock) -> WorkerHarness:
    """A stage on which time stands still until the test moves `clock`."""
    return WorkerHarness(clock)


@pytest.fixture
def stage() -> WorkerHarness:
    """A stage in real time, for what happens at once, and for threads."""
    return WorkerHarness(RealClock())
