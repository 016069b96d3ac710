"""Slots, and the runs that wait for one."""

import asyncio

from runnel.engine.worker.slots import Slots
from runnel.engine.worker.task_run import StopReason, TaskRun
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
