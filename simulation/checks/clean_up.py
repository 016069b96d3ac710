"""Checks that a clean-up node starts only after the code of cancelled nodes has ended."""

from runnel.core.commands import TaskLost
from runnel.core.events import CodeEnded, Event, MapStarted, NodeCancelled, NodeQueued, NodeWaits
from runnel.core.execution import Execution
from runnel.core.ids import TaskToken
from runnel.core.states import IN_FLIGHT_STATES, NodeState
from simulation.commit_log import CommitStep, GroundTruth, InvariantCheck
from simulation.faults import Fault
from simulation.plan import STOP_S_MAX

_START_EVENTS = (NodeQueued, NodeWaits, MapStarted)
CLOSED_BY_PARENT = "parent closed"
# The clock of a commit is read a little before the commit reaches the store.
TOLERANCE_S = 0.5


class CleanUpCheck(InvariantCheck):
    """Ignores code of workers that count as dead, and code that ran longer than the time limit.

    After a change of a wall clock, the time limit is not known here.
    """

    name = "clean-up"

    def __init__(self, truth: GroundTruth) -> None:
        super().__init__(truth)
        self._stopped_at: dict[TaskToken, float] = {}
        self._assumed: set[tuple[str, str, int]] = set()
        self._starts: list[tuple[Execution, str]] = []

    def on_event(self, execution: Execution, event: Event, at: float) -> None:
        if isinstance(event, NodeCancelled):
            self._note_stop(execution, event)
        elif isinstance(event, CodeEnded) and event.is_assumed:
            self._assumed.add((execution.id, event.node, event.item))
        elif isinstance(event, _START_EVENTS):
            compiled = execution.graph.nodes[execution.graph.index[event.node]]
            is_first = execution.nodes[compiled.index].state is NodeState.PENDING
            # A clean-up node without parents starts with the execution, before anything closes it.
            is_closing = execution.closing_error is not None
            if compiled.is_clean_up and is_first and is_closing:
                self._starts.append((execution, event.node))

    def _note_stop(self, execution: Execution, event: NodeCancelled) -> None:
        index = execution.graph.index[event.node]
        run = execution.run(index, event.item)
        if run is not None and run.state in IN_FLIGHT_STATES:
            token = execution.token(index, event.item, run)
            self._stopped_at[token] = self.truth.server.clock.monotonic()

    def on_commit(self, step: CommitStep) -> None:
        starts, self._starts = self._starts, []
        for entry in step.consumed:
            if isinstance(entry.command, TaskLost):
                self._stopped_at.pop(entry.command.token, None)
        if self.truth.was_rolled_back:
            return  # the store may have lost the stops and their ends
        for execution, node in starts:
            self._check_start(execution, node)

    def _check_start(self, execution: Execution, node: str) -> None:
        now = self.truth.server.clock.monotonic()
        for worker, tokens in self.truth.running_handlers.items():
            for token in tokens:
                stopped_at = self._stopped_at.get(token)
                if stopped_at is None or not self._is_awaited(execution, token):
                    continue
                if not self._is_over_limit(token, now - stopped_at):
                    raise self.make_violation(
                        f"{execution.id}/{node} starts while {worker} runs the code of {token}, "
                        f"which was cancelled {now - stopped_at:.2f} s ago"
                    )

    def _is_awaited(self, execution: Execution, token: TaskToken) -> bool:
        """Returns True for code of the execution itself, and of children that it cancelled."""
        if token.execution_id == execution.id:
            return True
        child = self.truth.executions.get(token.execution_id)
        if child is None or child.closing_error is None or child.is_abrupt:
            return False
        is_below = child.id.startswith(f"{execution.id}.")
        return is_below and child.closing_error.message == CLOSED_BY_PARENT

    def _is_over_limit(self, token: TaskToken, stopped_s: float) -> bool:
        if (token.execution_id, token.node_id, token.item) not in self._assumed:
            return False
        return stopped_s >= STOP_S_MAX - TOLERANCE_S or Fault.SKEW in self.truth.plan.faults
