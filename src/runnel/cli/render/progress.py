"""Computes the progress of an execution from its events, one line per node, for a view."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from runnel.core import events as e
from runnel.core.events import Wait
from runnel.core.execution import Execution, NodeRun
from runnel.core.ids import NO_ITEM
from runnel.core.run_when import CLEAN_UP_RULES
from runnel.core.states import (
    FINAL_EXECUTION_STATES,
    FINAL_NODE_STATES,
    ExecutionState,
    NodeState,
)
from runnel.core.workflow import Workflow
from runnel.views.execution import ExecutionView, summarize_waiting_items

# If a graph is too large to show, the view lists only the nodes in these states.
ACTIVE_STATES = (NodeState.FAILED, NodeState.RUNNING, NodeState.WAITING)

SettledEvent: TypeAlias = e.NodeCompleted | e.NodeFailed | e.NodeSkipped | e.NodeCancelled


@dataclass(slots=True)
class NodeLine:
    """The progress of one node.

    `note` is the reason why the node was skipped, failed or was cancelled. `wait` and `detail`
    describe the wait of the node. A map has `detail` and `due` while all of its items wait.
    """

    node_id: str
    parents: tuple[str, ...] = ()
    state: NodeState = NodeState.PENDING
    attempts: int = 0
    started_at: float | None = None
    finished_at: float | None = None
    note: str = ""
    wait: Wait | None = None
    detail: str = ""
    due: float | None = None
    items: int | None = None
    items_settled: int = 0
    early_start: tuple[int, float] | None = None

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_NODE_STATES


class ExecutionProgress:
    """The progress of an execution; `lines` has the nodes in the order of the workflow.

    `counts` and `active` are kept up to date, so that a frame need not visit all nodes. `changed`
    has the changed lines, in order, until the view clears the list.
    """

    def __init__(self, execution_id: str, workflow: Workflow) -> None:
        self.execution_id = execution_id
        self.name = workflow.name
        self.state = ExecutionState.PENDING
        self.started_at: float | None = None
        self.finished_at: float | None = None
        self.error = ""
        self.lines: dict[str, NodeLine] = {
            node.id: NodeLine(node.id, node.dependencies) for node in workflow.nodes
        }
        self.clean_up_nodes = frozenset(
            n.id for n in workflow.nodes if n.run_when in CLEAN_UP_RULES
        )
        self.counts: Counter[NodeState] = Counter({NodeState.PENDING: len(self.lines)})
        self.active: dict[NodeState, dict[str, NodeLine]] = {state: {} for state in ACTIVE_STATES}
        self.changed: list[NodeLine] = []

    @classmethod
    def from_execution(cls, execution: Execution) -> "ExecutionProgress":
        """Builds the progress of a stored execution."""
        progress = cls(execution.id, execution.graph.workflow)
        progress.catch_up(execution)
        progress.changed.clear()
        return progress

    def catch_up(self, execution: Execution) -> None:
        """Copies the state of the stored execution, whatever events were applied before."""
        self.state = execution.state
        self.started_at = execution.started_at
        self.finished_at = execution.finished_at
        self.error = str(execution.error or "")
        for compiled, run in zip(execution.graph.nodes, execution.nodes, strict=True):
            _copy_node_run(self, self.lines[compiled.node.id], run)
        for index, map_run in execution.maps.items():
            node_id = execution.graph.nodes[index].node.id
            line = self.lines[node_id]
            line.items, line.items_settled = map_run.count, map_run.settled
            waiting = summarize_waiting_items(node_id, map_run)
            if waiting is not None:
                line.detail, line.due = waiting.text, waiting.due

    def finish(self, view: ExecutionView) -> None:
        """Copies the final state from the store, whatever events were applied before."""
        self.state = view.status
        self.started_at, self.finished_at = view.started_at, view.finished_at
        self.error = view.error or ""
        for node_id, node in view.nodes.items():
            line = self.lines[node_id]
            if line.state is not node.status:
                self.move(line, node.status)
                self.changed.append(line)
            line.attempts = node.attempts
            line.started_at, line.finished_at = node.started_at, node.finished_at
            line.note = node.reason or node.error or ""
            if node.items is not None:
                line.items, line.items_settled = node.items, node.items_settled or 0

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_EXECUTION_STATES

    @property
    def settled(self) -> int:
        return sum(self.counts[state] for state in FINAL_NODE_STATES)

    def list_waiting(self) -> list[NodeLine]:
        """Returns the lines of waiting nodes, and of maps whose items all wait."""
        maps = (line for line in self.active[NodeState.RUNNING].values() if line.detail)
        return [*self.active[NodeState.WAITING].values(), *maps]

    def move(self, line: NodeLine, state: NodeState) -> None:
        self.counts[line.state] -= 1
        self.counts[state] += 1
        if line.state in ACTIVE_STATES:
            del self.active[line.state][line.node_id]
        if state in ACTIVE_STATES:
            self.active[state][line.node_id] = line
        line.state = state
        if state is not NodeState.WAITING:
            line.wait, line.due, line.detail = None, None, ""

    def settle(self, line: NodeLine, state: NodeState, at: float, *, note: str = "") -> None:
        line.finished_at = at
        line.note = note
        self.move(line, state)
        self.changed.append(line)

    def start(self, node_id: str, attempt: int, at: float) -> None:
        """Marks a node as running.

        The notification may come before the event that queued the node. In that case the start is
        kept until that event, so that no node seems to start before its parents have ended.
        """
        line = self.lines[node_id]
        if line.state is NodeState.QUEUED and line.attempts == attempt:
            line.started_at = at
            self.move(line, NodeState.RUNNING)
            self.changed.append(line)
        elif attempt > line.attempts:
            line.early_start = (attempt, at)

    def queue(self, node_id: str, attempt: int) -> None:
        line = self.lines[node_id]
        line.attempts = attempt
        line.started_at = None
        self.move(line, NodeState.QUEUED)
        early, line.early_start = line.early_start, None
        if early is not None:
            self.start(node_id, *early)


def _copy_node_run(progress: ExecutionProgress, line: NodeLine, run: NodeRun) -> None:
    if line.state is not run.state:
        progress.move(line, run.state)
        progress.changed.append(line)
    line.attempts = run.attempt
    line.started_at, line.finished_at = run.started_at, run.finished_at
    line.wait, line.detail, line.due = run.wait, run.detail or run.key, run.due
    line.note = run.reason or ("" if run.error is None else str(run.error))


def apply_events(progress: ExecutionProgress, at: float, events: Sequence[e.AnyEvent]) -> None:
    for event in events:
        apply = _EVENT_HANDLERS.get(type(event))
        if apply is not None:
            apply(progress, event, at)


def _on_execution_started(
    progress: ExecutionProgress, _event: e.ExecutionStarted, at: float
) -> None:
    progress.state, progress.started_at = ExecutionState.RUNNING, at


def _on_taken(progress: ExecutionProgress, event: e.NodesTaken, at: float) -> None:
    """Sets the nodes that a rerun takes over to their former states; records no change."""
    for taken in event.taken:
        line = progress.lines[taken.node]
        if taken.item == NO_ITEM:
            line.finished_at, line.note = at, taken.detail or str(taken.skip or "")
            is_done = taken.skip is None
            progress.move(line, NodeState.COMPLETED if is_done else NodeState.SKIPPED)
        else:
            line.items_settled += 1


def _on_finished(progress: ExecutionProgress, event: e.ExecutionFinished, at: float) -> None:
    progress.state, progress.finished_at = event.state, at
    progress.error = str(event.error or "")


def _on_closing(progress: ExecutionProgress, event: e.ExecutionClosing, at: float) -> None:
    reason = e.describe_closing(event.outcome, event.error)
    for node_id, line in progress.lines.items():
        is_spared = node_id in progress.clean_up_nodes and not event.is_abrupt
        if line.state is NodeState.PENDING and not is_spared:
            progress.settle(line, NodeState.CANCELLED, at, note=reason)


def _on_queued(progress: ExecutionProgress, event: e.NodeQueued, _at: float) -> None:
    if event.item == NO_ITEM:
        progress.queue(event.node, event.attempt)
    else:
        _clear_item_wait(progress.lines[event.node])


def _on_started(progress: ExecutionProgress, event: e.NodeStarted, _at: float) -> None:
    if event.item == NO_ITEM:
        progress.start(event.node, progress.lines[event.node].attempts, event.started_at)


def _on_settled(progress: ExecutionProgress, event: SettledEvent, at: float) -> None:
    line = progress.lines[event.node]
    if event.item != NO_ITEM:
        _clear_item_wait(line)
        line.items_settled += 1
        progress.changed.append(line)
        return
    match event:
        case e.NodeCompleted():
            line.started_at = event.started_at or line.started_at
            progress.settle(line, NodeState.COMPLETED, at)
        case e.NodeFailed():
            line.started_at = event.started_at or line.started_at
            progress.settle(line, NodeState.FAILED, at, note=str(event.error))
        case e.NodeSkipped():
            note = event.detail or str(event.reason)
            progress.settle(line, NodeState.SKIPPED, at, note=note)
        case e.NodeCancelled():
            if not line.is_final:
                progress.settle(line, NodeState.CANCELLED, at, note=event.reason)


def _on_retry_planned(progress: ExecutionProgress, event: e.RetryPlanned, _at: float) -> None:
    if event.item == NO_ITEM:
        line = progress.lines[event.node]
        progress.move(line, NodeState.WAITING)
        line.wait, line.due, line.note = e.Wait.RETRY, event.due, str(event.error)
        progress.changed.append(line)


def _on_waits(progress: ExecutionProgress, event: e.NodeWaits, at: float) -> None:
    if event.item != NO_ITEM:
        return
    line = progress.lines[event.node]
    line.started_at = line.started_at or at
    line.attempts = line.attempts if event.attempt is None else event.attempt
    progress.move(line, NodeState.WAITING)
    line.wait, line.due, line.detail = event.wait, event.due, event.detail
    progress.changed.append(line)


def _on_map_started(progress: ExecutionProgress, event: e.MapStarted, at: float) -> None:
    line = progress.lines[event.node]
    line.attempts, line.started_at, line.items = 1, at, event.count
    progress.move(line, NodeState.RUNNING)
    progress.changed.append(line)


def _clear_item_wait(line: NodeLine) -> None:
    line.detail, line.due = "", None


# Any: each function takes the one event type that it is registered for.
_EVENT_HANDLERS: dict[type, Callable[[ExecutionProgress, Any, float], None]] = {
    e.NodesTaken: _on_taken,
    e.ExecutionStarted: _on_execution_started,
    e.ExecutionFinished: _on_finished,
    e.ExecutionClosing: _on_closing,
    e.NodeQueued: _on_queued,
    e.NodeStarted: _on_started,
    e.NodeCompleted: _on_settled,
    e.NodeFailed: _on_settled,
    e.NodeSkipped: _on_settled,
    e.NodeCancelled: _on_settled,
    e.RetryPlanned: _on_retry_planned,
    e.NodeWaits: _on_waits,
    e.MapStarted: _on_map_started,
}
