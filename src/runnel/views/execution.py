"""What people and programs are shown of an execution: one model for the CLI and the API."""

from collections.abc import Sequence
from datetime import UTC, datetime
from math import inf

import msgspec

from runnel.core.codec import decode_entry
from runnel.core.events import AnyEvent, Wait
from runnel.core.execution import Execution, MapRun, NodeRun
from runnel.core.states import IN_FLIGHT_STATES, ExecutionState, NodeState
from runnel.core.values import Json, Value
from runnel.ports.records import BlobStore
from runnel.ports.store import ExecutionHeader


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """`items` is only there for a map: how many are settled, of how many."""

    state: NodeState
    attempts: int
    output: Json
    error: str | None
    started_at: float | None
    finished_at: float | None
    reason: str | None = None
    waits_for: str | None = None
    due: float | None = None
    items_settled: int | None = None
    items: int | None = None
    traceback: str | None = None


class ExecutionView(msgspec.Struct, frozen=True, kw_only=True):
    execution_id: str
    workflow: str
    version: int
    status: ExecutionState
    output: Json
    error: str | None
    nodes: dict[str, NodeView]
    input: Json
    created_at: float
    started_at: float | None
    finished_at: float | None
    parent_id: str | None
    rerun_of: str | None
    labels: dict[str, str]


class HistoryView(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    event: str
    fields: dict[str, Json]


async def load_execution_view(execution: Execution, blobs: BlobStore) -> ExecutionView:
    """Loads outputs that were written aside: a view shows what really is there."""
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
        created_at=execution.created_at,
        started_at=execution.started_at,
        finished_at=execution.finished_at,
        parent_id=execution.parent.execution_id if execution.parent else None,
        rerun_of=execution.rerun_of,
        labels=execution.labels,
    )


def _build_node_view(execution: Execution, index: int, run: NodeRun, output: Json) -> NodeView:
    found = execution.maps.get(index)
    waiting = None if found is None else summarize_waiting_items(found)
    return NodeView(
        state=run.state,
        attempts=run.attempt,
        output=output,
        error=_to_text(run.error) if run.state is not NodeState.COMPLETED else None,
        started_at=run.started_at,
        finished_at=run.finished_at,
        reason=run.reason or None,
        waits_for=describe_wait(run) or (None if waiting is None else waiting.text),
        due=run.due if waiting is None else waiting.due,
        items_settled=found.settled if found else None,
        items=found.count if found else None,
        traceback=run.error.traceback if run.error and run.state is NodeState.FAILED else None,
    )


def describe_wait(run: NodeRun) -> str | None:
    """What a WAITING node waits for, in words; None for any other."""
    if run.state is not NodeState.WAITING or run.wait is None:
        return None
    match run.wait:
        case Wait.SIGNAL:
            return f"signal '{run.detail}'"
        case Wait.CHILD:
            return f"child execution {run.detail}"
        case Wait.LIMIT:
            return f"concurrency key '{run.key}'"
        case Wait.RETRY:
            return "its next attempt"
        case Wait.CRASH:
            return f"its next attempt ({run.detail})"
        case Wait.RATE_LIMIT:
            return f"its turn ({run.detail})"
        case Wait.SLOT:
            return "a free slot (max_concurrency)"
        case Wait.SLEEP:
            return "the end of its sleep"


class WaitingItems(msgspec.Struct, frozen=True):
    text: str
    due: float | None


def summarize_waiting_items(map_run: MapRun) -> WaitingItems | None:
    """What a map waits for that has no item under way; None when it has, or is done."""
    runs = map_run.active
    waiting = {item: text for item, run in runs.items() if (text := describe_wait(run)) is not None}
    if not waiting or any(run.state in IN_FLIGHT_STATES for run in runs.values()):
        return None
    first = min(waiting, key=lambda item: (runs[item].due or inf, item))
    rest = f" (and {len(waiting) - 1:,} more)" if len(waiting) > 1 else ""
    return WaitingItems(f"item {first}{rest}: {waiting[first]}", runs[first].due)


def decode_history(entries: Sequence[bytes]) -> list[HistoryView]:
    return [
        _build_history_view(entry.at, event)
        for entry in map(decode_entry, entries)
        for event in entry.events
    ]


def _build_history_view(at: float, event: AnyEvent) -> HistoryView:
    fields = msgspec.json.decode(msgspec.json.encode(event))
    fields.pop("type")
    return HistoryView(at=at, event=type(event).__name__, fields=fields)


async def _load_content(value: Value | None, blobs: BlobStore) -> Json:
    if value is None:
        return None
    if value.blob is None:
        return value.decode()
    return msgspec.json.decode(await blobs.get(value.blob))


def _to_text(error: object) -> str | None:
    return None if error is None else str(error)


def build_execution_document(view: ExecutionView) -> dict[str, Json]:
    """As programs get it, from `--json` and over HTTP: moments are ISO-8601 texts in UTC."""
    document: dict[str, Json] = msgspec.to_builtins(view)
    for part in (document, *document["nodes"].values()):
        for field in _TIME_FIELDS & part.keys():
            part[field] = format_time(part[field])
    return document


def build_header_document(header: ExecutionHeader) -> dict[str, Json]:
    """An execution as lists have it, from `--json` and over HTTP."""
    return {
        "execution_id": header.execution_id,
        "workflow": header.workflow,
        "version": header.version,
        "status": header.state,
        "error": header.error,
        "created_at": format_time(header.created_at),
        "started_at": format_time(header.started_at),
        "finished_at": format_time(header.finished_at),
        "parent_id": header.parent_id,
        "rerun_of": header.rerun_of,
        "labels": header.labels,
    }


def format_time(at: float | None) -> str | None:
    """`2026-01-31T09:30:00.250Z`"""
    if at is None:
        return None
    text = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


_TIME_FIELDS = frozenset({"created_at", "started_at", "finished_at", "due"})
