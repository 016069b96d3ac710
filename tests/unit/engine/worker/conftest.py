import pytest

from runnel.engine.clock import RealClock
from runnel.testing.clock import FakeClock
from tests.unit.engine.worker.worker_harness import WorkerHarness


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def frozen(clock: FakeClock) -> WorkerHarness:
    """A worker harness whose time stands still until the test moves `clock`."""
    return WorkerHarness(clock)


@pytest.fixture
def stage() -> WorkerHarness:
    """A worker harness in real time, for immediate events and for threads."""
    return WorkerHarness(RealClock())
