"""Checks that final states equal those of the reference, which settles nodes in the same order."""

from collections.abc import Container, Iterable
from typing import TypeGuard

from runnel.core.codec import decode_entry
from runnel.core.events import (
    AnyEvent,
    ExecutionClosing,
    ExecutionStarted,
    MapStarted,
    NodeCompleted,
    NodeFailed,
    NodeQueued,
    NodeSkipped,
    NodeWaits,
)
from runnel.core.execution import Execution, NodeRun
from runnel.core.ids import NO_ITEM
from runnel.core.run_when import CLEAN_UP_RULES, RunWhen, SkipReason
from runnel.core.states import FINAL_NODE_STATES, ExecutionState, NodeState
from runnel.core.workflow import WAIT_FOR_SIGNAL, Node, Workflow
from simulation.commit_log import InvariantCheck
from simulation.reference import ReferenceExecution
from simulation.workload import WORK, predict_state


class FullReferenceExecution(ReferenceExecution):
    """The reference execution, extended by nodes that skip themselves and by forced cancels."""

    def skip(self, node_id: str) -> None:
        """Settles a node as skipped by its own code."""
        self.state[node_id] = NodeState.SKIPPED
        self._advance()

    def force(self, skipped: Container[str] = ()) -> None:
        """Cancels the execution without clean-up.

        In an execution that was closing, clean-up nodes may still have waited for the end of
        stopped code. Such nodes are cancelled too, unless they are in `skipped`.
        """
        rules: dict[str, RunWhen] = {node.id: node.run_when for node in self.workflow.nodes}
        for node_id, state in self.state.items():
            has_waited = (
                self.outcome is not None
                and state is NodeState.SKIPPED
                and rules[node_id] in CLEAN_UP_RULES
                and node_id not in skipped
            )
            if state not in FINAL_NODE_STATES or has_waited:
                self.state[node_id] = NodeState.CANCELLED
        self.outcome = self.outcome or "CANCELLED"


TIMED_OUT = "ExecutionTimeout"
CRASH_LOOP = "CrashLoop"
_SCRIPTED_STATES = (NodeState.COMPLETED, NodeState.FAILED)


class ReferenceCheck(InvariantCheck):
    name = "reference"

    def on_end(self) -> None:
        for execution in self.truth.executions.values():
            self._check_states(execution)
            self._check_scripts(execution)

    def _check_states(self, execution: Execution) -> None:
        events = list(self._read_events(execution))
        reference = FullReferenceExecution(
            execution.graph.workflow, _find_false_conditions(execution.graph.workflow)
        )
        if not any(isinstance(event, ExecutionStarted) for event in events):
            reference.state = dict.fromkeys(reference.state, NodeState.PENDING)
            reference.force()  # cancelled while it was held, so no node has started
        result: str | None = None
        started: set[str] = set()
        skipped: set[str] = set()
        for event in events:
            if _is_node_start(event):
                started.add(event.node)
            if isinstance(event, NodeSkipped):
                skipped.add(event.node)
            reference.has_run = set(started)  # nodes that only waited for a slot are left out
            if _is_node_end(event):
                self._settle(execution, reference, event)
            elif isinstance(event, ExecutionClosing) and _is_from_outside(event):
                # The execution may already have an outcome, with only its output not stored yet.
                result = result or reference.outcome or event.outcome
                if event.is_abrupt:
                    reference.force(skipped)
                else:
                    reference.cancel(event.outcome)
        self._compare(execution, reference, result or reference.result)

    def _settle(
        self,
        execution: Execution,
        reference: FullReferenceExecution,
        event: NodeCompleted | NodeFailed | NodeSkipped,
    ) -> None:
        if reference.state[event.node] is not NodeState.RUNNING:
            state = reference.state[event.node]
            raise self.make_violation(
                f"{execution.id}/{event.node} settles, but the reference expects {state}"
            )
        if isinstance(event, NodeSkipped):
            reference.skip(event.node)
        else:
            reference.settle(event.node, is_ok=isinstance(event, NodeCompleted))

    def _compare(
        self, execution: Execution, reference: FullReferenceExecution, result: str | None
    ) -> None:
        for compiled in execution.graph.nodes:
            state = execution.nodes[compiled.index].state
            expected_state = reference.state[compiled.node.id]
            if state is not expected_state:
                name = f"{execution.id}/{compiled.node.id}"
                raise self.make_violation(f"{name} is {state}, expected {expected_state}")
        if execution.state != result:
            raise self.make_violation(f"{execution.id} is {execution.state}, expected {result}")

    def _check_scripts(self, execution: Execution) -> None:
        for compiled in execution.graph.nodes:
            run, node = execution.nodes[compiled.index], compiled.node
            is_by_itself = run.skip is SkipReason.BY_ITSELF
            if run.state not in _SCRIPTED_STATES and not is_by_itself:
                continue
            expected_state = self._predict_state(execution, node, run)
            if run.state is not expected_state:
                name = f"{execution.id}/{node.id}"
                raise self.make_violation(
                    f"{name} is {run.state} ({run.error}), its script says {expected_state}"
                )

    def _predict_state(self, execution: Execution, node: Node, run: NodeRun) -> NodeState:
        """Returns the expected state of a node.

        For random ends, such as crash loops, returns the actual state, because other checks cover
        them.
        """
        if node.handler == WAIT_FOR_SIGNAL:
            return _predict_signal_wait(node, run)
        if node.handler != WORK or (run.error is not None and run.error.type == CRASH_LOOP):
            return run.state
        map_run = execution.maps.get(execution.graph.index[node.id])
        return predict_state(node, execution.id, items=None if map_run is None else map_run.count)

    def _read_events(self, execution: Execution) -> Iterable[AnyEvent]:
        for data in self.truth.server.state.histories[execution.id]:
            yield from decode_entry(data).events


def _predict_signal_wait(node: Node, run: NodeRun) -> NodeState:
    is_in_time = run.output is not None and run.output.decode() is not None
    if is_in_time or node.config.get("on_timeout") == "complete":
        return NodeState.COMPLETED
    return NodeState.FAILED


def _find_false_conditions(workflow: Workflow) -> set[str]:
    return {node.id for node in workflow.nodes if node.condition in ("false", "input.off")}


def _is_node_start(event: AnyEvent) -> TypeGuard[NodeQueued | NodeWaits | MapStarted]:
    """Returns True if the event starts an attempt: a task, a sleep, a child or a wait for a key."""
    if isinstance(event, NodeWaits):
        return event.attempt is not None and event.item == NO_ITEM
    return isinstance(event, NodeQueued | MapStarted)


def _is_node_end(event: AnyEvent) -> TypeGuard[NodeCompleted | NodeFailed | NodeSkipped]:
    """Returns True if the node settled by its own work, not by a rule of the graph."""
    if isinstance(event, NodeSkipped) and event.reason is not SkipReason.BY_ITSELF:
        return False
    is_end = isinstance(event, NodeCompleted | NodeFailed | NodeSkipped)
    return is_end and event.item == NO_ITEM  # type: ignore[union-attr]  # those three events have an item


def _is_from_outside(event: ExecutionClosing) -> bool:
    is_timeout = event.error is not None and event.error.type == TIMED_OUT
    return event.outcome is ExecutionState.CANCELLED or is_timeout
