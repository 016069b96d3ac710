"""The life of one process: it begins the execution, or resumes what another one left behind."""

import asyncio
import logging
import os
import signal
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NoReturn

from runnel.app.engine import Engine, running
from runnel.app.process_signals import engine_name
from runnel.client.store_client import Client
from runnel.engine.clock import RealClock
from runnel.engine.liveness import LOOKS_PER_TIMEOUT
from runnel.engine.services.reaper import Reaper
from runnel.notify.waiter import Ending
from runnel.ports import Backend
from runnel.ports.archive import ExecutionFilter
from simulation.crash_points.backend import Disturbance, Moments
from simulation.crash_points.journal import About, Diary, WarningNotes
from simulation.crash_points.scenario import Caller, Scenario
from simulation.crash_points.storage import Storage
from simulation.crash_points.verdict import all_executions, keep_snapshot

# An engine as a process of a deployment has it: all partitions, and an eye on who is dead.

LOOK_AGAIN_S = 0.005


class UnhurriedClock(RealClock):
    """Time in which the process itself was held up counts as one step, however long it was.

    Times are so short here that a busy machine alone would make a living worker dead: observer
    and observed are one process, and both stand still.
    """

    def __init__(self, *, step_s_max: float) -> None:
        self._step_s_max = step_s_max
        self._looked_at = super().monotonic()
        self._passed_s = 0.0

    def monotonic(self) -> float:
        now = super().monotonic()
        self._passed_s += min(now - self._looked_at, self._step_s_max)
        self._looked_at = now
        return self._passed_s


@asynccontextmanager
async def serving(engine: Engine, *, dead_after_s: float) -> AsyncIterator[None]:
    """The engine works inside the block, and is drained and closed after it."""
    backend = engine.backend
    clock = UnhurriedClock(step_s_max=dead_after_s / LOOKS_PER_TIMEOUT)
    # A life that ended had not beaten twice: its moments are the same each time.
    reaper = Reaper(
        backend.store,
        backend.tasks,
        clock,
        engine.hub,
        dead_after_s=dead_after_s,
        heeds_beats=False,
    )
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(engine.run(adopts=True))
            group.create_task(reaper.run(engine.stops.gently))
            try:
                yield
            finally:
                engine.stops.gently.set()
    finally:
        await backend.close()


async def until_alone(engine: Engine, plain: Backend) -> None:
    """Until all that the dead have held is this engine's: what is left then, it has left."""
    while not await _is_alone(engine, plain):
        await engine.clock.sleep(LOOK_AGAIN_S)


async def _is_alone(engine: Engine, plain: Backend) -> bool:
    owned = {lease.partition for lease in engine.leases()}
    if owned != set(await plain.store.partitions()):
        return False
    return {record.worker for record in await plain.tasks.workers()} <= {engine.name}


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


# A process for each life: forked, so that starting one costs milliseconds.
#
# Only from a process without threads and without an event loop: a fork copies neither.

ENDED = 0
BROKEN = 1


def in_child(live: Callable[[], None], diary: Diary, *, deadline_s: float) -> int:
    """Its exit code: ENDED, BROKEN, what it chose; or minus the signal that ended it.

    After `deadline_s` that is SIGALRM. What it raised is noted as a warning.
    """
    pid = os.fork()
    if pid == 0:
        _live_forked(live, diary, deadline_s)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def _live_forked(live: Callable[[], None], diary: Diary, deadline_s: float) -> NoReturn:
    code = BROKEN
    try:
        signal.setitimer(signal.ITIMER_REAL, deadline_s)
        live()
        code = ENDED
    except BaseException:  # noqa: BLE001 - the process ends here, whatever it was
        diary.note(About.WARNINGS, traceback.format_exc())
    finally:
        os._exit(code)
