"""Looks again and again whether each running execution has something under way; repairs it."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from runnel.core.commands import Command, ResumeExecution, TaskLost, limit_id
from runnel.core.concurrency_key import replay_limit
from runnel.core.decide.ending import execution_timer
from runnel.core.decide.turn import TIMER_OF_WAIT
from runnel.core.effects import TimerKey, TimerKind
from runnel.core.events import Wait
from runnel.core.execution import Execution, NodeRun
from runnel.core.ids import NO_ITEM, ExecutionId, Token
from runnel.core.states import EXECUTION_FINAL, ExecutionState
from runnel.engine.orchestrator import Parts
from runnel.engine.orchestrator.aggregates import is_idle
from runnel.engine.orchestrator.orchestrator import Orchestrator
from runnel.engine.orchestrator.partition_owner import Owner
from runnel.errors import StoreError
from runnel.ports import telemetry as names

# What an execution believes to be under way: all of it can be looked for in the store.


class InFlight(msgspec.Struct, frozen=True, kw_only=True):
    """`tasks` are tokens, True for those that have begun; `limits` are keys by who waits for them.

    It `is_stuck` when nothing at all is under way, in memory or elsewhere, and it has not ended.
    """

    execution_id: ExecutionId
    tasks: dict[Token, bool]
    timers: list[TimerKey]
    children: list[ExecutionId]
    limits: dict[Token, str]
    is_stuck: bool


def in_flight_of(execution: Execution) -> InFlight:
    tasks = execution.in_flight_tokens()
    waiting = [found for found in _begun(execution) if found[1].wait is not None]
    is_waiting = any(run.wait is not Wait.SLOT for _, run in waiting)
    return InFlight(
        execution_id=execution.id,
        tasks=tasks,
        timers=[*_node_timers(execution, waiting), *_execution_timers(execution)],
        children=[
            ExecutionId(run.detail) for _, run in waiting if run.wait is Wait.CHILD and run.detail
        ],
        limits={token: run.key for token, run in waiting if run.wait is Wait.LIMIT},
        is_stuck=not tasks and not is_waiting and is_idle(execution),
    )


def _begun(execution: Execution) -> Iterator[tuple[Token, NodeRun]]:
    """Nodes and items that have begun and are not settled, a map by its items."""
    for index, run in enumerate(execution.nodes):
        if index not in execution.maps and not run.is_final:
            yield execution.token(index, NO_ITEM, run), run
    for index, found in execution.maps.items():
        for item, run in found.active.items():
            yield execution.token(index, item, run), run


def _node_timers(execution: Execution, waiting: list[tuple[Token, NodeRun]]) -> Iterator[TimerKey]:
    for token, run in waiting:
        if run.wait in TIMER_OF_WAIT and run.due is not None:
            yield TimerKey(execution.id, token.node_id, token.item, TIMER_OF_WAIT[run.wait])


def _execution_timers(execution: Execution) -> Iterator[TimerKey]:
    workflow = execution.graph.workflow
    if workflow.timeout_seconds is not None and execution.outcome is None:
        yield execution_timer(execution, TimerKind.TIMEOUT)
    if workflow.sla_seconds is not None and not execution.is_sla_missed:
        yield execution_timer(execution, TimerKind.SLA)


EXECUTIONS_AT_ONCE = 100
# Between two pages: the sweep takes what is left over, it is never in a hurry.
PAUSE_S = 0.05


class Watchdog:
    """A net below the rules that make sure that nothing gets stuck: what it finds is a bug.

    Every `sweep_s` it looks at all running executions of the partitions that `orchestrator` owns.
    What was missing at every look for `repair_after_s` is repaired: by commands to the owner that
    change nothing if it was an error. An inbox entry that lies unread for `stale_s`, in whichever
    partition, raises an alarm.
    """

    def __init__(
        self,
        parts: Parts,
        orchestrator: Orchestrator,
        *,
        sweep_s: float = 15.0,
        repair_after_s: float = 60.0,
        stale_s: float = 30.0,
    ) -> None:
        self.repaired = 0
        self._parts = parts
        self._orchestrator = orchestrator
        self._sweep_s = sweep_s
        self._repair_after_s = repair_after_s
        self._stale_s = stale_s
        self._missing_since: dict[str, float] = {}
        self._still_missing: dict[str, float] = {}

    async def run(self, stop: asyncio.Event) -> None:
        clock = self._parts.clock
        while not stop.is_set():
            began = clock.monotonic()
            try:
                await self.sweep(stop)
            except StoreError as error:
                self._parts.telemetry.event(names.STORE_FAILED, call="sweep", error=str(error))
            left_s = began + self._sweep_s - clock.monotonic()
            await clock.wait(stop, max(PAUSE_S, left_s))

    async def sweep(self, stop: asyncio.Event) -> int:
        """Looks once at everything; returns how many executions had to be repaired."""
        self._still_missing = {}
        repaired = 0
        for owner in self._orchestrator.owners():
            repaired += await self._sweep_partition(owner, stop)
        self._missing_since = self._still_missing
        await self._look_for_unread()
        self.repaired += repaired
        return repaired

    async def _sweep_partition(self, owner: Owner, stop: asyncio.Event) -> int:
        repaired = 0
        running = await self._parts.store.running(owner.lease.partition)
        for first in range(0, len(running), EXECUTIONS_AT_ONCE):
            if first and await self._parts.clock.wait(stop, PAUSE_S):
                break
            repaired += await self._look_at(owner, running[first : first + EXECUTIONS_AT_ONCE])
        return repaired

    async def _look_at(self, owner: Owner, execution_ids: Sequence[ExecutionId]) -> int:
        executions = await owner.look_at(execution_ids)
        found = [in_flight_of(each) for each in executions if each.state is ExecutionState.RUNNING]
        ended = [each.id for each in executions if each.state in EXECUTION_FINAL]
        partition = owner.lease.partition
        lost = await self._parts.store.unknown_tasks(
            partition, [token for each in found for token in each.tasks]
        )
        unset = await self._parts.store.unset_timers(
            partition, [key for each in found for key in each.timers]
        )
        unset_of = {key.execution_id: key for key in unset}
        repaired = sum([self._resume(owner, each, "it has ended and is listed") for each in ended])
        for each in found:
            repaired += self._repair_tasks(owner, each, lost)
            for problem in await self._problems_of(each):
                repaired += self._resume(owner, each.execution_id, problem)
            if each.execution_id in unset_of:
                repaired += self._resume(owner, each.execution_id, "a timer is not set")
        return repaired

    def _repair_tasks(
        self, owner: Owner, found: InFlight, lost: Mapping[Token, bool | None]
    ) -> int:
        mine = {token: lost[token] for token in found.tasks if token in lost}
        overdue = {
            token: has_killed
            for token, has_killed in mine.items()
            if self._is_overdue(f"nobody has {token}")
        }
        commands: list[Command] = [
            TaskLost(
                token=token,
                reason="nobody has it",
                was_started=found.tasks[token] if has_killed is None else has_killed,
            )
            for token, has_killed in overdue.items()
        ]
        if commands:
            self._ask(owner, found.execution_id, "a task is lost", commands)
        return int(bool(commands))

    async def _problems_of(self, found: InFlight) -> list[str]:
        problems = ["nothing is under way"] if found.is_stuck else []
        for child in found.children:
            header = await self._parts.archive.get_header(child)
            if header is None or header.state in EXECUTION_FINAL:
                problems.append(f"it waits for {child}, which is not running")
        for token, key in found.limits.items():
            limit = replay_limit(key, await self._parts.store.load(limit_id(key)))
            if token not in limit.waiters:
                problems.append(f"{token.node_id} is not in line for the key '{key}'")
        return problems

    def _resume(self, owner: Owner, execution_id: ExecutionId, problem: str) -> int:
        if not self._is_overdue(f"{execution_id}: {problem}"):
            return 0
        self._ask(owner, execution_id, problem, [ResumeExecution(execution_id=execution_id)])
        return 1

    def _ask(
        self, owner: Owner, execution_id: ExecutionId, problem: str, commands: Sequence[Command]
    ) -> None:
        self._parts.telemetry.event(
            names.EXECUTION_REPAIRED, execution_id=execution_id, problem=problem
        )
        owner.ask(commands)

    def _is_overdue(self, problem: str) -> bool:
        """Whether it has been there at every look for long enough; the time begins anew then."""
        now = self._parts.clock.monotonic()
        since = self._missing_since.get(problem, now)
        is_overdue = now - since >= self._repair_after_s
        self._still_missing[problem] = now if is_overdue else since
        return is_overdue

    async def _look_for_unread(self) -> None:
        for partition in await self._parts.store.partitions():
            unread_s = await self._parts.store.unread_s(partition)
            if unread_s >= self._stale_s:
                self._parts.telemetry.event(
                    names.INBOX_STALE, partition=partition, unread_s=round(unread_s, 1)
                )
