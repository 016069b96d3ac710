"""Deliberate defects that hold things up: all ends well, but late, seldom, or never."""

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
    """A caller is told that it was taken, and nobody has ever heard of it."""
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


def timers_wait_for_other_news(patch: Patch) -> None:
    """Whoever waits for messages forgets that a timer will be due before one comes."""

    async def unbounded(_self: PartitionOwner, wait_s: float) -> float:
        return wait_s

    patch.setattr(PartitionOwner, "_bound_by_timers", unbounded)


def sleeps_take_twice_as_long(patch: Patch) -> None:
    real = waiting._parse_seconds

    def double(value: Any) -> float | None:
        found = real(value)
        return None if found is None else 2 * found

    patch.setattr(waiting, "_parse_seconds", double)


def limit_of_a_signal_is_set_too_late(patch: Patch) -> None:
    _shifted(patch, lambda kind: 20.0 if kind is TimerKind.SIGNAL else 0.0)


def timer_of_a_retry_is_set_too_late(patch: Patch) -> None:
    _shifted(patch, lambda kind: 1.0 if kind is TimerKind.RETRY else 0.0)


def takeover_begins_waits_anew(patch: Patch) -> None:
    real = lifecycle._resume_wait

    def anew(turn: DecisionContext, index: int, item: int, run: NodeRun) -> None:
        real(turn, index, item, run)
        if run.wait in TIMER_KIND_BY_WAIT and run.due is not None:
            kind = TIMER_KIND_BY_WAIT[run.wait]
            turn.set_timer(index, item, kind, due=turn.now + 4.0, attempt=run.attempt)

    patch.setattr(lifecycle, "_resume_wait", anew)


def killers_come_back_at_once(patch: Patch) -> None:
    patch.setattr(task, "compute_crash_delay", lambda _losses, _token: 0.0)


def first_crash_is_punished(patch: Patch) -> None:
    patch.setattr(task, "compute_crash_delay", lambda _losses, _token: 1.0)


def time_runs_backwards(patch: Patch) -> None:
    """An owner believes its clock, whatever that has said before."""

    def tell_time(self: PartitionOwner) -> float:
        self._now = self._dependencies.clock.now()
        return self._now

    patch.setattr(PartitionOwner, "_advance_time", tell_time)


def one_after_the_other(patch: Patch) -> None:
    """Whatever an execution allows, one task is out at a time."""
    for module in (flow, mapping):
        patch.setattr(module, "has_slot", lambda turn: turn.execution.in_flight < 1)


def tasks_run_far_too_long(patch: Patch) -> None:
    """Their time limit is another one than was asked for."""
    watch = TaskRun.watch

    def patient(self: TaskRun, *, since: float) -> float:
        watch(self, since=since)
        self.timeout_at = since + 4 * self.task.timeout_s
        return self.next_check()

    patch.setattr(TaskRun, "watch", patient)


def first_orchestrator_keeps_everything(patch: Patch) -> None:
    def all_that_is_free(
        me: str,
        seen: Mapping[int, LeaseObservation],
        _living: Collection[str],
        *,
        given: Collection[int] = (),
    ) -> list[int]:
        return [
            number
            for number, sight in seen.items()
            if shares._is_owned_by(me, sight) or shares._is_free(sight, is_given_up=number in given)
        ]

    patch.setattr(shares, "choose_partitions", all_that_is_free)


def partitions_change_hands_for_ever(patch: Patch) -> None:
    """Who has one more than another gives it up, and the other one does the same."""
    patch.setattr(shares, "IMBALANCE_MAX", 0)


def worker_without_a_slot_spins(patch: Patch) -> None:
    """Instead of waiting for a free slot it looks again and again, and time stands still."""
    real = ClaimLoop.tick

    async def restless(self: ClaimLoop) -> int:
        await asyncio.sleep(0)
        return await real(self) if self._slots.claimable > 0 else 0

    patch.setattr(ClaimLoop, "tick", restless)


def _shifted(patch: Patch, by: Callable[[TimerKind], float]) -> None:
    set_timer = DecisionContext.set_timer

    def late(
        self: DecisionContext, index: int, item: int, kind: TimerKind, *, due: float, attempt: int
    ) -> None:
        set_timer(self, index, item, kind, due=due + by(kind), attempt=attempt)

    patch.setattr(DecisionContext, "set_timer", late)


ALL: tuple[Bug, ...] = (
    submission_is_lost,
    timers_wait_for_other_news,
    sleeps_take_twice_as_long,
    limit_of_a_signal_is_set_too_late,
    timer_of_a_retry_is_set_too_late,
    takeover_begins_waits_anew,
    killers_come_back_at_once,
    first_crash_is_punished,
    time_runs_backwards,
    one_after_the_other,
    tasks_run_far_too_long,
    first_orchestrator_keeps_everything,
    partitions_change_hands_for_ever,
    worker_without_a_slot_spins,
)
