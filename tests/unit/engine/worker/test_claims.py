"""Claims, the start check, and reports that accumulate."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from runnel.authoring.context import Context
from runnel.core.commands import Command
from runnel.core.effects import TaskMessage
from runnel.core.ids import TaskToken
from runnel.engine.worker import reports
from runnel.errors import StoreError
from runnel.ports.store import TaskQueue
from runnel.ports.workers import HeartbeatReply, WorkerInfo
from runnel.testing.clock import FakeClock, settle
from tests.unit.engine.worker.worker_harness import WAIT_S, WorkerHarness
from tests.waiting import wait_until


class RecordingTaskQueue:
    """A task queue that passes everything on, records the calls, and can fail."""

    def __init__(self, tasks: TaskQueue) -> None:
        self._tasks = tasks
        self.limits: list[int] = []
        self.report_sizes: list[int] = []
        self.beats: list[list[TaskToken]] = []
        self.started: list[TaskToken] = []
        self.begun: list[TaskToken] = []
        self.failures: dict[str, int] = {}
        self.drops: list[TaskToken] = []
        self.empty_claims = 0
        self.report_gate = asyncio.Event()
        self.report_gate.set()

    async def claim(
        self,
        worker: str,
        queues: Sequence[str] | None,
        *,
        limit: int,
        wait_s: float,
        starts_tasks: bool = False,
    ) -> Sequence[TaskMessage]:
        self._maybe_fail("claim")
        self.limits.append(limit)
        if self.empty_claims:
            self.empty_claims -= 1
            return ()
        tasks = await self._tasks.claim(
            worker, queues, limit=limit, wait_s=wait_s, starts_tasks=starts_tasks
        )
        self.started += [task.token for task in tasks if starts_tasks]
        return tasks

    async def report(self, worker: str, reports: Sequence[Command]) -> Sequence[bool]:
        self._maybe_fail("report")
        self.report_sizes.append(len(reports))
        await self.report_gate.wait()
        acknowledgements = await self._tasks.report(worker, reports)
        self._maybe_fail("answer to a report")
        return acknowledgements

    def begin(self, token: TaskToken) -> None:
        self.begun.append(token)
        self._tasks.begin(token)

    def end(self, token: TaskToken) -> None:
        self._tasks.end(token)

    async def beat(
        self, worker: str, holds: Sequence[TaskToken], *, about: WorkerInfo | None = None
    ) -> HeartbeatReply:
        self.beats.append(list(holds))
        orders = await self._tasks.beat(worker, holds, about=about)
        return replace(orders, stop=[*orders.stop, *self.drops])

    def _maybe_fail(self, call: str) -> None:
        if self.failures.get(call, 0):
            self.failures[call] -= 1
            raise StoreError("the store is away")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tasks, name)


def recorded(stage: WorkerHarness) -> RecordingTaskQueue:
    tasks = RecordingTaskQueue(stage.backend.tasks)
    stage.backend.tasks = tasks
    return tasks


async def test_one_claim_takes_as_many_tasks_as_there_are_free_slots(stage: WorkerHarness) -> None:
    tasks = recorded(stage)
    await stage.issue(*(stage.task("output", node=f"n{index}") for index in range(10)))

    async with stage.working(concurrency=4):
        await stage.results(10)

    assert max(tasks.limits) == 4
    assert sum(1 for _ in tasks.limits) <= 5


async def test_tasks_that_never_wait_free_their_slots_for_the_next_claim(
    stage: WorkerHarness,
) -> None:
    tasks = recorded(stage)
    await stage.issue(*(stage.task("output") for _ in range(3)))

    async with stage.working(concurrency=4):
        await stage.results(3)
        await stage.issue(*(stage.task("output") for _ in range(20)))
        await stage.results(23)

    assert set(tasks.limits) == {4}


async def test_never_more_tasks_run_than_there_are_slots_over_all_queues(
    stage: WorkerHarness,
) -> None:
    running, most = 0, 0

    async def count(config: Any, ctx: Context) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    stage.handlers.register("a", count)
    stage.handlers.register("b", count)
    await stage.issue(*(stage.task(name) for _ in range(20) for name in ("a", "b")))

    async with stage.working(concurrency=3):
        await stage.results(40)

    assert most == 3


async def test_a_task_that_was_claimed_ahead_has_not_begun(stage: WorkerHarness) -> None:
    """If the process dies in the code of the task before it, this task is not a suspect."""
    tasks, is_held, may_end = recorded(stage), asyncio.Event(), asyncio.Event()

    async def hold(config: Any, ctx: Context) -> None:
        if config["holds"]:
            is_held.set()
            await may_end.wait()

    stage.handlers.register("hold", hold)
    issued = [stage.task("hold", {"holds": number == 5}) for number in range(10)]
    await stage.issue(*issued)

    async with stage.working(concurrency=1, claim_ahead=60):
        await asyncio.wait_for(is_held.wait(), WAIT_S)
        began, started = list(tasks.begun), list(tasks.started)
        may_end.set()
        await stage.results(10)

    tokens = [task.token for task in issued]
    assert (began, started) == (tokens[:6], tokens)
    assert tasks.begun == tokens


async def test_a_running_task_that_is_delivered_again_is_run_once(
    stage: WorkerHarness,
) -> None:
    """The store was rolled back to before the first claim."""
    tasks, may_end = recorded(stage), asyncio.Event()

    async def hold(config: Any, ctx: Context) -> None:
        await may_end.wait()

    stage.handlers.register("hold", hold)
    task = stage.task("hold")
    await stage.issue(task)

    async with stage.working(concurrency=2):
        await wait_until(lambda: len(stage.telemetry.started_tokens) == 1)
        claims = len(tasks.limits)
        await stage.issue(task)
        await wait_until(lambda: len(tasks.limits) > claims)
        may_end.set()
        await stage.results(1)

    assert stage.telemetry.started_tokens == [task.token]


async def test_only_the_given_queues_are_served(stage: WorkerHarness) -> None:
    await stage.issue(stage.task("output", {"q": 1}, queue="tasks:far"))

    async with stage.working(queues=("tasks:near",)):
        await stage.issue(stage.task("output", {"q": 2}, queue="tasks:near"))
        [completed] = await stage.results(1)

    assert completed.output.decode() == {"q": 2}  # type: ignore[union-attr]  # it completed


async def test_results_accumulate_while_a_report_is_running(stage: WorkerHarness) -> None:
    tasks = recorded(stage)
    tasks.report_gate.clear()
    await stage.issue(stage.task("output"))

    async with stage.working(concurrency=2):
        await wait_until(lambda: tasks.report_sizes == [1])
        await stage.issue(*(stage.task("output") for _ in range(7)))
        await wait_until(lambda: len(stage.telemetry.started_tokens) == 8)
        tasks.report_gate.set()
        await stage.results(8)

    assert tasks.report_sizes == [1, 7]


async def test_a_slot_is_free_again_before_the_report_is_acknowledged(stage: WorkerHarness) -> None:
    tasks = recorded(stage)
    tasks.report_gate.clear()
    await stage.issue(stage.task("output"), stage.task("output"))

    async with stage.working(concurrency=1) as worker:
        await wait_until(lambda: len(stage.telemetry.started_tokens) == 2)
        held = worker.holds
        tasks.report_gate.set()
        await stage.results(2)

    assert held == 2


async def test_a_refused_report_is_reported_to_telemetry(stage: WorkerHarness) -> None:
    tasks = recorded(stage)
    tasks.report_gate.clear()
    task = stage.task("output")
    await stage.issue(task)

    async with stage.working() as worker:
        await wait_until(lambda: tasks.report_sizes == [1])
        await stage.drop(task.token)
        tasks.report_gate.set()
        await wait_until(lambda: worker.holds == 0)

    assert len(stage.telemetry.named("report.refused")) == 1
    assert await stage.read_reports() == []


async def test_a_report_that_is_refused_after_a_lost_answer_is_no_warning(
    stage: WorkerHarness,
) -> None:
    tasks = recorded(stage)
    tasks.failures["answer to a report"] = 1
    await stage.issue(stage.task("output"))

    async with stage.working() as worker:
        await wait_until(lambda: tasks.report_sizes == [1, 1])
        await wait_until(lambda: worker.holds == 0)

    assert len(stage.telemetry.named("store.failed")) == 1
    assert stage.telemetry.named("report.refused") == []


async def test_a_store_that_is_down_is_called_again_and_loses_nothing(
    frozen: WorkerHarness, clock: FakeClock
) -> None:
    tasks = recorded(frozen)
    tasks.failures = {"claim": 2, "report": 2}
    await frozen.issue(frozen.task("output", {"x": 1}))

    async with frozen.working():
        await clock.advance(10)
        [completed] = await frozen.results(1)

    assert completed.output.decode() == {"x": 1}  # type: ignore[union-attr]  # it completed
    calls = [fields["call"] for fields in frozen.telemetry.named("store.failed")]
    assert calls == ["claim", "claim", "report", "report"]


async def test_each_heartbeat_lists_the_held_tasks(frozen: WorkerHarness, clock: FakeClock) -> None:
    tasks, go = recorded(frozen), asyncio.Event()

    @frozen.handlers.handler("slow")
    async def slow(config: Any, ctx: Context) -> None:
        await go.wait()

    task = frozen.task("slow")
    async with frozen.working(beat_s=5.0):
        await settle()
        await frozen.issue(task)
        await clock.advance(5)
        go.set()
        await frozen.results(1)
        await clock.advance(5)
        beats = list(tasks.beats)

    assert beats == [[], [task.token], []]


async def test_a_task_that_is_dropped_while_it_waits_for_a_slot_never_runs(
    stage: WorkerHarness,
) -> None:
    tasks, go = recorded(stage), asyncio.Event()

    @stage.handlers.handler("slow")
    async def slow(config: Any, ctx: Context) -> None:
        await go.wait()

    first, second = stage.task("slow"), stage.task("slow")
    async with stage.working(concurrency=1) as worker:
        await stage.issue(first, second)
        await wait_until(lambda: stage.telemetry.started_tokens == [first.token])
        await stage.drop(second.token)
        go.set()
        await stage.results(1)
        await wait_until(lambda: worker.holds == 0)

    assert stage.telemetry.started_tokens == [first.token]
    assert tasks.limits


async def test_nothing_is_claimed_while_too_many_results_wait_for_the_store(
    stage: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "WAITING_MAX", 4)
    monkeypatch.setattr(reports, "BATCH_MAX", 2)
    tasks = recorded(stage)
    tasks.report_gate.clear()
    await stage.issue(*(stage.task("output") for _ in range(40)))

    async with stage.working(concurrency=8):
        await wait_until(lambda: tasks.report_sizes == [2])
        await settle()
        started_count = len(stage.telemetry.started_tokens)
        tasks.report_gate.set()
        await stage.results(40)

    assert started_count <= 16  # a running claim, and one more that waited for a slot
    assert set(tasks.report_sizes) == {2}


async def test_a_claim_without_a_task_is_repeated(stage: WorkerHarness) -> None:
    tasks = recorded(stage)
    tasks.empty_claims = 3

    async with stage.working():
        await stage.issue(stage.task("output"))

        assert len(await stage.results(1)) == 1
    assert tasks.empty_claims == 0


async def test_a_dropped_token_that_is_not_held_is_ignored(stage: WorkerHarness) -> None:
    unknown, held = stage.task("output"), stage.task("output")
    recorded(stage).drops = [unknown.token]

    async with stage.working():
        await stage.issue(held)
        [completed] = await stage.results(1)

    assert completed.token == held.token
