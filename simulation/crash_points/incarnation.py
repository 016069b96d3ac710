"""One process of a crash point, which starts the execution or resumes it after a crash."""

import asyncio
import logging
import os
import signal
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NoReturn

from runnel.app.embedded_engine import EmbeddedEngine, run_engine
from runnel.app.process_signals import build_engine_name
from runnel.client.store_client import StoreClient
from runnel.engine.clock import RealClock
from runnel.engine.services.dead_workers import POLLS_PER_TIMEOUT, Reaper
from runnel.notify.waiter import Completion
from runnel.ports import Backend
from runnel.ports.archive import ExecutionFilter
from simulation.crash_points.backend import CrashPointCounter, InjectedFault
from simulation.crash_points.journal import JournalFile, RunJournal, WarningRecorder
from simulation.crash_points.scenario import Scenario, ScenarioCaller
from simulation.crash_points.storage import CrashPointStorage
from simulation.crash_points.verdict import read_executions, save_snapshot

POLL_INTERVAL_S = 0.005


class StallTolerantClock(RealClock):
    """A clock on which a stall of the process counts as one short step.

    Timeouts are so short here that on a busy machine a live worker would be declared dead. The
    observer and the observed worker are in one process, so both stall together.
    """

    def __init__(self, *, step_s_max: float) -> None:
        self._step_s_max = step_s_max
        self._last_read_at = super().monotonic()
        self._passed_s = 0.0

    def monotonic(self) -> float:
        now = super().monotonic()
        self._passed_s += min(now - self._last_read_at, self._step_s_max)
        self._last_read_at = now
        return self._passed_s


@asynccontextmanager
async def run_shared_engine(engine: EmbeddedEngine, *, dead_after_s: float) -> AsyncIterator[None]:
    """Runs the engine with a reaper inside the block, then drains and closes it."""
    backend = engine.backend
    clock = StallTolerantClock(step_s_max=dead_after_s / POLLS_PER_TIMEOUT)
    # The killed process has sent fewer than two heartbeats, so its crash points are the same in
    # every run.
    reaper = Reaper(
        backend.store,
        backend.tasks,
        clock,
        engine.event_bus,
        dead_after_s=dead_after_s,
        allows_grace=False,
    )
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(engine.run(adopts=True))
            group.create_task(reaper.run(engine.stops.drain))
            try:
                yield
            finally:
                engine.stops.drain.set()
    finally:
        await backend.close()


async def wait_until_sole_owner(engine: EmbeddedEngine, backend: Backend) -> None:
    """Waits until this engine owns all work and no other worker is registered."""
    while not await _is_sole_owner(engine, backend):
        await engine.clock.sleep(POLL_INTERVAL_S)


async def _is_sole_owner(engine: EmbeddedEngine, backend: Backend) -> bool:
    owned = {lease.partition for lease in engine.leases()}
    if not set(await backend.store.partitions_with_work()) <= owned:
        return False
    return {record.worker for record in await backend.tasks.workers()} <= {engine.name}


SUBMITTED = "submitted"
# Only a process that resumes needs a short timeout, because the first process has no dead process
# to detect.
DEAD_AFTER_S = 0.2
DEAD_AFTER_S_DEFAULT = 9.0


async def run_first_incarnation(
    scenario: Scenario, storage: CrashPointStorage, journal: RunJournal, fault: InjectedFault
) -> None:
    """Runs a new execution until it is final, as `runnel run` does, and saves a snapshot."""
    await _run_incarnation(scenario, storage, journal, fault, resumes=False)


async def run_resuming_incarnation(
    scenario: Scenario, storage: CrashPointStorage, journal: RunJournal, fault: InjectedFault
) -> None:
    """Takes over free partitions and runs them until the execution is final, as `runnel resume`
    does.

    Saves a snapshot of the state after the crash, and another snapshot of the final state.
    """
    await _run_incarnation(scenario, storage, journal, fault, resumes=True)


