"""Checks that the errors of a node, its execution and its parent name the cause."""

from runnel.core.execution import Execution, NodeRun
from runnel.core.states import ExecutionState, NodeState
from runnel.core.workflow import Node
from simulation.checks.expected import CRASH_LOOP, TIMED_OUT
from simulation.commit_log import InvariantCheck
from simulation.workload import WORK, predict_error

# Nested causes are truncated, so only the first characters are compared.
_SHOWN_CHARS = 100


class ErrorMessageCheck(InvariantCheck):
    name = "errors"

    def on_end(self) -> None:
        for execution in self.truth.executions.values():
            for compiled in execution.graph.nodes:
                run = execution.nodes[compiled.index]
                if run.state is NodeState.FAILED:
                    self._check_node(execution, compiled.node, run)
            self._check_execution(execution)

    def _check_node(self, execution: Execution, node: Node, run: NodeRun) -> None:
        if run.error is None:
            raise self.make_violation(f"{execution.id}/{node.id} has failed without an error")
        if node.handler == WORK and run.error.type != CRASH_LOOP:
            type_, message = predict_error(node)
            if run.error.type != type_ or message not in run.error.message:
                raise self.make_violation(
                    f"{execution.id}/{node.id} has the error {run.error}, expected {type_}"
                )
        is_child = node.child is not None and node.for_each is None
        child = self.truth.executions.get(run.detail) if is_child else None
        if child is not None and child.error is not None:
            cause = child.error.message[:_SHOWN_CHARS]
            if cause not in run.error.message:
                raise self.make_violation(
                    f"{execution.id}/{node.id} has the error {run.error}, expected {cause}"
                )

    def _check_execution(self, execution: Execution) -> None:
        error = execution.error
        if execution.state is ExecutionState.COMPLETED:
            is_right = error is None
        elif execution.state is ExecutionState.CANCELLED:
            is_right = error is not None and error.type == "Cancelled"
        else:
            is_right = error is not None and (
                error.type == TIMED_OUT or _names_cause(execution, error.message)
            )
        if not is_right:
            raise self.make_violation(f"{execution.id} is {execution.state} with the error {error}")


def _names_cause(execution: Execution, message: str) -> bool:
    """Returns True if the message starts with a failed node and its error."""
    for compiled in execution.graph.nodes:
        run = execution.nodes[compiled.index]
        cause = f"node '{compiled.node.id}' failed: {run.error}"
        if run.state is NodeState.FAILED and message.startswith(cause[:_SHOWN_CHARS]):
            return True
    return False
