"""Every value is the right one: what tasks are given, what nodes and executions come to."""

import msgspec

from runnel.core.events import Event, NodeCompleted, NodeWaits, SignalConsumed, Wait
from runnel.core.execution import Execution
from runnel.core.ids import Token
from runnel.core.states import ExecutionState, NodeState
from runnel.core.values import Json, Value
from runnel.core.workflow import SLEEP, Node
from simulation.commit_log import Check, Given, Truth
from simulation.model import MISSING, Model

_encode = msgspec.json.Encoder(order="deterministic").encode


class Values(Check):
    name = "values"

    def __init__(self, truth: Truth) -> None:
        super().__init__(truth)
        self._model = Model(truth.orders, truth.executions)

    def happening(self, execution: Execution, event: Event, at: float) -> None:
        if isinstance(event, SignalConsumed):
            self._model.signals[execution.id, event.node] = event.signal_id
        elif isinstance(event, NodeWaits) and event.wait is Wait.CHILD:
            self._model.children[execution.id, event.node, event.item] = event.detail
        elif isinstance(event, NodeWaits) and event.wait is Wait.LIMIT:
            self._check_key(execution, event)
        elif isinstance(event, NodeCompleted):
            self._note_sleep(execution, event)

    def code_begins(self, worker: str, token: Token, given: Given) -> None:
        if not self.truth.is_current(token, self.truth.run_of(token)):
            return  # its answer will be refused
        execution = self.truth.executions[token.execution_id]
        node = execution.graph.node(token.node_id).node
        self._same(f"{token}: of", given.of, self._of(execution, node, token.item))
        inputs = {parent: self._output(execution, parent) for parent in node.dependencies}
        wanted = {parent: found for parent, found in inputs.items() if found is not MISSING}
        self._same(f"{token}: inputs", given.inputs, wanted)
        self._same(f"{token}: input", given.execution_input, self._model.input_of(execution))

    def ended(self) -> None:
        for execution in self.truth.executions.values():
            if execution.started_at is not None:
                wanted = self._model.input_of(execution)
                self._same(f"{execution.id}: input", self._data(execution.input), wanted)
            for compiled in execution.graph.nodes:
                run, node = execution.nodes[compiled.index], compiled.node
                if run.state is NodeState.COMPLETED:
                    name = f"{execution.id}/{node.id}"
                    self._same(name, self._data(run.output), self._model.output_of(execution, node))
            if execution.state is ExecutionState.COMPLETED:
                wanted = self._model.result_of(execution)
                self._same(f"{execution.id}: output", self._data(execution.output), wanted)

    def _note_sleep(self, execution: Execution, event: NodeCompleted) -> None:
        """How long it was depends on the clocks of its owners; not less than it should, though."""
        node = execution.graph.node(event.node).node
        if node.handler != SLEEP:
            return
        found = self._data(event.output)
        if [*found] != ["slept_seconds"] or found["slept_seconds"] < node.config["seconds"]:
            raise self.broken(f"{execution.id}/{event.node}: {found} of {node.config}")
        self._model.sleeps[execution.id, event.node] = found

    def _check_key(self, execution: Execution, event: NodeWaits) -> None:
        node = execution.graph.node(event.node).node
        wanted = self._model.resolved(execution, node, node.concurrency_key, event.item)
        self._same(f"{execution.id}/{event.node}: key", event.detail, wanted)

    def _of(self, execution: Execution, node: Node, item: int) -> Json:
        return self._model.resolved(execution, node, node.config.get("of"), item)

    def _output(self, execution: Execution, node_id: str) -> Json:
        node = execution.graph.nodes[execution.graph.index[node_id]].node  # type: ignore[index]  # ids are texts
        return self._model.output_of(execution, node)

    def _data(self, value: Value | None) -> Json:
        if value is None or value.blob is None:
            return None if value is None else value.decode()
        return msgspec.json.decode(self.truth.server.blobs.peek(value.blob) or b"null")

    def _same(self, what: str, found: Json, wanted: Json) -> None:
        if found is not wanted and _encode(found) != _encode(wanted):
            raise self.broken(f"{what} is {found!r:.150}, expected {wanted!r:.150}")