async def _run_incarnation(
    scenario: Scenario,
    storage: CrashPointStorage,
    journal: RunJournal,
    fault: InjectedFault,
    *,
    resumes: bool,
) -> None:
    world = storage.make_world()
    name = build_engine_name(world.ids.nonce())
    logging.getLogger("runnel").addHandler(WarningRecorder(journal, name))
    points = CrashPointCounter(journal, fault)
    opened = await storage.open(journal, world, scenario.limits, points)
    if resumes:
        save_snapshot(journal, storage.summarize(journal, engine=name))
    settings = storage.settings(journal, detects_failures_fast=resumes or not fault.kills_process)
    engine = EmbeddedEngine(
        opened.instrumented, scenario.handlers(journal), world, settings, name=name
    )
    caller = ScenarioCaller(engine, journal)
    async with _run_engine(engine, storage, resumes=resumes):
        if resumes:
            await engine.recovered.wait()
        await _play_scenario(scenario, caller)
        if storage.is_shared:
            await wait_until_sole_owner(engine, opened.plain)
        points.disable()
        # A separate client, whose calls are not crash points.
        observer = StoreClient(
            opened.plain, world.clock, world.ids, get_completion=lambda _id: Completion()
        )
        executions = await read_executions(observer)
    await opened.plain.close()
    journal.append(JournalFile.COUNTS, f"{points.calls} {points.points}")
    save_snapshot(journal, storage.summarize(journal, engine=name), executions)


def _run_engine(
    engine: EmbeddedEngine, storage: CrashPointStorage, *, resumes: bool
) -> AbstractAsyncContextManager[object]:
    if storage.is_shared:
        return run_shared_engine(
            engine, dead_after_s=DEAD_AFTER_S if resumes else DEAD_AFTER_S_DEFAULT
        )
    return run_engine(engine, adopts=resumes)


async def _play_scenario(scenario: Scenario, caller: ScenarioCaller) -> None:
    await caller.call_until_answered(lambda: _find_or_submit(scenario, caller))
    await scenario.caller_actions(caller)
    await caller.call_until_answered(lambda: caller.client.wait_for_end(caller.execution_id))


async def _find_or_submit(scenario: Scenario, caller: ScenarioCaller) -> None:
    """Submits the execution, unless an earlier submit without a response has stored it."""
    page = await caller.client.list_executions(ExecutionFilter(limit=2))
    executions = page.items
    assert len(executions) <= 1, f"expected one execution, found {len(executions)}"
    assert executions or not caller.has_answer(SUBMITTED), "an accepted execution does not exist"
    if executions:
        caller.execution_id = executions[0].execution_id
        return
    begin = caller.client.hold if scenario.is_held else caller.client.submit
    caller.execution_id = await begin(scenario.workflow, scenario.input)
    caller.record_answer(SUBMITTED)


# Each incarnation is a forked process, because a fork takes only milliseconds. The parent must not
# have other threads or an event loop, because a fork copies neither.

EXIT_OK = 0
EXIT_FAILED = 1


def run_in_child(work: Callable[[], None], journal: RunJournal, *, deadline_s: float) -> int:
    """Runs `work` in a forked process and returns its exit code.

    A negative code is the signal that ended the process; after `deadline_s` it is SIGALRM. An
    exception of the process is recorded as a warning.
    """
    pid = os.fork()
    if pid == 0:
        _run_forked(work, journal, deadline_s)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def _run_forked(work: Callable[[], None], journal: RunJournal, deadline_s: float) -> NoReturn:
    code = EXIT_FAILED
    try:
        signal.setitimer(signal.ITIMER_REAL, deadline_s)
        work()
        code = EXIT_OK
    except BaseException:  # noqa: BLE001 - the process ends here after any error
        journal.append(JournalFile.WARNINGS, traceback.format_exc())
    finally:
        os._exit(code)
