"""Slots, and the runs that wait for one."""

import asyncio

import pytest

from runnel.engine.store_retry import StoreRetry
from runnel.engine.worker import WorkerDependencies
from runnel.engine.worker import slots as slots_module
from runnel.engine.worker.refusals import TaskRefusals
from runnel.engine.worker.reports import Reporter
from runnel.engine.worker.slots import ClaimLoop, RunSlot, Slots
from runnel.engine.worker.task_run import HeldTasks, StopReason, TaskRun
from runnel.errors import TooManyWaitingTasksError
from runnel.ports.clock import NoSecrets
from runnel.testing.clock import settle
from tests.unit.engine.worker.worker_harness import WorkerHarness


async def test_a_run_that_was_stopped_in_the_queue_is_skipped(frozen: WorkerHarness) -> None:
    slots = Slots(2)
    dropped, kept = TaskRun(frozen.task("output")), TaskRun(frozen.task("output"))
    slots.put([dropped, kept])
    dropped.stop(StopReason.DROPPED, kill_at=1.0)

    async with asyncio.TaskGroup() as group:
        claimer = group.create_task(slots.wait_claimable())
        await settle()
        was_waiting = not claimer.done()
        taken = await slots.take()

    assert was_waiting
    assert claimer.result() == 1
    assert taken is kept
    assert (dropped.is_finished, slots.free) == (True, 1)


async def test_a_run_goes_to_a_runner_that_still_waits(frozen: WorkerHarness) -> None:
    slots, run = Slots(2), TaskRun(frozen.task("output"))

    async with asyncio.TaskGroup() as group:
        patient, cancelled = (group.create_task(slots.take()) for _ in range(2))
        await settle()
        cancelled.cancel()
        await settle()
        slots.put([run])

    assert patient.result() is run


async def end_at_once(slots: Slots, stage: WorkerHarness, count: int) -> None:
    for _ in range(count):
        slots.put([TaskRun(stage.task("output"))])
        await slots.take()
        slots.release()


async def test_nothing_is_claimed_ahead_before_runs_have_ended_without_waiting(
    frozen: WorkerHarness,
) -> None:
    slots = Slots(2, claim_ahead=10)

    at_first = slots.claimable
    await end_at_once(slots, frozen, 2)

    assert (at_first, slots.claimable) == (2, 12)


async def test_a_run_that_waits_stops_claiming_ahead(frozen: WorkerHarness) -> None:
    slots = Slots(2, claim_ahead=10)
    await end_at_once(slots, frozen, 2)
    slots.put([TaskRun(frozen.task("output"))])
    await slots.take()

    slots.note_suspended()

    assert slots.claimable == 1


async def test_runs_that_waited_and_ended_together_do_not_start_claiming_ahead(
    frozen: WorkerHarness,
) -> None:
    slots = Slots(2, claim_ahead=10)
    slots.put([TaskRun(frozen.task("output")) for _ in range(2)])
    for _ in range(2):
        await slots.take()
        slots.note_suspended()

    for _ in range(2):
        slots.release(has_waited=True)

    assert slots.claimable == 2


async def test_no_more_tasks_run_than_there_are_slots_also_when_more_were_claimed(
    frozen: WorkerHarness,
) -> None:
    slots = Slots(2, claim_ahead=10)
    await end_at_once(slots, frozen, 2)
    slots.put([TaskRun(frozen.task("output")) for _ in range(slots.claimable)])

    async with asyncio.TaskGroup() as group:
        takers = [group.create_task(slots.take()) for _ in range(3)]
        await settle()
        taken = sum(taker.done() for taker in takers)
        slots.release()
        slots.wake_runner()

    assert (taken, slots.claimable) == (2, 1)


async def take_runs(slots: Slots, stage: WorkerHarness, count: int) -> list[RunSlot]:
    slots.put([TaskRun(stage.task("output")) for _ in range(count)])
    return [RunSlot(slots, await slots.take()) for _ in range(count)]


async def test_a_run_that_waits_for_an_execution_lends_its_slot_to_the_next_run(
    frozen: WorkerHarness,
) -> None:
    slots = Slots(1)
    (waiting,) = await take_runs(slots, frozen, 1)

    async with waiting.lend():
        during = slots.claimable
        (other,) = await take_runs(slots, frozen, 1)
        async with other.lend():
            both = slots.claimable
        slots.release()

    assert (during, both, slots.claimable) == (1, 1, 0)


