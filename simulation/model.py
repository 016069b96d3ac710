"""A model that computes every expected value from the plan's inputs and the final node states.

The model reads no output that the engine has stored. The model has its own template rules, which
cover only the templates of simulated workflows.
"""

import json
import re
from collections.abc import Callable, Mapping

from runnel.core.execution import Execution
from runnel.core.ids import NO_ITEM
from runnel.core.states import NodeState
from runnel.core.values import Json
from runnel.core.workflow import Node
from simulation.faults import InvariantViolation
from simulation.plan import ExecutionOrder, make_signal_payload
from simulation.workload import WORK, compute_output, is_skipped

Lookup = Callable[[str], Json]

MISSING = object()
"""The output of a node without an output."""

_TEMPLATE = re.compile(r"\{\{ (.+) \}\}")
_EXPRESSION = re.compile(r"(\w+)(?:\.(\w+))?(?: \| default\((.+)\))?")


class ValueModel:
    """Computes the expected inputs and outputs.

    The checks record consumed signals, child ids and sleep outputs in the model.
    """

    def __init__(
        self, orders: Mapping[str, ExecutionOrder], executions: Mapping[str, Execution]
    ) -> None:
        self._orders = orders
        self._executions = executions
        self.signals: dict[tuple[str, str], str] = {}
        self.children: dict[tuple[str, str, int], str] = {}
        self.sleeps: dict[tuple[str, str], Json] = {}
        self._outputs: dict[tuple[str, str], Json] = {}

    def compute_input(self, execution: Execution) -> Json:
        parent = execution.parent
        if parent is None:
            return self._orders[execution.id].final_input
        above = self._executions[parent.execution_id]
        node = above.graph.node(parent.node_id).node
        return self.resolve_config(above, node, node.config.get("input", {}), parent.item)

    def resolve_config(self, execution: Execution, node: Node, config: Json, item: int) -> Json:
        """Returns `config` as the task of the node or item must receive it."""

        def lookup(root: str) -> Json:
            if root == "item":
                return self.compute_items(execution, node)[item]
            return self._look_up(execution, root)

        return resolve(config, lookup)

    def compute_items(self, execution: Execution, node: Node) -> list[Json]:
        expression = node.for_each or "[]"
        if expression.startswith("["):
            items = json.loads(expression)
        else:
            items = evaluate(expression, lambda root: self._look_up(execution, root))
        return list(items)

    def compute_output(self, execution: Execution, node: Node) -> Json:
        """Returns the expected output of a node; MISSING for a node that has not completed."""
        if execution.nodes[execution.graph.index[node.id]].state is not NodeState.COMPLETED:
            return MISSING
        key = (execution.id, node.id)
        if key not in self._outputs:
            self._outputs[key] = self._compute_node_output(execution, node)
        return self._outputs[key]

    def compute_result(self, execution: Execution) -> Json:
        """Returns the expected output of a completed execution."""
        workflow = execution.graph.workflow
        if workflow.output is not None:
            return resolve(workflow.output, lambda root: self._look_up(execution, root))
        above = {parent for node in workflow.nodes for parent in node.dependencies}
        last = [node for node in workflow.nodes if node.id not in above]
        outputs = {node.id: self.compute_output(execution, node) for node in last}
        if len(last) == 1:
            output = outputs[last[0].id]
            return None if output is MISSING else output
        return {node_id: output for node_id, output in outputs.items() if output is not MISSING}

    def _look_up(self, execution: Execution, root: str) -> Json:
        if root == "input":
            return self.compute_input(execution)
        index = execution.graph.index[root]  # type: ignore[index]  # ids are texts
        return self.compute_output(execution, execution.graph.nodes[index].node)

    def _compute_node_output(self, execution: Execution, node: Node) -> Json:
        if node.for_each is None:
            return self._compute_item_output(execution, node, NO_ITEM)
        count = len(self.compute_items(execution, node))
        return [self._compute_item_output(execution, node, item) for item in range(count)]

    def _compute_item_output(self, execution: Execution, node: Node, item: int) -> Json:
        if node.handler == WORK:
            item_index = None if item == NO_ITEM else item
            if is_skipped(node.config, item_index):
                return None
            of = self.resolve_config(execution, node, node.config.get("of"), item)
            return compute_output(node.config, of, node.id, item_index)
        if node.child is not None:
            child_id = self.children[execution.id, node.id, item]
            if child_id not in self._executions:
                raise InvariantViolation(
                    "values", f"{execution.id}/{node.id} has the unknown child {child_id}"
                )
            return self.compute_result(self._executions[child_id])
        if node.handler == "wait_for_signal":
            signal_id = self.signals.get((execution.id, node.id))
            return None if signal_id is None else make_signal_payload(execution.id, signal_id)
        return self.sleeps[execution.id, node.id]


def resolve(config: Json, lookup: Lookup) -> Json:
    """Returns `config` with each template replaced by its value."""
    if isinstance(config, dict):
        return {key: resolve(value, lookup) for key, value in config.items()}
    if isinstance(config, list):
        return [resolve(value, lookup) for value in config]
    match = _TEMPLATE.fullmatch(config) if isinstance(config, str) else None
    return config if match is None else evaluate(match[1], lookup)


def evaluate(expression: str, lookup: Lookup) -> Json:
    """Evaluates an expression of the form `a`, `a.b` or `a | default(literal)`."""
    match = _EXPRESSION.fullmatch(expression)
    if match is None:
        raise ValueError(f"the model does not know the expression {expression}")
    root, key, default = match.groups()
    value = lookup(root)
    if value is MISSING:
        return json.loads(default.replace("'", '"'))
    return value if key is None else value[key]
