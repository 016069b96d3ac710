"""Deliberate defects of the engine. The simulation must find each of them."""

from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Any

import msgspec
import pytest

from runnel.backends.local.inbox import LocalTimers
from runnel.backends.local.task_board import ReadyQueues, TaskBoard
from runnel.backends.local.tasks import LocalTaskQueue
from runnel.backends.memory.store import MemoryPartition, MemoryStore
from runnel.core import concurrency_key as limit_module
from runnel.core import decide as decide_package
from runnel.core import evolve as evolve_module
from runnel.core.commands import CreateExecution, SendSignal, TaskCompleted, TaskFailed, TaskStarted
from runnel.core.decide import attempts as task
from runnel.core.decide import lifecycle
from runnel.core.decide import maps as mapping
from runnel.core.decide import readiness as flow
from runnel.core.decide import task_dispatch as issue
from runnel.core.decide.decision_context import DecisionContext
from runnel.core.effects import Decision, TaskMessage
from runnel.core.events import LimitHeld, RetryPlanned
from runnel.core.execution import Execution
from runnel.core.ids import TaskToken
from runnel.core.states import ExecutionState
from runnel.engine.orchestrator import batch as batch_module
from runnel.engine.orchestrator import orchestrator as orchestrator_module
from runnel.engine.orchestrator.aggregates import AggregateCache
from runnel.engine.orchestrator.batch import CommitBatch
from runnel.engine.orchestrator.partition_owner import PartitionOwner
from runnel.engine.orchestrator.partition_share import FairShare, HeartbeatTrail
from runnel.engine.services.dead_workers import Reaper
from runnel.engine.services.watchdog import Watchdog
from runnel.engine.worker.slots import Slots
from runnel.ports.store import Commit, ExecutionHeader, InboxEntry, Lease, LeaseRecord
from simulation.server import StreamStore

Patch = pytest.MonkeyPatch
Bug = Callable[[Patch], None]


def ack_before_commit(patch: Patch) -> None:
    """Consumes the inbox in one commit and stores the result in a second one."""
    _cut(patch, lambda commit: (_only(commit, "consumed"), _without(commit, "consumed")))


def cursor_outside_the_commit(patch: Patch) -> None:
    """Stores the result in one commit and consumes the inbox in a second one."""
    _cut(patch, lambda commit: (_without(commit, "consumed"), _only(commit, "consumed")))


def tasks_outside_the_commit(patch: Patch) -> None:
    _cut(patch, lambda commit: (_without(commit, "tasks"), _only(commit, "tasks")))


def no_epoch_check(patch: Patch) -> None:
    patch.setattr(MemoryPartition, "check_lease", lambda _self, _lease: None)


def no_sequence_check(patch: Patch) -> None:
    """Applies a commit twice if it arrives twice."""
    commit = MemoryStore.commit

    async def unchecked(self: MemoryStore, lease: Lease, received: Commit) -> None:
        sequence = self._state.partitions[lease.partition].sequence + 1
        await commit(self, lease, msgspec.structs.replace(received, sequence=sequence))

    patch.setattr(MemoryStore, "commit", unchecked)


def counter_instead_of_distinct_parents(patch: Patch) -> None:
    """Counts a parent again for each retry."""
    apply = evolve_module._APPLIERS[RetryPlanned]

    def counted(execution: Execution, event: RetryPlanned, at: float) -> None:
        apply(execution, event, at)
        index = execution.graph.index[event.node]
        for child in execution.graph.nodes[index].children:
            execution.unsettled_parents[child] -= 1

    patch.setitem(evolve_module._APPLIERS, RetryPlanned, counted)


def timer_lost_on_takeover(patch: Patch) -> None:
    """Deletes the timers at a takeover, and the new owner does not set them again."""
    acquire = MemoryStore.acquire

    async def forgetful(
        self: MemoryStore, partition: int, owner: str, *, expected: LeaseRecord | None = None
    ) -> Lease:
        lease = await acquire(self, partition, owner, expected=expected)
        self._state.partitions[partition].timers = LocalTimers()
        return lease

    patch.setattr(MemoryStore, "acquire", forgetful)
    patch.setattr(lifecycle, "TIMER_KIND_BY_WAIT", {})


def late_report_accepted(patch: Patch) -> None:
    """Accepts a report of any attempt of a node."""

    def current(self: DecisionContext, token: TaskToken) -> Any:
        index = self.execution.graph.index[token.node_id]
        run = self.execution.run(index, token.item)
        return None if run is None or run.is_final or self.execution.is_final else (index, run)

    def report(self: LocalTaskQueue, _worker: str, command: Any) -> bool:
        entry = self._board._entries.get(command.token)
        if isinstance(command, TaskStarted):
            return entry is not None
        if entry is not None:
            self._board.finish(entry, command)
        elif isinstance(command, TaskCompleted | TaskFailed):
            self._board._deliver(partitions[command.token], command)
        return True

    def remember(self: TaskBoard, partition: int, message: TaskMessage) -> None:
        partitions[message.token] = partition
        issue_task(self, partition, message)

    partitions: dict[TaskToken, int] = {}
    issue_task = TaskBoard.issue
    patch.setattr(TaskBoard, "issue", remember)

    patch.setattr(DecisionContext, "find_current_run", current)
    patch.setattr(LocalTaskQueue, "_report", report)


