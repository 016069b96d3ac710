"""Builds the views of executions from stored headers and histories."""

import msgspec

from runnel.core.execution import Execution, NodeRun
from runnel.core.states import NodeState
from runnel.core.values import Json, Value
from runnel.ports.records import BlobStore
from runnel.ports.store import ExecutionHeader
from runnel.views import Timestamp, make_timestamp
from runnel.views.execution import (
    ExecutionSummary,
    ExecutionView,
    NodeView,
    describe_wait,
    summarize_waiting_items,
)


def build_execution_summary(header: ExecutionHeader) -> ExecutionSummary:
    return ExecutionSummary(
        execution_id=header.execution_id,
        workflow=header.workflow,
        version=header.version,
        status=header.state,
        error=header.error,
        created_at=Timestamp(header.created_at),
        started_at=make_timestamp(header.started_at),
        finished_at=make_timestamp(header.finished_at),
        parent_id=header.parent_id,
        rerun_of=header.rerun_of,
        labels=header.labels,
        workflow_definition_id=header.definition,
    )


async def load_execution_view(execution: Execution, blobs: BlobStore) -> ExecutionView:
    """Builds the view of an execution; loads the outputs that are stored as blobs."""
    nodes: dict[str, NodeView] = {}
    for compiled in execution.graph.nodes:
        run = execution.nodes[compiled.index]
        nodes[compiled.node.id] = _build_node_view(
            execution, compiled.index, run, await _load_content(run.output, blobs)
        )
    return ExecutionView(
        execution_id=execution.id,
        workflow=execution.graph.workflow.name,
        version=execution.version,
        status=execution.state,
        output=await _load_content(execution.output, blobs),
        error=_to_text(execution.error or execution.closing_error),
        nodes=nodes,
        input=await _load_content(execution.input, blobs),
        created_at=Timestamp(execution.created_at),
        started_at=make_timestamp(execution.started_at),
        finished_at=make_timestamp(execution.finished_at),
        parent_id=execution.parent.execution_id if execution.parent else None,
        rerun_of=execution.rerun_of,
        labels=execution.labels,
        priority=execution.priority,
    )


def _build_node_view(execution: Execution, index: int, run: NodeRun, output: Json) -> NodeView:
    map_run = execution.maps.get(index)
    node_id = execution.graph.nodes[index].node.id
    waiting = None if map_run is None else summarize_waiting_items(node_id, map_run)
    return NodeView(
        status=run.state,
        attempts=run.attempt,
        output=output,
        error=_to_text(run.error) if run.state is not NodeState.COMPLETED else None,
        started_at=make_timestamp(run.started_at),
        finished_at=make_timestamp(run.finished_at),
        reason=run.reason or None,
        waits_for=describe_wait(run) or (None if waiting is None else waiting.text),
        due=make_timestamp(run.due if waiting is None else waiting.due),
        items_settled=map_run.settled if map_run else None,
        items=map_run.count if map_run else None,
        traceback=run.error.traceback if run.error and run.state is NodeState.FAILED else None,
    )


async def _load_content(value: Value | None, blobs: BlobStore) -> Json:
    if value is None:
        return None
    if value.blob is None:
        return value.decode()
    return msgspec.json.decode(await blobs.get(value.blob))


def _to_text(error: object) -> str | None:
    return None if error is None else str(error)
