"""A worker is dead if its counter did not change for the timeout, on the reaper's own clock."""

from runnel.backends.memory import MemoryBackend
from runnel.core.commands import TaskLost
from runnel.engine.services.dead_workers import Reaper
from runnel.ports import telemetry as names
from runnel.ports.store import Commit, Lease
from runnel.ports.telemetry import NullTelemetry
from runnel.ports.workers import WorkerInfo
from runnel.testing.clock import FakeClock, FakeIds
from runnel.testing.conformance.suite import make_task, make_token

DEAD_AFTER_S = 3.0


class RecordingTelemetry(NullTelemetry):
    def __init__(self) -> None:
        self.events: list[tuple[str, object]] = []

    def event(self, name: str, **fields: object) -> None:
        self.events.append((name, fields.get("worker")))


class ReaperHarness:
    """A reaper, and one partition whose owner has issued the task 'a'."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.backend = MemoryBackend(self.clock, FakeIds())
        self.telemetry = RecordingTelemetry()
        self.reaper = Reaper(
            self.backend.store,
            self.backend.tasks,
            self.clock,
            self.telemetry,
            dead_after_s=DEAD_AFTER_S,
        )

    async def claim_as(self, worker: str) -> Lease:
        store = self.backend.store
        lease = await store.acquire(0, "owner")
        await store.commit(lease, Commit(sequence=1, tasks=[make_task("a")]))
        await self.backend.tasks.claim(worker, None, limit=1, wait_s=0)
        return lease


async def test_a_silent_worker_is_found_dead_after_the_timeout_and_once() -> None:
    bench = ReaperHarness()
    lease = await bench.claim_as("w")

    dead_counts = [await bench.reaper.tick()]
    for _ in range(3):
        await bench.clock.advance(DEAD_AFTER_S / 2)
        dead_counts.append(await bench.reaper.tick())

    inbox = await bench.backend.store.read_inbox(lease, limit=10, wait_s=0)
    assert dead_counts == [0, 0, 1, 0]
    assert [type(entry.command) for entry in inbox] == [TaskLost]
    assert bench.telemetry.events == [(names.WORKER_DEAD, "w")]


async def test_a_worker_that_sends_heartbeats_is_alive() -> None:
    bench = ReaperHarness()
    await bench.claim_as("w")

    dead_counts = []
    for _ in range(6):
        await bench.clock.advance(DEAD_AFTER_S / 2)
        await bench.backend.tasks.beat("w", [make_token("a")])
        dead_counts.append(await bench.reaper.tick())

    assert dead_counts == [0] * 6


async def test_a_reaper_that_was_suspended_judges_no_worker_by_missed_heartbeats() -> None:
    bench = ReaperHarness()
    await bench.claim_as("w")
    await bench.reaper.tick()
    await bench.clock.advance(10 * DEAD_AFTER_S)
    await bench.backend.tasks.beat("w", [make_token("a")])

    assert await bench.reaper.tick() == 0


async def test_a_worker_that_left_and_returned_is_not_judged_by_old_heartbeats() -> None:
    bench = ReaperHarness()
    await bench.backend.tasks.beat("w", [])
    await bench.reaper.tick()
    await bench.backend.tasks.leave("w")
    await bench.reaper.tick()
    await bench.clock.advance(10 * DEAD_AFTER_S)
    await bench.backend.tasks.beat("w", [])

    assert await bench.reaper.tick() == 0


async def test_a_worker_with_a_long_interval_is_judged_by_its_own_interval() -> None:
    bench = ReaperHarness()
    await bench.backend.tasks.beat("w", [], about=WorkerInfo(beat_s=DEAD_AFTER_S))

    dead_counts = [await bench.reaper.tick()]
    for _ in range(3):
        await bench.clock.advance(DEAD_AFTER_S)
        dead_counts.append(await bench.reaper.tick())

    assert dead_counts == [0, 0, 0, 1]


async def test_a_worker_whose_interval_fits_the_timeout_is_judged_by_the_timeout() -> None:
    bench = ReaperHarness()
    await bench.backend.tasks.beat("w", [], about=WorkerInfo(beat_s=DEAD_AFTER_S / 3))
    await bench.reaper.tick()

    await bench.clock.advance(DEAD_AFTER_S * 11 / 16)

    assert await bench.reaper.tick() == 1


async def test_one_lost_heartbeat_of_three_per_timeout_is_not_a_death() -> None:
    bench = ReaperHarness()
    slow = WorkerInfo(beat_s=DEAD_AFTER_S / 3)
    await bench.backend.tasks.beat("w", [], about=slow)
    await bench.reaper.tick()

    await bench.clock.advance(2 * slow.beat_s)

    assert await bench.reaper.tick() == 0