def lease_renewed_after_expiry(patch: Patch) -> None:
    """Lets an owner renew its lease after another one has taken the partition over."""

    async def renew(self: MemoryStore, lease: Lease) -> None:
        partition = self._state.partitions[lease.partition]
        partition.lease = lease
        partition.counter += 1

    patch.setattr(MemoryStore, "renew", renew)


def lost_claim_never_noticed(patch: Patch) -> None:
    patch.setattr(TaskBoard, "_lose_missing", lambda _self, _worker, _listed: None)


def dead_worker_never_noticed(patch: Patch) -> None:
    async def tick(_self: Reaper) -> int:
        return 0

    patch.setattr(Reaper, "tick", tick)


def signal_before_wait_dropped(patch: Patch) -> None:
    on_signal = decide_package._HANDLERS[SendSignal]

    def impatient(turn: DecisionContext, command: SendSignal) -> None:
        if turn.execution.signal_waiters.get(command.name):
            on_signal(turn, command)

    patch.setitem(decide_package._HANDLERS, SendSignal, impatient)


def map_window_leaks(patch: Patch) -> None:
    """Does not start the next item after an item has settled."""

    def stingy(turn: DecisionContext, index: int) -> None:
        if turn.execution.maps[index].is_settled:
            mapping.continue_map(turn, index)

    patch.setattr(task, "continue_map", stingy)


def limit_not_released(patch: Patch) -> None:
    patch.setattr(limit_module._LimitDecision, "release", lambda _self, _holder: None)


def limit_given_to_all(patch: Patch) -> None:
    def generous(turn: limit_module._LimitDecision) -> None:
        for holder, holders_max in list(turn.limit.waiters.items()):
            turn._emit(LimitHeld(holder=holder, limit=holders_max))
            turn._notify(holder)

    patch.setattr(limit_module._LimitDecision, "grant_waiters", generous)


def retry_counted_twice(patch: Patch) -> None:
    apply = evolve_module._APPLIERS[RetryPlanned]

    def twice(execution: Execution, event: RetryPlanned, at: float) -> None:
        apply(execution, event, at)
        index = execution.graph.index[event.node]
        run = execution.run(index, event.item)
        assert run is not None
        changed_run = msgspec.structs.replace(run, failures=run.failures + 1)
        evolve_module._set_run(execution, index, event.item, changed_run)

    patch.setitem(evolve_module._APPLIERS, RetryPlanned, twice)


def nothing_is_recovered(patch: Patch) -> None:
    """Makes a new owner handle only new commands, without recovering running executions."""

    async def blind(*_args: object) -> int:
        return 0

    patch.setattr(orchestrator_module, "recover_partition", blind)


def dropped_tasks_stay_in_their_queue(patch: Patch) -> None:
    patch.setattr(ReadyQueues, "discard", lambda _self, _entry: None)


def running_code_is_not_notified_of_a_drop(patch: Patch) -> None:
    beat = TaskBoard.beat

    def deaf(
        self: TaskBoard, name: str, holds: Sequence[TaskToken], **fields: Any
    ) -> list[TaskToken]:
        beat(self, name, holds, **fields)
        return []

    patch.setattr(TaskBoard, "beat", deaf)
    patch.setattr(TaskBoard, "drop", TaskBoard._remove)


def cancelled_task_stays_queued(patch: Patch) -> None:
    patch.setattr(DecisionContext, "drop_task", lambda _self, _index, _item, _run: None)


def created_twice(patch: Patch) -> None:
    """Creates the execution again after a repeated CreateExecution."""
    decide_one = PartitionOwner._decide

    async def forgetful(self: PartitionOwner, command: Any) -> Decision:
        if isinstance(command, CreateExecution) and "." not in command.execution_id:
            self._aggregates._executions.pop(command.execution_id, None)
            original = AggregateCache.execution

            async def find_nothing(_self: AggregateCache, _id: str) -> None:
                return None

            with pytest.MonkeyPatch.context() as inner:
                inner.setattr(AggregateCache, "execution", find_nothing)
                decision = await decide_one(self, command)
            assert AggregateCache.execution is original
            return decision
        return await decide_one(self, command)

    patch.setattr(PartitionOwner, "_decide", forgetful)


def lost_task_issued_under_its_old_token(patch: Patch) -> None:
    """Gives the new attempt of a lost task the token of the lost attempt."""
    queue_task = issue.queue_task

    def same(turn: DecisionContext, index: int, item: int, **fields: Any) -> None:
        run = turn.execution.run(index, item)
        if run is not None and "key" not in fields:
            fields |= {"attempt": run.attempt, "nonce": run.nonce}
        queue_task(turn, index, item, **fields)

    patch.setattr(task, "queue_task", same)


