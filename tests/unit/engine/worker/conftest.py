import pytest

from runnel.engine.clock import RealClock
from runnel.testing.clock import FakeClock
from tests.unit.engine.worker.stage import Stage


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def frozen(clock: FakeClock) -> Stage:
    """A stage on which time stands still until the test moves `clock`."""
    return Stage(clock)


@pytest.fixture
def stage() -> Stage:
    """A stage in real time, for what happens at once, and for threads."""
    return Stage(RealClock())
