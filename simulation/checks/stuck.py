"""Checks that no execution is stuck: the store has every task, timer or child that it waits for."""

from collections.abc import Iterable

from runnel.core.commands import AcquireLimit, ChildSettled, LimitGranted, make_limit_id
from runnel.core.effects import TimerKind
from runnel.core.events import Wait
from runnel.core.execution import Execution, NodeRun
from runnel.core.ids import NO_ITEM, TaskToken
from runnel.core.states import IN_FLIGHT_STATES, ExecutionState, NodeState
from simulation.commit_log import CommitStep, InvariantCheck

_TIMED_WAITS = frozenset({Wait.RETRY, Wait.CRASH, Wait.RATE_LIMIT, Wait.SLEEP})


class StuckExecutionCheck(InvariantCheck):
    name = "stuck"

    def on_commit(self, step: CommitStep) -> None:
        if self.truth.cuts_commits:
            return  # the second commit of a split decision is only in memory
        for id_ in {id_ for id_, _ in step.events}:
            execution = self.truth.executions.get(id_)
            if execution is not None and execution.state is ExecutionState.RUNNING:
                self._check_execution(execution)

    def on_end(self) -> None:
        for id_ in self.truth.orders.keys() - self.truth.executions.keys():
            raise self.make_violation(f"{id_} was submitted and never started")
        for execution in self.truth.executions.values():
            if not execution.is_final:
                states = {
                    compiled.node.id: str(execution.nodes[compiled.index].wait or run.state)
                    for compiled in execution.graph.nodes
                    if not (run := execution.nodes[compiled.index]).is_final
                }
                raise self.make_violation(f"{execution.id} stays {execution.state}: {states}")

    def _check_execution(self, execution: Execution) -> None:
        self._check_deadlines(execution)
        for token, run in _list_unsettled(execution):
            if run.state in IN_FLIGHT_STATES and not self._is_in_flight(token):
                raise self.make_violation(f"{token} is {run.state}, but the store has no such task")
            if run.wait is Wait.SIGNAL and run.due is not None and not self._has_timer(token, run):
                raise self.make_violation(
                    f"{token} waits for {run.detail} until {run.due}, without a timer"
                )
            if run.state is NodeState.WAITING and not self._is_wait_backed(token, run):
                raise self.make_violation(
                    f"{token} waits for {run.wait} ({run.detail}), which does not exist"
                )

    def _check_deadlines(self, execution: Execution) -> None:
        workflow, since = execution.graph.workflow, execution.started_at or 0.0
        expected = set()
        if workflow.timeout_seconds is not None and execution.outcome is None:
            expected.add((TimerKind.TIMEOUT, since + workflow.timeout_seconds))
        if workflow.sla_seconds is not None and not execution.is_sla_missed:
            expected.add((TimerKind.SLA, since + workflow.sla_seconds))
        if not expected:
            return
        number = self.truth.server.state.route(execution.id)
        timers = self.truth.server.state.partitions[number].timers.all()
        actual = {(t.key.kind, t.due) for t in timers if t.key.execution_id == execution.id}
        if not expected <= actual:
            raise self.make_violation(f"{execution.id} has timers {actual}, expected {expected}")

    def _is_in_flight(self, token: TaskToken) -> bool:
        state = self.truth.server.state
        return state.board.has_task(token) or any(
            token in partition.inbox.list_reported_tokens() for partition in state.partitions
        )

    def _is_wait_backed(self, token: TaskToken, run: NodeRun) -> bool:
        if run.wait in _TIMED_WAITS:
            return self._has_timer(token, run)
        if run.wait is Wait.LIMIT:
            return self._is_limit_requested(token, run)
        if run.wait is Wait.CHILD:
            return self._is_child_alive(run)
        return True  # signals may never arrive, and the queue for slots is in memory

    def _has_timer(self, token: TaskToken, run: NodeRun) -> bool:
        """Returns True if the store has a timer for exactly the due time of the node or item."""
        number = self.truth.server.state.route(token.execution_id)
        timers = self.truth.server.state.partitions[number].timers.all()
        expected = (token.execution_id, token.node_id, token.item, run.due)
        return any(
            (t.key.execution_id, t.key.node_id, t.key.item, t.due) == expected for t in timers
        )

    def _is_limit_requested(self, token: TaskToken, run: NodeRun) -> bool:
        limit = self.truth.limits.get(make_limit_id(run.key))
        if limit is not None and (token in limit.waiters or token in limit.holders):
            return True
        return any(
            isinstance(command, AcquireLimit | LimitGranted) and command.holder == token
            for command in self._list_messages()
        )

    def _is_child_alive(self, run: NodeRun) -> bool:
        child = self.truth.executions.get(run.detail)
        if child is not None and not child.is_final:
            return True
        if child is None and run.detail in self.truth.server.state.headers:
            return True
        return any(
            isinstance(command, ChildSettled) and command.child_id == run.detail
            for command in self._list_messages()
        )

    def _list_messages(self) -> Iterable[object]:
        for partition in self.truth.server.state.partitions:
            for entry in self.truth.get_inbox(partition.number).entries:
                yield entry.command


def _list_unsettled(execution: Execution) -> list[tuple[TaskToken, NodeRun]]:
    """Returns the unsettled nodes with their tokens.

    Returns the active items of a map instead of the map.
    """
    attempts = [
        (execution.token(index, NO_ITEM, run), run)
        for index, run in enumerate(execution.nodes)
        if index not in execution.maps
    ]
    for index, map_run in execution.maps.items():
        attempts += [(execution.token(index, i, run), run) for i, run in map_run.active.items()]
    return attempts
