"""Deliberate defects that delay executions: the results are correct, but late or never there."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from runnel.backends.memory.store import MemoryState
from runnel.core.commands import Command, CreateExecution
from runnel.core.decide import attempts as task
from runnel.core.decide import lifecycle
from runnel.core.decide import maps as mapping
from runnel.core.decide import readiness as flow
from runnel.core.decide import waits as waiting
from runnel.core.decide.decision_context import TIMER_KIND_BY_WAIT, DecisionContext
from runnel.core.effects import TimerKind
from runnel.core.execution import NodeRun
from runnel.engine.orchestrator import partition_share as shares
from runnel.engine.orchestrator.orchestrator import LeaseObservation
from runnel.engine.orchestrator.partition_owner import PartitionOwner
from runnel.engine.worker.slots import ClaimLoop
from runnel.engine.worker.task_run import TaskRun
from tests.simulation.bugs import Bug, Patch


def submission_is_lost(patch: Patch) -> None:
    """Confirms a submission without storing it."""
    send = MemoryState.send

    def forgetful(
        self: MemoryState, commands: Sequence[Command], *, requires_definition: bool = False
    ) -> None:
        send(
            self,
            [
                command
                for command in commands
                if not (isinstance(command, CreateExecution) and command.execution_id == "x1")
            ],
            requires_definition=requires_definition,
        )

    patch.setattr(MemoryState, "send", forgetful)


def timers_wait_for_the_next_message(patch: Patch) -> None:
    """Waits for messages without regard to the next timer."""

    async def unbounded(_self: PartitionOwner, wait_s: float) -> float:
        return wait_s

    patch.setattr(PartitionOwner, "_bound_by_timers", unbounded)


def sleeps_take_twice_as_long(patch: Patch) -> None:
    real = waiting._parse_seconds

    def double(value: Any) -> float | None:
        seconds = real(value)
        return None if seconds is None else 2 * seconds

    patch.setattr(waiting, "_parse_seconds", double)


def signal_timeout_is_set_too_late(patch: Patch) -> None:
    _delay_timers(patch, lambda kind: 20.0 if kind is TimerKind.SIGNAL else 0.0)


def retry_timer_is_set_too_late(patch: Patch) -> None:
    _delay_timers(patch, lambda kind: 1.0 if kind is TimerKind.RETRY else 0.0)


def takeover_restarts_waits(patch: Patch) -> None:
    real = lifecycle._resume_wait

    def restart_wait(turn: DecisionContext, index: int, item: int, run: NodeRun) -> None:
        real(turn, index, item, run)
        if run.wait in TIMER_KIND_BY_WAIT and run.due is not None:
            kind = TIMER_KIND_BY_WAIT[run.wait]
            turn.set_timer(index, item, kind, due=turn.now + 4.0, attempt=run.attempt)

    patch.setattr(lifecycle, "_resume_wait", restart_wait)


def crashing_tasks_restart_at_once(patch: Patch) -> None:
    patch.setattr(task, "compute_crash_delay", lambda _losses, _token: 0.0)


def first_crash_delays_the_restart(patch: Patch) -> None:
    patch.setattr(task, "compute_crash_delay", lambda _losses, _token: 1.0)


def time_runs_backwards(patch: Patch) -> None:
    """Uses the clock of the owner even if it goes backwards."""

    def read_clock(self: PartitionOwner) -> float:
        self._now = self._dependencies.clock.now()
        return self._now

    patch.setattr(PartitionOwner, "_advance_time", read_clock)


def tasks_run_one_at_a_time(patch: Patch) -> None:
    """Runs one task of an execution at a time, whatever its limit."""
    for module in (flow, mapping):
        patch.setattr(module, "has_slot", lambda turn: turn.execution.in_flight < 1)


def tasks_run_far_too_long(patch: Patch) -> None:
    """Gives tasks four times their time limit."""
    watch = TaskRun.watch

    def patient(self: TaskRun, *, since: float) -> float:
        watch(self, since=since)
        self.timeout_at = since + 4 * self.task.timeout_s
        return self.next_check()

    patch.setattr(TaskRun, "watch", patient)


def first_orchestrator_keeps_everything(patch: Patch) -> None:
    def choose_all_free(
        me: str,
        seen: Mapping[int, LeaseObservation],
        _living: Collection[str],
        **_others: Collection[str] | Collection[int],
    ) -> list[int]:
        return [
            number
            for number, lease in seen.items()
            if shares._is_owned_by(me, lease) or lease.can_be_acquired
        ]

    patch.setattr(shares, "choose_partitions", choose_all_free)


def partitions_move_forever(patch: Patch) -> None:
    """An orchestrator with one partition more gives it up, and so does the next one."""
    patch.setattr(shares, "IMBALANCE_MAX", 0)


def worker_without_a_slot_spins(patch: Patch) -> None:
    """Polls for a free slot in a busy loop, so that virtual time stops."""
    real = ClaimLoop.tick

    async def restless(self: ClaimLoop) -> int:
        await asyncio.sleep(0)
        return await real(self) if self._slots.claimable > 0 else 0

    patch.setattr(ClaimLoop, "tick", restless)


def _delay_timers(patch: Patch, by: Callable[[TimerKind], float]) -> None:
    set_timer = DecisionContext.set_timer

    def late(
        self: DecisionContext, index: int, item: int, kind: TimerKind, *, due: float, attempt: int
    ) -> None:
        set_timer(self, index, item, kind, due=due + by(kind), attempt=attempt)

    patch.setattr(DecisionContext, "set_timer", late)


ALL: tuple[Bug, ...] = (
    submission_is_lost,
    timers_wait_for_the_next_message,
    sleeps_take_twice_as_long,
    signal_timeout_is_set_too_late,
    retry_timer_is_set_too_late,
    takeover_restarts_waits,
    crashing_tasks_restart_at_once,
    first_crash_delays_the_restart,
    time_runs_backwards,
    tasks_run_one_at_a_time,
    tasks_run_far_too_long,
    first_orchestrator_keeps_everything,
    partitions_move_forever,
    worker_without_a_slot_spins,
)
