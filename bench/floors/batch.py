"""One batch of a floor: it turns commands into history entries, tasks and ends."""

from collections.abc import Iterable
from typing import NamedTuple

from runnel.core.codec import encode_entry
from runnel.core.commands import Command, CreateExecution, TaskCompleted
from runnel.core.events import (
    AnyEvent,
    ExecutionCreated,
    ExecutionFinished,
    ExecutionStarted,
    NodeCompleted,
    NodeQueued,
)
from runnel.core.ids import NO_ITEM, DefinitionHash, ExecutionId, NodeId, Nonce, TaskToken
from runnel.core.states import ExecutionState
from runnel.core.values import NULL
from runnel.core.workflow import Workflow, hash_workflow


class GraphShape(NamedTuple):
    """A graph for a floor: the children of each node and its number of parents."""

    workflow: str
    definition: DefinitionHash
    children: dict[NodeId, tuple[NodeId, ...]]
    parents: dict[NodeId, tuple[NodeId, ...]]
    parent_counts: dict[NodeId, int]
    roots: tuple[NodeId, ...]


def build_shape(workflow: Workflow) -> GraphShape:
    children: dict[NodeId, list[NodeId]] = {node.id: [] for node in workflow.nodes}
    for node in workflow.nodes:
        for parent in node.dependencies:
            children[parent].append(node.id)
    parents = {node.id: node.dependencies for node in workflow.nodes}
    return GraphShape(
        workflow=workflow.name,
        definition=hash_workflow(workflow),
        children={parent: tuple(nodes) for parent, nodes in children.items()},
        parents=parents,
        parent_counts={node: len(before) for node, before in parents.items()},
        roots=tuple(node for node, before in parents.items() if not before),
    )


class FloorExecution:
    """One execution: the open parents of each node, and the number of open nodes."""

    __slots__ = ("missing", "unfinished")

    def __init__(self, shape: GraphShape) -> None:
        self.missing = dict(shape.parent_counts)
        self.unfinished = len(shape.parent_counts)

    def settle(self, shape: GraphShape, node: NodeId) -> list[NodeId]:
        """Completes a node and returns the nodes that may start now."""
        ready = []
        missing = self.missing
        for child in shape.children[node]:
            missing[child] -= 1
            if not missing[child]:
                ready.append(child)
        self.unfinished -= 1
        return ready


VERSION = 1
# The maximum number of commands in one commit of the engine.
COMMANDS_MAX = 512

_STARTED = ExecutionStarted()
_FINISHED = ExecutionFinished(state=ExecutionState.COMPLETED, output=NULL)


class FloorExecutions:
    """The open executions of a floor, with their creation and start times."""

    def __init__(self, shape: GraphShape) -> None:
        self.shape = shape
        self._executions: dict[ExecutionId, FloorExecution] = {}
        self._times: dict[ExecutionId, tuple[float, float]] = {}

    def decide(self, commands: Iterable[Command], now: float, nonce: Nonce) -> "FloorBatch":
        batch = FloorBatch(now)
        touched = batch.events
        for command in commands:
            if type(command) is CreateExecution:
                id_ = command.execution_id
                self._executions[id_] = FloorExecution(self.shape)
                self._times[id_] = command.created_at, now
                touched[id_] = [_make_created_event(command), _STARTED]
                ready: Iterable[NodeId] = self.shape.roots
                batch.started.append((id_, command.created_at))
            elif type(command) is TaskCompleted:
                token = command.token
                id_ = token.execution_id
                events = touched.setdefault(id_, [])
                events.append(
                    NodeCompleted(
                        node=token.node_id,
                        output=command.output,
                        worker=command.worker,
                        started_at=command.started_at,
                    )
                )
                run = self._executions[id_]
                ready = run.settle(self.shape, token.node_id)
                if not run.unfinished:
                    events.append(_FINISHED)
                    del self._executions[id_]
                    batch.ended.append((id_, *self._times.pop(id_)))
            else:
                continue
            for node in ready:
                touched[id_].append(NodeQueued(node=node, attempt=1, nonce=nonce))
                batch.tasks.append(TaskToken(id_, node, NO_ITEM, 1, nonce))
        return batch


class FloorBatch:
    def __init__(self, now: float) -> None:
        self.now = now
        self.events: dict[ExecutionId, list[AnyEvent]] = {}
        self.tasks: list[TaskToken] = []
        self.started: list[tuple[ExecutionId, float]] = []
        """Started executions with their creation times."""
        self.ended: list[tuple[ExecutionId, float, float]] = []
        """Ended executions with their creation and start times."""

    def encode_entries(self) -> list[tuple[ExecutionId, bytes]]:
        """Returns the history entry of each execution."""
        return [(id_, encode_entry(self.now, events)) for id_, events in self.events.items()]


def make_creation(shape: GraphShape, execution_id: ExecutionId, now: float) -> CreateExecution:
    return CreateExecution(
        execution_id=execution_id,
        workflow=shape.workflow,
        definition=shape.definition,
        version=VERSION,
        created_at=now,
    )


def _make_created_event(command: CreateExecution) -> ExecutionCreated:
    return ExecutionCreated(
        execution_id=command.execution_id,
        workflow=command.workflow,
        version=command.version,
        definition=command.definition,
        input=command.input,
        created_at=command.created_at,
    )
