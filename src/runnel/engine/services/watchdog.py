"""Checks that every running execution has work in flight, and repairs the executions that have
none.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from runnel.core.commands import Command, ResumeExecution, make_limit_id
from runnel.core.concurrency_key import replay_limit
from runnel.core.decide.decision_context import TIMER_KIND_BY_WAIT
from runnel.core.decide.outcomes import make_execution_timer_key
from runnel.core.effects import TimerKey, TimerKind
from runnel.core.events import Wait
from runnel.core.execution import Execution, NodeRun
from runnel.core.ids import NO_ITEM, ExecutionId, TaskToken
from runnel.core.states import FINAL_EXECUTION_STATES, ExecutionState
from runnel.engine.orchestrator import OrchestratorDependencies
from runnel.engine.orchestrator.aggregates import LoadedExecution
from runnel.engine.orchestrator.orchestrator import Orchestrator
from runnel.engine.orchestrator.partition_owner import PartitionOwner
from runnel.engine.orchestrator.recovery import make_task_lost
from runnel.errors import StoreError
from runnel.ports import telemetry as names
from runnel.ports.store import LossKind


class InFlightWork(msgspec.Struct, frozen=True, kw_only=True):
    """The work that is in flight according to the state of an execution.

    The watchdog checks this work against the store.

    `tasks` maps the token of each issued task to True if the task has started. `limits` maps the
    token of each task that waits for a concurrency key to that key. `is_stuck` is True if the
    execution has not ended and nothing at all is in flight.
    """

    execution_id: ExecutionId
    tasks: dict[TaskToken, bool]
    timers: list[TimerKey]
    children: list[ExecutionId]
    limits: dict[TaskToken, str]
    is_stuck: bool


def collect_in_flight(loaded: LoadedExecution) -> InFlightWork:
    execution = loaded.execution
    tasks = execution.list_in_flight_tokens()
    waiting = [
        token_run for token_run in _list_unsettled_runs(execution) if token_run[1].wait is not None
    ]
    is_waiting = any(run.wait is not Wait.SLOT for _, run in waiting)
    return InFlightWork(
        execution_id=execution.id,
        tasks=tasks,
        timers=[*_list_node_timers(execution, waiting), *_list_execution_timers(execution)],
        children=[
            *(ExecutionId(run.detail) for _, run in waiting if run.wait is Wait.CHILD),
            *(ExecutionId(stop.child) for stop in execution.stopping.values() if stop.child),
        ],
        limits={token: run.key for token, run in waiting if run.wait is Wait.LIMIT},
        is_stuck=not (tasks or is_waiting or execution.stopping) and loaded.agenda.is_empty,
    )


def _list_unsettled_runs(execution: Execution) -> Iterator[tuple[TaskToken, NodeRun]]:
    """Yields every unsettled node, and for a map, instead of its node, every active item."""
    for index, run in enumerate(execution.nodes):
        if index not in execution.maps and not run.is_final:
            yield execution.token(index, NO_ITEM, run), run
    for index, map_run in execution.maps.items():
        for item, run in map_run.active.items():
            yield execution.token(index, item, run), run


def _list_node_timers(
    execution: Execution, waiting: list[tuple[TaskToken, NodeRun]]
) -> Iterator[TimerKey]:
    for token, run in waiting:
        if run.wait in TIMER_KIND_BY_WAIT and run.due is not None:
            yield TimerKey(execution.id, token.node_id, token.item, TIMER_KIND_BY_WAIT[run.wait])


def _list_execution_timers(execution: Execution) -> Iterator[TimerKey]:
    workflow = execution.graph.workflow
    if workflow.timeout_seconds is not None and execution.outcome is None:
        yield make_execution_timer_key(execution, TimerKind.TIMEOUT)
    if workflow.sla_seconds is not None and not execution.is_sla_missed:
        yield make_execution_timer_key(execution, TimerKind.SLA)
    if any(not attempt.child for attempt in execution.stopping.values()):
        yield make_execution_timer_key(execution, TimerKind.STOP)


EXECUTIONS_PER_BATCH = 100
# The pause between two batches, so that a sweep does not slow down other work.
PAUSE_S = 0.05


class Watchdog:
    """A safety net that repairs stuck executions.

    Each problem that the watchdog finds is a bug of Runnel.

    Every `sweep_s`, the watchdog inspects all running executions of the partitions that
    `orchestrator` owns. If every sweep for `repair_after_s` finds the same problem, the watchdog
    sends repair commands to the owner. Repair commands change nothing if there is no problem. The
    watchdog also reports an inbox entry, in any partition, that stays unread for `stale_s`.
    """

    def __init__(
        self,
        dependencies: OrchestratorDependencies,
        orchestrator: Orchestrator,
        *,
        sweep_s: float = 15.0,
        repair_after_s: float = 60.0,
        stale_s: float = 30.0,
    ) -> None:
        self.repaired = 0
        self._dependencies = dependencies
        self._orchestrator = orchestrator
        self._sweep_s = sweep_s
        self._repair_after_s = repair_after_s
        self._stale_s = stale_s
        self._missing_since: dict[str, float] = {}
        self._still_missing: dict[str, float] = {}

    async def run(self, stop: asyncio.Event) -> None:
        clock = self._dependencies.clock
        while not stop.is_set():
            started_at = clock.monotonic()
            try:
                await self.sweep(stop)
            except StoreError as error:
                self._dependencies.telemetry.event(
                    names.STORE_FAILED, call="sweep", error=str(error)
                )
            remaining_s = started_at + self._sweep_s - clock.monotonic()
            await clock.wait(stop, max(PAUSE_S, remaining_s))

    async def sweep(self, stop: asyncio.Event) -> int:
        """Inspects all running executions once; returns the number of repairs."""
        self._still_missing = {}
        repaired = 0
        for owner in self._orchestrator.owners():
            repaired += await self._sweep_partition(owner, stop)
        self._missing_since = self._still_missing
        await self._check_unread_inboxes()
        self.repaired += repaired
        return repaired

    async def _sweep_partition(self, owner: PartitionOwner, stop: asyncio.Event) -> int:
        repaired = 0
        running = await self._dependencies.store.running(owner.lease.partition)
        for first in range(0, len(running), EXECUTIONS_PER_BATCH):
            if first and await self._dependencies.clock.wait(stop, PAUSE_S):
                break
            repaired += await self._inspect(owner, running[first : first + EXECUTIONS_PER_BATCH])
        return repaired

    async def _inspect(self, owner: PartitionOwner, execution_ids: Sequence[ExecutionId]) -> int:
        executions = await owner.read_executions(execution_ids)
        in_flight = [
            collect_in_flight(loaded)
            for loaded in executions
            if loaded.execution.state is ExecutionState.RUNNING
        ]
        finished_ids = [
            loaded.execution.id
            for loaded in executions
            if loaded.execution.state in FINAL_EXECUTION_STATES
        ]
        partition = owner.lease.partition
        lost = await self._dependencies.store.unknown_tasks(
            partition, [token for work in in_flight for token in work.tasks]
        )
        unset = await self._dependencies.store.unset_timers(
            partition, [key for work in in_flight for key in work.timers]
        )
        unset_by_execution = {key.execution_id: key for key in unset}
        repaired = sum(
            [
                self._resume(owner, id_, "it has ended but is listed as running")
                for id_ in finished_ids
            ]
        )
        for work in in_flight:
            repaired += self._repair_tasks(owner, work, lost)
            for problem in await self._find_problems(work):
                repaired += self._resume(owner, work.execution_id, problem)
            if work.execution_id in unset_by_execution:
                repaired += self._resume(owner, work.execution_id, "a timer is not set")
        return repaired

    def _repair_tasks(
        self, owner: PartitionOwner, work: InFlightWork, lost: Mapping[TaskToken, LossKind | None]
    ) -> int:
        lost_tasks = {token: lost[token] for token in work.tasks if token in lost}
        overdue = {
            token: kind
            for token, kind in lost_tasks.items()
            if self._is_overdue(f"no process holds {token}")
        }
        commands: list[Command] = [
            make_task_lost(token, "no process holds it", kind, was_running=work.tasks[token])
            for token, kind in overdue.items()
        ]
        if commands:
            self._repair(owner, work.execution_id, "a task is lost", commands)
        return int(bool(commands))

    async def _find_problems(self, work: InFlightWork) -> list[str]:
        problems = ["nothing is under way"] if work.is_stuck else []
        for child in work.children:
            header = await self._dependencies.archive.get_header(child)
            if header is None or header.state in FINAL_EXECUTION_STATES:
                problems.append(f"it waits for {child}, which is not running")
        for token, key in work.limits.items():
            limit = replay_limit(key, await self._dependencies.store.load(make_limit_id(key)))
            if token not in limit.waiters:
                problems.append(f"{token.node_id} is not queued for the key '{key}'")
        return problems

    def _resume(self, owner: PartitionOwner, execution_id: ExecutionId, problem: str) -> int:
        if not self._is_overdue(f"{execution_id}: {problem}"):
            return 0
        self._repair(owner, execution_id, problem, [ResumeExecution(execution_id=execution_id)])
        return 1

    def _repair(
        self,
        owner: PartitionOwner,
        execution_id: ExecutionId,
        problem: str,
        commands: Sequence[Command],
    ) -> None:
        self._dependencies.telemetry.event(
            names.EXECUTION_REPAIRED, execution_id=execution_id, problem=problem
        )
        owner.enqueue(commands)

    def _is_overdue(self, problem: str) -> bool:
        """Returns True if every sweep for `repair_after_s` found the problem.

        After that, the time of the problem starts again from zero.
        """
        now = self._dependencies.clock.monotonic()
        since = self._missing_since.get(problem, now)
        is_overdue = now - since >= self._repair_after_s
        self._still_missing[problem] = now if is_overdue else since
        return is_overdue

    async def _check_unread_inboxes(self) -> None:
        for partition in await self._dependencies.store.partitions():
            unread_s = await self._dependencies.store.unread_s(partition)
            if unread_s >= self._stale_s:
                self._dependencies.telemetry.event(
                    names.INBOX_STALE, partition=partition, unread_s=round(unread_s, 1)
                )
