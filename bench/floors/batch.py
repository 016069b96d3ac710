"""One batch of a floor: what came is counted, and becomes entries, tasks and ends."""

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

# A graph as a floor knows it: who follows, and how many must have ended before.


class GraphShape(NamedTuple):
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
    """One execution: how many parents each node waits for, and how many nodes have not ended."""

    __slots__ = ("missing", "unfinished")

    def __init__(self, shape: GraphShape) -> None:
        self.missing = dict(shape.parent_counts)
        self.unfinished = len(shape.parent_counts)

    def settle(self, shape: GraphShape, node: NodeId) -> list[NodeId]:
        """Complete a node, and return the nodes that may begin now."""
        ready = []
        missing = self.missing
        for child in shape.children[node]:
            missing[child] -= 1
            if not missing[child]:
                ready.append(child)
        self.unfinished -= 1
        return ready


VERSION = 1
# As many as one commit of the engine has at most.
COMMANDS_MAX = 512

_STARTED = ExecutionStarted()
_FINISHED = ExecutionFinished(state=ExecutionState.COMPLETED, output=NULL)


class FloorExecutions:
    """All executions of a floor that have not ended, and when each was created and begun."""

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
        """Each with when it was created."""
        self.ended: list[tuple[ExecutionId, float, float]] = []
        """Each with when it was created and begun."""

    def encode_entries(self) -> list[tuple[ExecutionId, bytes]]:
        """One for each execution, as its history has it."""
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
