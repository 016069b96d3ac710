"""Tasks in a queue that no worker serves fail after the timeout, and no others do."""

import pytest

from runnel.authoring.decorators.task import PYTHON_HANDLER
from runnel.backends.memory import MemoryBackend
from runnel.core.commands import TaskFailed
from runnel.core.ids import NodeId
from runnel.core.workflow import Node
from runnel.engine.services.unserved_queues import UnservedQueueService
from runnel.ports.store import Commit, Lease
from runnel.ports.workers import WorkerInfo
from runnel.testing.clock import FakeClock, FakeIds
from runnel.testing.conformance.suite import make_task
from tests.unit.engine.worker.worker_harness import RecordingTelemetry

UNSERVED_S = 60.0


class UnservedQueuesHarness:
    """One task waits in a queue."""

    def __init__(self, queue: str = "tasks:gpu") -> None:
        self._queue = queue
        self.clock = FakeClock()
        self.backend = MemoryBackend(self.clock, FakeIds())
        self.telemetry = RecordingTelemetry()
        self.unserved = self.another()
        self._lease: Lease | None = None

    def another(self) -> UnservedQueueService:
        return UnservedQueueService(
            self.backend.store,
            self.backend.tasks,
            self.clock,
            self.telemetry,
            unserved_s=UNSERVED_S,
        )

    async def issue(self) -> None:
        self._lease = await self.backend.store.acquire(0, "owner")
        await self.backend.store.commit(
            self._lease, Commit(sequence=1, tasks=[make_task("a", queue=self._queue)])
        )

    async def failed(self) -> list[TaskFailed]:
        assert self._lease is not None
        entries = await self.backend.store.read_inbox(self._lease, limit=10, wait_s=0)
        return [entry.command for entry in entries if isinstance(entry.command, TaskFailed)]

    async def beat(self, **about: object) -> None:
        await self.backend.tasks.beat("w", [], about=WorkerInfo(**about))  # type: ignore[arg-type]  # by name


async def test_a_task_that_no_worker_serves_fails_after_the_timeout_and_says_why() -> None:
    bench = UnservedQueuesHarness()
    await bench.issue()
    await bench.beat(queues=("tasks:cpu",))

    counts = [await bench.unserved.tick()]
    for _ in range(2):
        await bench.clock.advance(UNSERVED_S / 2)
        counts.append(await bench.unserved.tick())

    [failed] = await bench.failed()
    assert counts == [0, 0, 1]
    assert failed.error.message == (
        "no handler registered for 'gpu': no live worker has served this queue for 60 s"
    )
    assert not failed.error.retryable
    assert bench.telemetry.named("tasks.unserved") == [{"queue": "tasks:gpu", "rejected": 1}]


async def test_the_error_of_a_python_task_that_no_worker_serves_says_what_to_do() -> None:
    node = Node(id=NodeId("a"), handler=PYTHON_HANDLER)
    bench = UnservedQueuesHarness(queue=node.task_queue)
    await bench.issue()
    await bench.beat(queues=("tasks:cpu",))

    await bench.unserved.tick()
    await bench.clock.advance(UNSERVED_S)
    await bench.unserved.tick()

    [failed] = await bench.failed()
    assert failed.error.message == (
        "no handler registered for 'python': no live worker has served this queue for 60 s. Start "
        "'runnel worker --app MODULE' in the folder of your module, or set RUNNEL_ALLOW_PYTHON"
    )


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ({}, 0),
        ({"queues": ("tasks:cpu", "tasks:gpu")}, 0),
        ({"queues": ("tasks:cpu",)}, 1),
        ({"is_draining": True}, 1),
    ],
    ids=["all queues", "named", "others", "drains"],
)
async def test_a_task_waits_as_long_as_a_live_worker_serves_its_queue(
    about: dict[str, object], expected: int
) -> None:
    bench = UnservedQueuesHarness()
    await bench.issue()
    await bench.beat(**about)

    await bench.unserved.tick()
    await bench.clock.advance(2 * UNSERVED_S)

    assert await bench.unserved.tick() == expected


async def test_while_no_worker_is_alive_tasks_wait_and_an_alarm_is_reported() -> None:
    bench = UnservedQueuesHarness()
    await bench.issue()

    counts = []
    for _ in range(4):
        counts.append(await bench.unserved.tick())
        await bench.clock.advance(UNSERVED_S / 2)

    assert counts == [0] * 4
    assert bench.telemetry.named("workers.missing") == [{"waiting": 1}] * 2


async def test_the_time_restarts_after_a_worker_served_the_queue() -> None:
    bench = UnservedQueuesHarness()
    await bench.issue()
    await bench.beat(queues=("tasks:cpu",))
    await bench.unserved.tick()
    await bench.clock.advance(UNSERVED_S - 1)
    await bench.beat()
    await bench.unserved.tick()
    await bench.beat(queues=("tasks:cpu",))
    await bench.unserved.tick()
    await bench.clock.advance(UNSERVED_S - 1)

    assert await bench.unserved.tick() == 0
    await bench.clock.advance(1)
    assert await bench.unserved.tick() == 1


async def test_one_of_several_services_fails_the_task() -> None:
    bench = UnservedQueuesHarness()
    await bench.issue()
    await bench.beat(queues=("tasks:cpu",))
    all_of_them = [bench.unserved, bench.another(), bench.another()]
    for service in all_of_them:
        await service.tick()
    await bench.clock.advance(UNSERVED_S)

    assert sorted([await service.tick() for service in all_of_them]) == [0, 0, 1]
    assert len(await bench.failed()) == 1
