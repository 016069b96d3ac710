"""The life of one process: it begins the execution, or resumes what another one left behind."""

import logging
from contextlib import AbstractAsyncContextManager

from runnel.client import Client, Ending
from runnel.ports.archive import ExecutionFilter
from runnel.runtime.engine import Engine, running
from runnel.runtime.names import engine_name
from runnel.testing.crash_points.caller import Caller
from runnel.testing.crash_points.diary import About, Diary, WarningNotes
from runnel.testing.crash_points.moments import Disturbance, Moments
from runnel.testing.crash_points.scenario import Scenario
from runnel.testing.crash_points.serving import serving, until_alone
from runnel.testing.crash_points.snapshot import all_executions, keep_snapshot
from runnel.testing.crash_points.storage import Storage

SUBMITTED = "submitted"
# Only who comes after a dead one has to be quick: the others would find nobody but themselves.
DEAD_AFTER_S = 0.2
DEAD_AFTER_S_USUAL = 9.0


async def begin(
    scenario: Scenario, storage: Storage, diary: Diary, disturbance: Disturbance
) -> None:
    """As `runnel run` does: a new execution, until it is final; then a snapshot of the end."""
    await _live(scenario, storage, diary, disturbance, resumes=False)


async def resume(
    scenario: Scenario, storage: Storage, diary: Diary, disturbance: Disturbance
) -> None:
    """As `runnel resume` does: whatever is free is taken over, until it is final.

    A snapshot of what the crash left comes first, and one of the end after it.
    """
    await _live(scenario, storage, diary, disturbance, resumes=True)


async def _live(
    scenario: Scenario, storage: Storage, diary: Diary, disturbance: Disturbance, *, resumes: bool
) -> None:
    world = storage.world()
    name = engine_name(world.ids.nonce())
    logging.getLogger("runnel").addHandler(WarningNotes(diary, name))
    moments = Moments(diary, disturbance)
    opened = await storage.open(diary, world, scenario.limits, moments)
    if resumes:
        keep_snapshot(diary, storage.remains(diary))
    settings = storage.settings(diary, is_hasty=resumes or not disturbance.is_deadly)
    engine = Engine(opened.counted, scenario.handlers(diary), world, settings, name=name)
    caller = Caller(engine, diary)
    async with _working(engine, storage, resumes=resumes):
        if resumes:
            await engine.recovered.wait()
        await _play(scenario, caller)
        if storage.is_shared:
            await until_alone(engine, opened.plain)
        moments.end()
        # By a client of its own: this is not the caller's, and no call of it is a crash point.
        observer = Client(opened.plain, world.clock, world.ids, ending_of=lambda _id: Ending())
        executions = await all_executions(observer)
    await opened.plain.close()
    diary.note(About.COUNT, f"{moments.calls} {moments.passed}")
    keep_snapshot(diary, storage.remains(diary), executions)


def _working(
    engine: Engine, storage: Storage, *, resumes: bool
) -> AbstractAsyncContextManager[object]:
    if storage.is_shared:
        return serving(engine, dead_after_s=DEAD_AFTER_S if resumes else DEAD_AFTER_S_USUAL)
    return running(engine, adopts=resumes)


async def _play(scenario: Scenario, caller: Caller) -> None:
    await caller.insist(lambda: _find_or_submit(scenario, caller))
    await scenario.acts(caller)
    await caller.insist(lambda: caller.client.wait(caller.execution_id))


async def _find_or_submit(scenario: Scenario, caller: Caller) -> None:
    """Whoever got no answer, in this life or in the one before, looks whether it is there."""
    page = await caller.client.list_executions(ExecutionFilter(limit=2))
    found = page.headers
    assert len(found) <= 1, f"expected one execution, found {len(found)}"
    assert found or not caller.was_told(SUBMITTED), "an execution was accepted and is gone"
    if found:
        caller.execution_id = found[0].execution_id
        return
    caller.execution_id = await caller.client.submit(
        scenario.workflow, scenario.input, is_held=scenario.is_held
    )
    caller.note_answer(SUBMITTED)
