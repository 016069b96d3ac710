"""How far an execution has come, line by line, for whoever looks on."""

from collections import Counter
from dataclasses import dataclass

from runnel.core.events import Wait
from runnel.core.execution import Execution, NodeRun
from runnel.core.run_when import CLEAN_UP
from runnel.core.states import EXECUTION_FINAL, NODE_FINAL, ExecutionState, NodeState
from runnel.core.workflow import Workflow
from runnel.views import waiting_items

# What a person wants to see of a graph that is too large to be shown.
ACTIVE = (NodeState.FAILED, NodeState.RUNNING, NodeState.WAITING)


@dataclass(slots=True)
class NodeLine:
    """`note` is why it was skipped, failed or cancelled; `wait` and `detail` what it waits for.

    A map has `detail` and `due` while all of its items wait.
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
        return self.state in NODE_FINAL


class Progress:
    """Nodes in the order of the workflow; `counts` and `active` make a frame cost no walk.

    `changed` gathers the lines that have moved, in order, until somebody clears it.
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
        self.clean_up = frozenset(n.id for n in workflow.nodes if n.run_when in CLEAN_UP)
        self.counts: Counter[NodeState] = Counter({NodeState.PENDING: len(self.lines)})
        self.active: dict[NodeState, dict[str, NodeLine]] = {state: {} for state in ACTIVE}
        self.changed: list[NodeLine] = []

    @classmethod
    def of(cls, execution: Execution) -> "Progress":
        """From where a stored execution stands."""
        progress = cls(execution.id, execution.graph.workflow)
        progress.catch_up(execution)
        progress.changed.clear()
        return progress

    def catch_up(self, execution: Execution) -> None:
        """To where the stored execution stands, whatever was told of it before."""
        self.state = execution.state
        self.started_at = execution.started_at
        self.finished_at = execution.finished_at
        self.error = str(execution.error or "")
        for compiled, run in zip(execution.graph.nodes, execution.nodes, strict=True):
            _copy(self, self.lines[compiled.node.id], run)
        for index, found in execution.maps.items():
            line = self.lines[execution.graph.nodes[index].node.id]
            line.items, line.items_settled = found.count, found.settled
            waiting = waiting_items(found)
            if waiting is not None:
                line.detail, line.due = waiting.text, waiting.due

    @property
    def is_final(self) -> bool:
        return self.state in EXECUTION_FINAL

    @property
    def settled(self) -> int:
        return sum(self.counts[state] for state in NODE_FINAL)

    def waiting(self) -> list[NodeLine]:
        """Nodes that wait, and maps all of whose items do."""
        maps = (line for line in self.active[NodeState.RUNNING].values() if line.detail)
        return [*self.active[NodeState.WAITING].values(), *maps]

    def move(self, line: NodeLine, state: NodeState) -> None:
        self.counts[line.state] -= 1
        self.counts[state] += 1
        if line.state in ACTIVE:
            del self.active[line.state][line.node_id]
        if state in ACTIVE:
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
        """User code begins. That may be told before the event that queued it: then it is kept
        until that comes, so that nothing seems to begin before its parents have ended.
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


def _copy(progress: Progress, line: NodeLine, run: NodeRun) -> None:
    if line.state is not run.state:
        progress.move(line, run.state)
        progress.changed.append(line)
    line.attempts = run.attempt
    line.started_at, line.finished_at = run.started_at, run.finished_at
    line.wait, line.detail, line.due = run.wait, run.detail or run.key, run.due
    line.note = run.reason or ("" if run.error is None else str(run.error))
