"""Checks that inputs of tasks and outputs of nodes and executions equal those of the model."""

import msgspec

from runnel.core.events import Event, NodeCompleted, NodeWaits, SignalConsumed, Wait
from runnel.core.execution import Execution
from runnel.core.ids import TaskToken
from runnel.core.states import ExecutionState, NodeState
from runnel.core.values import Json, Value
from runnel.core.workflow import SLEEP, Node
from simulation.commit_log import GroundTruth, HandlerInvocation, InvariantCheck
from simulation.model import MISSING, ValueModel

_encode = msgspec.json.Encoder(order="deterministic").encode


class ComputedValueCheck(InvariantCheck):
    name = "values"

    def __init__(self, truth: GroundTruth) -> None:
        super().__init__(truth)
        self._model = ValueModel(truth.orders, truth.executions)

    def on_event(self, execution: Execution, event: Event, at: float) -> None:
        if isinstance(event, SignalConsumed):
            self._model.signals[execution.id, event.node] = event.signal_id
        elif isinstance(event, NodeWaits) and event.wait is Wait.CHILD:
            self._model.children[execution.id, event.node, event.item] = event.detail
        elif isinstance(event, NodeWaits) and event.wait is Wait.LIMIT:
            self._check_key(execution, event)
        elif isinstance(event, NodeCompleted):
            self._record_sleep(execution, event)

    def on_handler_started(
        self, worker: str, token: TaskToken, invocation: HandlerInvocation
    ) -> None:
        if not self.truth.is_current(token, self.truth.find_run(token)):
            return  # the store will refuse the report of this task
        execution = self.truth.executions[token.execution_id]
        node = execution.graph.node(token.node_id).node
        self._check_equal(
            f"{token}: of",
            invocation.template_values,
            self._resolve_template_values(execution, node, token.item),
        )
        inputs = {parent: self._compute_output(execution, parent) for parent in node.dependencies}
        expected = {parent: value for parent, value in inputs.items() if value is not MISSING}
        self._check_equal(f"{token}: inputs", invocation.inputs, expected)
        self._check_equal(
            f"{token}: input", invocation.execution_input, self._model.compute_input(execution)
        )

    def on_end(self) -> None:
        for execution in self.truth.executions.values():
            if execution.started_at is not None:
                expected = self._model.compute_input(execution)
                self._check_equal(f"{execution.id}: input", self._decode(execution.input), expected)
            for compiled in execution.graph.nodes:
                run, node = execution.nodes[compiled.index], compiled.node
                if run.state is NodeState.COMPLETED:
                    name = f"{execution.id}/{node.id}"
                    self._check_equal(
                        name, self._decode(run.output), self._model.compute_output(execution, node)
                    )
            if execution.state is ExecutionState.COMPLETED:
                expected = self._model.compute_result(execution)
                self._check_equal(
                    f"{execution.id}: output", self._decode(execution.output), expected
                )

    def _record_sleep(self, execution: Execution, event: NodeCompleted) -> None:
        """Records the output of a sleep in the model.

        The length of a sleep depends on clocks, so only its minimum is checked.
        """
        node = execution.graph.node(event.node).node
        if node.handler != SLEEP:
            return
        output = self._decode(event.output)
        if [*output] != ["slept_seconds"] or output["slept_seconds"] < node.config["seconds"]:
            raise self.make_violation(
                f"the sleep {execution.id}/{event.node} returns {output}, "
                f"its config is {node.config}"
            )
        self._model.sleeps[execution.id, event.node] = output

    def _check_key(self, execution: Execution, event: NodeWaits) -> None:
        node = execution.graph.node(event.node).node
        expected = self._model.resolve_config(execution, node, node.concurrency_key, event.item)
        self._check_equal(f"{execution.id}/{event.node}: key", event.detail, expected)

    def _resolve_template_values(self, execution: Execution, node: Node, item: int) -> Json:
        return self._model.resolve_config(execution, node, node.config.get("of"), item)

    def _compute_output(self, execution: Execution, node_id: str) -> Json:
        node = execution.graph.nodes[execution.graph.index[node_id]].node  # type: ignore[index]  # ids are texts
        return self._model.compute_output(execution, node)

    def _decode(self, value: Value | None) -> Json:
        if value is None or value.blob is None:
            return None if value is None else value.decode()
        return msgspec.json.decode(self.truth.server.blobs.peek(value.blob) or b"null")

    def _check_equal(self, name: str, actual: Json, expected: Json) -> None:
        if actual is not expected and _encode(actual) != _encode(expected):
            raise self.make_violation(f"{name} is {actual!r:.150}, expected {expected!r:.150}")
