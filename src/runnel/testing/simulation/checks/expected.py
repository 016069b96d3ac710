"""The end is the one that the reference says, for the order in which things happened."""

from collections.abc import Iterable
from typing import TypeGuard

import msgspec

from runnel.core.codec import decode_entry
from runnel.core.events import (
    AnyEvent,
    ExecutionClosing,
    MapStarted,
    NodeCompleted,
    NodeFailed,
    NodeQueued,
    NodeWaits,
)
from runnel.core.execution import Execution
from runnel.core.ids import NO_ITEM
from runnel.core.states import ExecutionState, NodeState
from runnel.core.values import Value
from runnel.testing.reference import Reference
from runnel.testing.simulation.script import expected_output, false_conditions, will_succeed
from runnel.testing.simulation.truth import Check


class Expected(Check):
    name = "reference"

    def ended(self) -> None:
        for execution in self.truth.executions.values():
            self._check_states(execution)
            self._check_scripts(execution)

    def _check_states(self, execution: Execution) -> None:
        workflow = execution.graph.workflow
        reference = Reference(workflow, false_conditions(workflow))
        result: str | None = None
        begun: set[str] = set()
        for event in self._events(execution):
            if _begins(event):
                begun.add(event.node)
            reference.has_run = set(begun)  # what waited for a slot has not
            if isinstance(event, NodeCompleted | NodeFailed) and event.item == NO_ITEM:
                if reference.state[event.node] is not NodeState.RUNNING:
                    found = reference.state[event.node]
                    raise self.broken(f"{execution.id}/{event.node} settles, expected {found}")
                reference.settle(event.node, is_ok=isinstance(event, NodeCompleted))
            elif isinstance(event, ExecutionClosing) and _is_cancel(event):
                result = "CANCELLED"  # also when only the output had still to be written
                reference.cancel()
        for compiled in execution.graph.nodes:
            found, wanted = execution.nodes[compiled.index].state, reference.state[compiled.node.id]
            if found is not wanted:
                name = f"{execution.id}/{compiled.node.id}"
                raise self.broken(f"{name} is {found}, expected {wanted}")
        result = result or reference.result
        if execution.state != result:
            raise self.broken(f"{execution.id} is {execution.state}, expected {result}")

    def _check_scripts(self, execution: Execution) -> None:
        for compiled in execution.graph.nodes:
            run, node = execution.nodes[compiled.index], compiled.node
            succeeds = will_succeed(node)
            if succeeds is None or run.state not in (NodeState.COMPLETED, NodeState.FAILED):
                continue
            name = f"{execution.id}/{node.id}"
            if succeeds is not (run.state is NodeState.COMPLETED):
                raise self.broken(f"{name} is {run.state} ({run.error}), its script says otherwise")
            if run.output is not None and self._data(run.output) != expected_output(node):
                raise self.broken(f"{name} has the output {self._data(run.output)!r:.100}")

    def _events(self, execution: Execution) -> Iterable[AnyEvent]:
        for data in self.truth.server.state.histories[execution.id]:
            yield from decode_entry(data).events

    def _data(self, value: Value) -> object:
        if value.blob is None:
            return value.decode()
        return msgspec.json.decode(self.truth.server.blobs.peek(value.blob) or b"null")


def _begins(event: AnyEvent) -> TypeGuard[NodeQueued | NodeWaits | MapStarted]:
    """An attempt exists from then on: a task, a sleep, a child, a place in line for a key."""
    if isinstance(event, NodeWaits):
        return event.attempt is not None and event.item == NO_ITEM
    return isinstance(event, NodeQueued | MapStarted)


def _is_cancel(event: ExecutionClosing) -> bool:
    return event.outcome is ExecutionState.CANCELLED
