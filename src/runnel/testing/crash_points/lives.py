"""The life of one process: it begins the execution, or resumes what another one left behind."""

import logging

from runnel.backends.sqlite import SqliteBackend
from runnel.client import Client, Ending
from runnel.core.ids import ExecutionId
from runnel.ports.archive import ExecutionFilter
from runnel.runtime.clock import RealClock, RealIds
from runnel.runtime.engine import Engine, World, running
from runnel.runtime.names import engine_name
from runnel.settings import Settings
from runnel.testing.crash_points.caller import Caller
from runnel.testing.crash_points.crashing_backend import CrashingBackend, Moments
from runnel.testing.crash_points.diary import About, Diary, WarningNotes
from runnel.testing.crash_points.scenario import Scenario
from runnel.testing.crash_points.snapshot import all_executions, take_snapshot

SUBMITTED = "submitted"


async def begin(scenario: Scenario, diary: Diary, *, crash_at: int | None) -> None:
    """As `runnel run` does: a new execution, until it is final; then a snapshot of the end."""
    await _live(scenario, diary, crash_at=crash_at, resumes=False)


async def resume(scenario: Scenario, diary: Diary, *, crash_at: int | None) -> None:
    """As `runnel resume` does: whatever is free is taken over, until it is final.

    A snapshot of what the crash left comes first, and one of the end after it.
    """
    await _live(scenario, diary, crash_at=crash_at, resumes=True)


async def _live(scenario: Scenario, diary: Diary, *, crash_at: int | None, resumes: bool) -> None:
    logging.getLogger("runnel").addHandler(WarningNotes(diary))
    world = World(RealClock(), RealIds())
    backend = await SqliteBackend.open(
        diary.data_dir, clock=world.clock, ids=world.ids, limits=scenario.limits
    )
    if resumes:
        take_snapshot(diary)
    moments = Moments(diary, crash_at)
    engine = Engine(
        CrashingBackend(backend, moments),
        scenario.handlers(diary),
        world,
        Settings(data_dir=diary.data_dir, shutdown_timeout_s=0.2),
        name=engine_name(world.ids.nonce()),
    )
    caller = Caller(engine, diary)
    async with running(engine, adopts=resumes):
        await _play(scenario, caller, engine if resumes else None)
        # By a client of its own: this is not the caller's, and no call of it is a crash point.
        observer = Client(backend, world.clock, world.ids, ending_of=lambda _id: Ending())
        executions = await all_executions(observer)
    diary.note(About.COUNT, f"{moments.calls} {moments.passed}")
    take_snapshot(diary, executions)


async def _play(scenario: Scenario, caller: Caller, resumed: Engine | None) -> None:
    if resumed is not None:
        await resumed.recovered.wait()
        await _find(caller)
    if not caller.execution_id:
        await _submit(scenario, caller)
    await scenario.acts(caller)
    await caller.client.wait(caller.execution_id)


async def _find(caller: Caller) -> None:
    found = await caller.client.list_executions(ExecutionFilter(limit=2))
    assert len(found) <= 1, f"expected one execution, found {len(found)}"
    assert found or not caller.was_told(SUBMITTED), "an execution was accepted and is gone"
    caller.execution_id = found[0].execution_id if found else ExecutionId("")


async def _submit(scenario: Scenario, caller: Caller) -> None:
    async def submit() -> None:
        caller.execution_id = await caller.client.submit(
            scenario.workflow, scenario.input, is_held=scenario.is_held
        )

    await caller.once(SUBMITTED, submit)
