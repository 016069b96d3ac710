"""An execution without a history: its partition's owner has not seen it, or can't make it."""

from runnel.core.events import ExecutionCreated
from runnel.core.execution import Execution
from runnel.core.graph import Graph
from runnel.core.retry import ErrorInfo
from runnel.core.values import EMPTY_OBJECT
from runnel.ports.store import Header


def not_begun(header: Header, graph: Graph) -> Execution:
    """As its header tells of it; without the input, which nobody knows yet."""
    created = ExecutionCreated(
        execution_id=header.execution_id,
        workflow=header.workflow,
        version=header.version,
        definition=graph.hash,
        input=EMPTY_OBJECT,
        labels=header.labels,
        rerun_of=header.rerun_of,
        created_at=header.created_at,
    )
    execution = Execution(created, graph)
    execution.state = header.state
    execution.error = None if header.error is None else _error(header.error)
    execution.started_at = header.started_at
    execution.finished_at = header.finished_at
    return execution


def _error(text: str) -> ErrorInfo:
    """`str` of it is the text again."""
    type_, _, message = text.partition(": ")
    return ErrorInfo(type=type_, message=message)
