"""Checks that each inbox entry takes effect exactly once, in the commit that consumes it."""

from runnel.core.commands import (
    Command,
    SendSignal,
    TaskCompleted,
    TaskFailed,
    TaskLost,
    TaskSkipped,
    TaskStarted,
)
from runnel.core.events import NodeCompleted, NodeFailed, RetryPlanned, SignalReceived
from runnel.core.ids import NodeId
from runnel.core.states import IN_FLIGHT_STATES, NodeState
from simulation.commit_log import CommitStep, GroundTruth, InvariantCheck, get_token

_TASK_REPORTS = (TaskCompleted, TaskFailed, TaskSkipped, TaskLost)


class InboxCheck(InvariantCheck):
    name = "inbox"

    def __init__(self, truth: GroundTruth) -> None:
        super().__init__(truth)
        self._positions: dict[int, int] = {}

    def on_commit(self, step: CommitStep) -> None:
        self._check_position_grows(step)
        for entry in step.consumed:
            self._check_effect(step, entry.command)
        if not self.truth.cuts_commits:
            self._check_causes(step)

    def _check_position_grows(self, step: CommitStep) -> None:
        if step.commit.consumed is None:
            return
        position = int(step.commit.consumed)
        before = self._positions.get(step.lease.partition, -1)
        if position <= before:
            raise self.make_violation(f"partition {step.lease.partition} consumes {position} again")
        self._positions[step.lease.partition] = position

    def _check_effect(self, step: CommitStep, command: Command | None) -> None:
        if isinstance(command, SendSignal):
            is_made_by_another_part = self.truth.cuts_commits
            if command.execution_id in step.known_executions and not is_made_by_another_part:
                self._check_signal(command)
            return
        token = get_token(command)
        if token is None or not isinstance(command, (*_TASK_REPORTS, TaskStarted)):
            return
        run = step.runs_before[token]
        if isinstance(command, TaskStarted) and (run is None or run.state is NodeState.RUNNING):
            return
        was_out = (
            run is not None and run.state in IN_FLIGHT_STATES and self.truth.is_current(token, run)
        )
        after = self.truth.find_run(token)
        is_out = after is not None and after.state in IN_FLIGHT_STATES
        if isinstance(command, TaskStarted):
            is_out = after is not None and after.state is NodeState.QUEUED
        if was_out and is_out and self.truth.is_current(token, after):
            raise self.make_violation(
                f"{type(command).__name__} of {token} is consumed without effect"
            )

    def _check_signal(self, command: SendSignal) -> None:
        execution = self.truth.executions[command.execution_id]
        if execution.is_final or execution.outcome is not None:
            return
        if command.signal_id not in execution.signal_ids:
            raise self.make_violation(f"signal {command.signal_id} is consumed without effect")

    def _check_causes(self, step: CommitStep) -> None:
        """Checks that each effect comes from a consumed report of the current attempt."""
        reports = {
            (token.execution_id, token.node_id, token.item)
            for entry in step.consumed
            if (token := get_token(entry.command)) is not None
            and self.truth.is_current(token, step.runs_before[token])
        }
        signals = {
            entry.command.signal_id
            for entry in step.consumed
            if isinstance(entry.command, SendSignal)
        }
        for execution_id, event in step.events:
            if isinstance(event, SignalReceived) and event.signal_id not in signals:
                raise self.make_violation(
                    f"signal {event.signal_id} takes effect but is not consumed"
                )
            is_report = isinstance(event, NodeCompleted | NodeFailed) and event.worker
            if is_report or isinstance(event, RetryPlanned):
                key = (execution_id, event.node, event.item)  # type: ignore[union-attr]
                if key not in reports and not self._is_child(key):
                    raise self.make_violation(
                        f"{type(event).__name__} of {key} occurs without a report"
                    )

    def _is_child(self, key: tuple[str, NodeId, int]) -> bool:
        execution = self.truth.executions[key[0]]
        return execution.graph.nodes[execution.graph.index[key[1]]].node.child is not None