def unread_part_of_a_batch_is_consumed(patch: Patch) -> None:
    """Consumes entries that were read but not handled in a full batch."""
    read_after = StreamStore.read_after

    async def last_first(self: StreamStore, *args: Any, **named: Any) -> Sequence[InboxEntry]:
        entries = list(await read_after(self, *args, **named))
        return entries[::-1]

    patch.setattr(StreamStore, "read_after", last_first)


def every_worker_has_its_own_rate(patch: Patch) -> None:
    """Issues rate tokens without any limit."""

    async def take(
        _self: LocalTaskQueue, _tag: str, *, rate_per_second: float, burst: int, wait_s_max: float
    ) -> float:
        return 0.0

    patch.setattr(LocalTaskQueue, "take_token", take)


def timers_fire_early(patch: Patch) -> None:
    due_timers, next_due = MemoryStore.due_timers, MemoryStore.next_due

    async def soon(self: MemoryStore, lease: Lease) -> float | None:
        due = await next_due(self, lease)
        return None if due is None else due - 0.1

    async def early(self: MemoryStore, lease: Lease, now: float, *, limit: int) -> Any:
        return await due_timers(self, lease, now + 0.1, limit=limit)

    patch.setattr(MemoryStore, "next_due", soon)
    patch.setattr(MemoryStore, "due_timers", early)


def worker_has_too_many_slots(patch: Patch) -> None:
    make = Slots.__init__
    patch.setattr(
        Slots,
        "__init__",
        lambda self, count, *, claim_ahead: make(self, 2 * count, claim_ahead=claim_ahead),
    )


def slots_of_an_execution_are_not_counted(patch: Patch) -> None:
    patch.setattr(flow, "has_slot", lambda _turn: True)
    patch.setattr(mapping, "has_slot", lambda _turn: True)


def listed_as_completed(patch: Patch) -> None:
    """Lists every final execution as COMPLETED."""
    real = batch_module.build_header

    def header(execution: Execution) -> ExecutionHeader:
        original = real(execution)
        state = ExecutionState.COMPLETED if execution.is_final else original.state
        return msgspec.structs.replace(original, state=state)

    patch.setattr(batch_module, "build_header", header)


def dead_orchestrators_keep_their_share(patch: Patch) -> None:
    """Counts dead orchestrators as alive, so that no other one takes their partitions."""

    async def everybody(self: FairShare) -> set[str]:
        records = await self._store.heartbeat_orchestrator(self._name)
        self._heartbeats = {
            record.owner: HeartbeatTrail(counter=record.counter, seen_at=-inf, has_moved=True)
            for record in records
        }
        return {record.owner for record in records}

    patch.setattr(FairShare, "_list_alive", everybody)


def the_watchdog_is_too_quick(patch: Patch) -> None:
    """Repairs tasks and timers that are not overdue."""
    patch.setattr(Watchdog, "_is_overdue", lambda _self, _problem: True)


def _cut(patch: Patch, into: Callable[[Commit], tuple[Commit, Commit]]) -> None:
    seal = CommitBatch.seal

    def sealed(self: CommitBatch, sequence: int) -> Iterator[Commit]:
        for commit in seal(self, sequence):
            for part in into(commit):
                if part.writes or part.consumed:
                    yield msgspec.structs.replace(part, sequence=sequence)
                    sequence += 1

    patch.setattr(CommitBatch, "seal", sealed)


def _only(commit: Commit, field: str) -> Commit:
    return Commit(sequence=0, **{field: getattr(commit, field)})


def _without(commit: Commit, field: str) -> Commit:
    default = None if field == "consumed" else ()
    return msgspec.structs.replace(commit, **{field: default})


ALL: tuple[Bug, ...] = (
    ack_before_commit,
    cursor_outside_the_commit,
    tasks_outside_the_commit,
    no_epoch_check,
    no_sequence_check,
    counter_instead_of_distinct_parents,
    timer_lost_on_takeover,
    late_report_accepted,
    lease_renewed_after_expiry,
    lost_claim_never_noticed,
    dead_worker_never_noticed,
    signal_before_wait_dropped,
    map_window_leaks,
    limit_not_released,
    limit_given_to_all,
    retry_counted_twice,
    nothing_is_recovered,
    dropped_tasks_stay_in_their_queue,
    running_code_is_not_notified_of_a_drop,
    cancelled_task_stays_queued,
    created_twice,
    lost_task_issued_under_its_old_token,
    unread_part_of_a_batch_is_consumed,
    every_worker_has_its_own_rate,
    timers_fire_early,
    worker_has_too_many_slots,
    slots_of_an_execution_are_not_counted,
    listed_as_completed,
    dead_orchestrators_keep_their_share,
    the_watchdog_is_too_quick,
)