async def test_a_run_takes_a_slot_back_before_queued_runs_begin(frozen: WorkerHarness) -> None:
    slots = Slots(1)
    (waiting,) = await take_runs(slots, frozen, 1)
    order: list[str] = []

    async def wait_for_execution() -> None:
        async with waiting.lend():
            await take_runs(slots, frozen, 1)
        order.append("returned")

    async def take_next() -> None:
        await slots.take()
        order.append("next")

    async with asyncio.TaskGroup() as group:
        group.create_task(wait_for_execution())
        await settle()
        was_waiting = not order
        slots.put([TaskRun(frozen.task("output"))])
        group.create_task(take_next())
        await settle()
        slots.release()
        await settle()
        after_one = list(order)
        slots.release()
        slots.wake_runner()

    assert was_waiting
    assert after_one == ["returned"]
    assert order == ["returned", "next"]
    assert slots.free == 0


@pytest.mark.parametrize("is_granted", [False, True])
async def test_a_cancelled_run_takes_its_slot_back_at_once(
    frozen: WorkerHarness, *, is_granted: bool
) -> None:
    slots = Slots(1)
    (waiting,) = await take_runs(slots, frozen, 1)

    async def wait_for_execution() -> None:
        async with waiting.lend():
            await take_runs(slots, frozen, 1)

    async with asyncio.TaskGroup() as group:
        call = group.create_task(wait_for_execution())
        await settle()
        if is_granted:
            slots.release()  # the slot is passed on, and the call is cancelled before it resumes
        call.cancel()
    free_while_cleaning_up = slots.free
    slots.release()
    if not is_granted:
        slots.release()

    assert free_while_cleaning_up == (0 if is_granted else -1)
    assert (slots.free, slots.claimable) == (1, 1)


async def test_a_run_that_waits_for_several_executions_lends_one_slot(
    frozen: WorkerHarness,
) -> None:
    slots = Slots(2)
    (waiting,) = await take_runs(slots, frozen, 1)

    async with waiting.lend():
        async with waiting.lend():
            both = slots.free
        one = slots.free

    assert (both, one, slots.free) == (2, 2, 1)


async def test_a_run_that_ends_while_its_code_still_waits_gives_back_exactly_one_slot(
    frozen: WorkerHarness,
) -> None:
    slots = Slots(1)
    (waiting,) = await take_runs(slots, frozen, 1)

    async with waiting.lend():
        waiting.close()
        slots.release()

    assert slots.free == 1


async def test_the_number_of_lent_slots_is_bounded(
    frozen: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots_module, "LENT_MAX", 1)
    slots = Slots(2)
    first, second = await take_runs(slots, frozen, 2)

    async with first.lend():
        with pytest.raises(TooManyWaitingTasksError, match="1 tasks of this worker already wait"):
            async with second.lend():
                pass

    assert slots.free == 0


async def test_resumed_runs_and_claimed_runs_take_turns(frozen: WorkerHarness) -> None:
    slots = Slots(1)
    resumed = [TaskRun(frozen.task("output")) for _ in range(3)]
    claimed = [TaskRun(frozen.task("output")) for _ in range(2)]
    for run in resumed:
        slots.put_resumed(run)
    slots.put(claimed)

    taken = []
    for _ in range(5):
        taken.append(await slots.take())
        slots.release()

    assert taken == [resumed[0], claimed[0], resumed[1], claimed[1], resumed[2]]


async def test_after_a_resumed_run_the_slot_is_kept_for_one_claim(frozen: WorkerHarness) -> None:
    slots = Slots(1)
    first, second = (TaskRun(frozen.task("output")) for _ in range(2))
    slots.put_resumed(first)
    slots.put_resumed(second)
    await slots.take()

    async with asyncio.TaskGroup() as group:
        claimer = group.create_task(slots.wait_claimable())
        await settle()
        slots.release()
        runner = group.create_task(slots.take())
        await settle()
        was_kept = claimer.done() and not runner.done()
        slots.end_claim(0)

    assert was_kept
    assert runner.result() is second


def make_dependencies(stage: WorkerHarness) -> WorkerDependencies:
    tasks, clock, telemetry = stage.backend.tasks, stage.clock, stage.telemetry
    return WorkerDependencies(
        worker="w1",
        tasks=tasks,
        clock=clock,
        telemetry=telemetry,
        store_retry=StoreRetry(clock, telemetry, "w1"),
        secrets=NoSecrets(),
        refusals=TaskRefusals(tasks, clock, telemetry, worker="w1", hand_back_s=0.0),
    )


async def test_a_cancelled_claim_starts_no_runner(frozen: WorkerHarness) -> None:
    slots = Slots(1)
    started: list[None] = []
    slots.open(lambda: started.append(None))
    dependencies = make_dependencies(frozen)
    held = HeldTasks()
    claims = ClaimLoop(dependencies, slots, Reporter(dependencies, held), held=held, queues=None)
    loop = asyncio.create_task(claims.run())
    await settle()
    # The queued run finds no free slot until the claim is cancelled.
    slots.free = 0
    slots.put_resumed(TaskRun(frozen.task("output")))
    slots.free = 1

    loop.cancel()
    await asyncio.wait([loop])

    assert started == []
    assert loop.cancelled()
