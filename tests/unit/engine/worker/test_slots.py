"""Slots and the runs that wait for one."""

import asyncio

from runnel.engine.worker.runs import Run, StopReason
from runnel.engine.worker.slots import Slots
from runnel.testing.clock import settle
from tests.unit.engine.worker.stage import Stage


async def test_a_run_that_was_stopped_before_its_turn_is_passed_over(frozen: Stage) -> None:
    slots = Slots(2)
    dropped, wanted = Run(frozen.task("output")), Run(frozen.task("output"))
    slots.put([dropped, wanted])
    dropped.stop(StopReason.DROPPED, kill_at=1.0)

    async with asyncio.TaskGroup() as group:
        claimer = group.create_task(slots.wait_claimable())
        await settle()
        was_waiting = not claimer.done()
        taken = await slots.take()

    assert was_waiting
    assert claimer.result() == 1
    assert taken is wanted
    assert (dropped.is_over, slots.free) == (True, 1)


async def test_a_run_goes_to_a_runner_that_still_waits(frozen: Stage) -> None:
    slots, run = Slots(2), Run(frozen.task("output"))

    async with asyncio.TaskGroup() as group:
        patient, gone = (group.create_task(slots.take()) for _ in range(2))
        await settle()
        gone.cancel()
        await settle()
        slots.put([run])

    assert patient.result() is run
