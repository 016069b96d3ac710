"""Checks that a join runs once, when all its parents are settled and its rule holds."""

from runnel.core.events import Event, MapStarted, NodeQueued, NodeSkipped, NodeWaits, TaskWasLost
from runnel.core.execution import Execution
from runnel.core.run_when import RunWhen, SkipReason
from runnel.core.states import IN_FLIGHT_STATES, NodeState
from simulation.commit_log import GroundTruth, InvariantCheck

_START_EVENTS = (NodeQueued, NodeWaits, MapStarted)
_RULE_SKIPS = frozenset(SkipReason) - {SkipReason.CONDITION_FALSE, SkipReason.BY_ITSELF}


class JoinCheck(InvariantCheck):
    name = "joins"

    def __init__(self, truth: GroundTruth) -> None:
        super().__init__(truth)
        self._lost: set[tuple[str, str, int, int]] = set()

    def on_event(self, execution: Execution, event: Event, at: float) -> None:
        if isinstance(event, _START_EVENTS):
            self._check_start(execution, event)
        elif isinstance(event, NodeSkipped) and event.reason in _RULE_SKIPS:
            node = execution.graph.nodes[execution.graph.index[event.node]].node
            if _is_rule_satisfied(execution, execution.graph.index[event.node]):
                raise self.make_violation(
                    f"{execution.id}/{node.id} is skipped although its rule holds"
                )
        elif isinstance(event, TaskWasLost):
            run = execution.run(execution.graph.index[event.node], event.item)
            attempt = 0 if run is None else run.attempt
            self._lost.add((execution.id, event.node, event.item, attempt))

    def _check_start(self, execution: Execution, event: "NodeQueued|NodeWaits|MapStarted") -> None:
        index = execution.graph.index[event.node]
        compiled = execution.graph.nodes[index]
        name = f"{execution.id}/{event.node}"
        states = [execution.nodes[parent].state for parent in compiled.parents]
        if not all(execution.nodes[parent].is_final for parent in compiled.parents):
            raise self.make_violation(f"{name} starts while its parents are {states}")
        if execution.nodes[index].state is NodeState.PENDING and not _is_rule_satisfied(
            execution, index
        ):
            raise self.make_violation(
                f"{name} starts although {compiled.node.run_when} does not hold for {states}"
            )
        if isinstance(event, NodeQueued):
            self._check_once(execution, index, event)

    def _check_once(self, execution: Execution, index: int, event: NodeQueued) -> None:
        run = execution.run(index, event.item)
        if run is None:
            return
        name = f"{execution.id}/{event.node}[{event.item}]"
        if event.attempt < run.attempt:
            raise self.make_violation(
                f"{name} goes back from attempt {run.attempt} to {event.attempt}"
            )
        is_lost = (execution.id, event.node, event.item, run.attempt) in self._lost
        if run.state in IN_FLIGHT_STATES and not is_lost:
            raise self.make_violation(
                f"{name} is issued again while attempt {run.attempt} is in flight"
            )


def _is_rule_satisfied(execution: Execution, index: int) -> bool:
    """Returns True if the rule of the join holds.

    Evaluates the rule independently of the engine's code.
    """
    compiled = execution.graph.nodes[index]
    parents = [execution.nodes[parent] for parent in compiled.parents]
    rule = compiled.node.run_when
    if not parents or rule is RunWhen.ALL_SETTLED:
        return True
    states = [parent.state for parent in parents]
    has_failed = NodeState.FAILED in states or any(
        parent.state is NodeState.CANCELLED and parent.attempt for parent in parents
    )
    if rule is RunWhen.ONE_FAILED:
        return has_failed
    is_blocked = any(parent.skip is SkipReason.DEPENDENCY_FAILED for parent in parents)
    if has_failed or is_blocked or NodeState.CANCELLED in states:
        return False
    if rule is RunWhen.ALL_COMPLETED:
        return all(state is NodeState.COMPLETED for state in states)
    return rule is RunWhen.NONE_FAILED or NodeState.COMPLETED in states
