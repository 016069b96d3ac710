"""What every value should be: from the inputs that were asked for and from how nodes ended.

No output that the engine has stored is looked at, and templates are read by rules of their own,
which know just the forms that simulated workflows use.
"""

import json
import re
from collections.abc import Callable, Mapping

from runnel.core.execution import Execution
from runnel.core.ids import NO_ITEM
from runnel.core.states import NodeState
from runnel.core.values import Json
from runnel.core.workflow import Node
from simulation.faults import Broken
from simulation.plan import Order, payload_of
from simulation.workload import WORK, output_of, skips

Lookup = Callable[[str], Json]

MISSING = object()
"""The output of a node that has none."""

_TEXT = re.compile(r"\{\{ (.+) \}\}")
_EXPRESSION = re.compile(r"(\w+)(?:\.(\w+))?(?: \| default\((.+)\))?")


class Model:
    """Is told which signal a node took, which child stands for a node or item, how a sleep was."""

    def __init__(self, orders: Mapping[str, Order], executions: Mapping[str, Execution]) -> None:
        self._orders = orders
        self._executions = executions
        self.signals: dict[tuple[str, str], str] = {}
        self.children: dict[tuple[str, str, int], str] = {}
        self.sleeps: dict[tuple[str, str], Json] = {}
        self._settled: dict[tuple[str, str], Json] = {}

    def input_of(self, execution: Execution) -> Json:
        parent = execution.parent
        if parent is None:
            return self._orders[execution.id].final_input
        above = self._executions[parent.execution_id]
        node = above.graph.node(parent.node_id).node
        return self.resolved(above, node, node.config.get("input", {}), parent.item)

    def resolved(self, execution: Execution, node: Node, config: Json, item: int) -> Json:
        """`config` as a task of the node, or of one of its items, should get it."""

        def lookup(root: str) -> Json:
            if root == "item":
                return self.items_of(execution, node)[item]
            return self._lookup(execution, root)

        return resolve(config, lookup)

    def items_of(self, execution: Execution, node: Node) -> list[Json]:
        expression = node.for_each or "[]"
        if expression.startswith("["):
            found = json.loads(expression)
        else:
            found = evaluate(expression, lambda root: self._lookup(execution, root))
        return list(found)

    def output_of(self, execution: Execution, node: Node) -> Json:
        """MISSING for a node that has not completed."""
        if execution.nodes[execution.graph.index[node.id]].state is not NodeState.COMPLETED:
            return MISSING
        key = (execution.id, node.id)
        if key not in self._settled:
            self._settled[key] = self._output(execution, node)
        return self._settled[key]

    def result_of(self, execution: Execution) -> Json:
        """Of an execution that has completed."""
        workflow = execution.graph.workflow
        if workflow.output is not None:
            return resolve(workflow.output, lambda root: self._lookup(execution, root))
        above = {parent for node in workflow.nodes for parent in node.dependencies}
        last = [node for node in workflow.nodes if node.id not in above]
        outputs = {node.id: self.output_of(execution, node) for node in last}
        if len(last) == 1:
            alone = outputs[last[0].id]
            return None if alone is MISSING else alone
        return {node_id: found for node_id, found in outputs.items() if found is not MISSING}

    def _lookup(self, execution: Execution, root: str) -> Json:
        if root == "input":
            return self.input_of(execution)
        return self.output_of(execution, execution.graph.nodes[execution.graph.index[root]].node)  # type: ignore[index]  # ids are texts

    def _output(self, execution: Execution, node: Node) -> Json:
        if node.for_each is None:
            return self._piece(execution, node, NO_ITEM)
        count = len(self.items_of(execution, node))
        return [self._piece(execution, node, item) for item in range(count)]

    def _piece(self, execution: Execution, node: Node, item: int) -> Json:
        if node.handler == WORK:
            place = None if item == NO_ITEM else item
            if skips(node.config, place):
                return None
            of = self.resolved(execution, node, node.config.get("of"), item)
            return output_of(node.config, of, node.id, place)
        if node.child is not None:
            child_id = self.children[execution.id, node.id, item]
            if child_id not in self._executions:
                raise Broken("values", f"{execution.id}/{node.id} has {child_id}, never made")
            return self.result_of(self._executions[child_id])
        if node.handler == "wait_for_signal":
            signal_id = self.signals.get((execution.id, node.id))
            return None if signal_id is None else payload_of(execution.id, signal_id)
        return self.sleeps[execution.id, node.id]


def resolve(config: Json, lookup: Lookup) -> Json:
    """With the value of each template in its place."""
    if isinstance(config, dict):
        return {key: resolve(value, lookup) for key, value in config.items()}
    if isinstance(config, list):
        return [resolve(value, lookup) for value in config]
    found = _TEXT.fullmatch(config) if isinstance(config, str) else None
    return config if found is None else evaluate(found[1], lookup)


def evaluate(expression: str, lookup: Lookup) -> Json:
    """`a`, `a.b`, `a | default(…)` with a literal."""
    found = _EXPRESSION.fullmatch(expression)
    if found is None:
        raise ValueError(f"the model does not know the expression {expression}")
    root, key, default = found.groups()
    value = lookup(root)
    if value is MISSING:
        return json.loads(default.replace("'", '"'))
    return value if key is None else value[key]
