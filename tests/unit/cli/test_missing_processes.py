"""A follower is warned once about a missing process, and only after `GRACE_S`."""

import pytest

from runnel.backends.memory import MemoryBackend
from runnel.cli.session.watch import GRACE_S, NO_ORCHESTRATOR, NO_WORKER, MissingProcessWarning
from runnel.client.operations import StoreOperations
from runnel.core.ids import ExecutionId
from runnel.ports.workers import WorkerInfo
from runnel.settings.model import Settings
from runnel.testing.clock import FakeClock, FakeIds

SETTINGS = Settings(lease_s=6.0, heartbeat_timeout_s=6.0)
EXECUTION = ExecutionId("e1")


class Scene:
    """A store, a follower and the warnings that it gets."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.backend = MemoryBackend(self.clock, FakeIds("store"))
        self.said: list[str] = []
        self._absence = MissingProcessWarning(
            StoreOperations(self.backend, self.clock, SETTINGS),
            self.clock,
            queues=frozenset({"tasks:output"}),
        )

    async def look(self, *, seconds: float) -> list[str]:
        """Checks once a second for `seconds` and returns the new warnings."""
        before = len(self.said)
        for _ in range(int(seconds) + 1):
            await self._absence.check(EXECUTION, self.said.append)
            await self.clock.advance(1.0)
        return self.said[before:]


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_nobody_is_missed_before_a_moment_has_passed_and_then_once(scene: Scene) -> None:
    assert await scene.look(seconds=GRACE_S - 1) == []
    assert await scene.look(seconds=5) == [NO_ORCHESTRATOR, NO_WORKER]
    assert await scene.look(seconds=5) == []


async def test_who_came_and_died_is_missed_again(scene: Scene) -> None:
    await scene.look(seconds=3)
    await scene.backend.store.acquire(await scene.backend.store.route(EXECUTION), "one")
    await scene.backend.tasks.beat("worker", [], about=WorkerInfo())

    assert await scene.look(seconds=1) == []
    # Neither sends another heartbeat.
    assert await scene.look(seconds=7) == [NO_ORCHESTRATOR, NO_WORKER]


async def test_a_worker_that_beats_rarely_is_missed_later(scene: Scene) -> None:
    await scene.look(seconds=3)
    await scene.backend.tasks.beat("worker", [], about=WorkerInfo(beat_s=4.0))

    assert await scene.look(seconds=12) == []
    assert await scene.look(seconds=2) == [NO_WORKER]
