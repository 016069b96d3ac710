"""Builds the views of executions from stored headers and histories."""

from runnel.client.shown_values import (
    SHOWN_BYTES_MAX,
    ShownValue,
    ValueToShow,
    list_node_output,
    load_shown_values,
)
from runnel.core.execution import Execution
from runnel.core.states import NodeState
from runnel.ports.records import RandomAccessBlobStore
from runnel.ports.store import ExecutionHeader
from runnel.views import Timestamp, make_timestamp
from runnel.views.execution import (
    ExecutionSummary,
    ExecutionView,
    NodeView,
    describe_wait,
    summarize_waiting_items,
)
from runnel.views.value import build_input_url, build_output_url


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


async def load_execution_view(execution: Execution, blobs: RandomAccessBlobStore) -> ExecutionView:
    """Builds the view of an execution; reads only the beginning of a large value."""
    own_input, own_output, *outputs = await load_shown_values(_list_values(execution), blobs)
    return ExecutionView(
        execution_id=execution.id,
        workflow=execution.graph.workflow.name,
        version=execution.version,
        status=execution.state,
        output=own_output.content,
        error=_to_text(execution.error or execution.closing_error),
        nodes={
            compiled.node.id: _build_node_view(execution, compiled.index, output)
            for compiled, output in zip(execution.graph.nodes, outputs, strict=True)
        },
        input=own_input.content,
        created_at=Timestamp(execution.created_at),
        started_at=make_timestamp(execution.started_at),
        finished_at=make_timestamp(execution.finished_at),
        parent_id=execution.parent.execution_id if execution.parent else None,
        rerun_of=execution.rerun_of,
        labels=execution.labels,
        priority=execution.priority,
        output_preview=own_output.preview,
        input_preview=own_input.preview,
    )


def _list_values(execution: Execution) -> list[ValueToShow]:
    """Lists the input and the output of the execution, then the outputs of its nodes."""
    return [
        ValueToShow(execution.input, build_input_url(execution.id), SHOWN_BYTES_MAX),
        ValueToShow(execution.output, build_output_url(execution.id), SHOWN_BYTES_MAX),
        *[
            list_node_output(execution.id, compiled.node.id, execution.nodes[compiled.index].output)
            for compiled in execution.graph.nodes
        ],
    ]


def _build_node_view(execution: Execution, index: int, output: ShownValue) -> NodeView:
    run = execution.nodes[index]
    map_run = execution.maps.get(index)
    node_id = execution.graph.nodes[index].node.id
    waiting = None if map_run is None else summarize_waiting_items(node_id, map_run)
    return NodeView(
        status=run.state,
        attempts=run.attempt,
        output=output.content,
        error=_to_text(run.error) if run.state is not NodeState.COMPLETED else None,
        started_at=make_timestamp(run.started_at),
        finished_at=make_timestamp(run.finished_at),
        reason=run.reason or None,
        waits_for=describe_wait(run) or (None if waiting is None else waiting.text),
        due=make_timestamp(run.due if waiting is None else waiting.due),
        items_settled=map_run.settled if map_run else None,
        items=map_run.count if map_run else None,
        traceback=run.error.traceback if run.error and run.state is NodeState.FAILED else None,
        output_preview=output.preview,
    )


def _to_text(error: object) -> str | None:
    return None if error is None else str(error)
