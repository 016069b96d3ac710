"""What people and programs are shown of an execution: one model for the CLI and the API."""

from collections.abc import Sequence
from datetime import UTC, datetime
from math import inf

import msgspec

from runnel.core.codec import decode_entry
from runnel.core.events import AnyEvent, Wait
from runnel.core.execution import Execution, MapRun, NodeRun
from runnel.core.states import IN_FLIGHT, ExecutionState, NodeState
from runnel.core.values import Json, Value
from runnel.ports.records import BlobStore
from runnel.ports.store import Header


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


async def view_of(execution: Execution, blobs: BlobStore) -> ExecutionView:
    """Loads outputs that were written aside: a view shows what really is there."""
    nodes: dict[str, NodeView] = {}
    for compiled in execution.graph.nodes:
        run = execution.nodes[compiled.index]
        nodes[compiled.node.id] = _node_view(
            execution, compiled.index, run, await _content(run.output, blobs)
        )
    return ExecutionView(
        execution_id=execution.id,
        workflow=execution.graph.workflow.name,
        version=execution.version,
        status=execution.state,
        output=await _content(execution.output, blobs),
        error=_text(execution.error or execution.closing_error),
        nodes=nodes,
        input=await _content(execution.input, blobs),
        created_at=execution.created_at,
        started_at=execution.started_at,
        finished_at=execution.finished_at,
        parent_id=execution.parent.execution_id if execution.parent else None,
        rerun_of=execution.rerun_of,
        labels=execution.labels,
    )


def _node_view(execution: Execution, index: int, run: NodeRun, output: Json) -> NodeView:
    found = execution.maps.get(index)
    waiting = None if found is None else waiting_items(found)
    return NodeView(
        state=run.state,
        attempts=run.attempt,
        output=output,
        error=_text(run.error) if run.state is not NodeState.COMPLETED else None,
        started_at=run.started_at,
        finished_at=run.finished_at,
        reason=run.reason or None,
        waits_for=wait_text(run) or (None if waiting is None else waiting.text),
        due=run.due if waiting is None else waiting.due,
        items_settled=found.settled if found else None,
        items=found.count if found else None,
        traceback=run.error.traceback if run.error and run.state is NodeState.FAILED else None,
    )


def wait_text(run: NodeRun) -> str | None:
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


def waiting_items(found: MapRun) -> WaitingItems | None:
    """What a map waits for that has no item under way; None when it has, or is done."""
    runs = found.active
    waiting = {item: text for item, run in runs.items() if (text := wait_text(run)) is not None}
    if not waiting or any(run.state in IN_FLIGHT for run in runs.values()):
        return None
    first = min(waiting, key=lambda item: (runs[item].due or inf, item))
    rest = f" (and {len(waiting) - 1:,} more)" if len(waiting) > 1 else ""
    return WaitingItems(f"item {first}{rest}: {waiting[first]}", runs[first].due)


def history_of(entries: Sequence[bytes]) -> list[HistoryView]:
    return [
        _history_view(entry.at, event)
        for entry in map(decode_entry, entries)
        for event in entry.events
    ]


def _history_view(at: float, event: AnyEvent) -> HistoryView:
    fields = msgspec.json.decode(msgspec.json.encode(event))
    fields.pop("type")
    return HistoryView(at=at, event=type(event).__name__, fields=fields)


async def _content(value: Value | None, blobs: BlobStore) -> Json:
    if value is None:
        return None
    if value.blob is None:
        return value.decode()
    return msgspec.json.decode(await blobs.get(value.blob))


def _text(error: object) -> str | None:
    return None if error is None else str(error)


def document_of(view: ExecutionView) -> dict[str, Json]:
    """As programs get it, from `--json` and over HTTP: moments are ISO-8601 texts in UTC."""
    document: dict[str, Json] = msgspec.to_builtins(view)
    for part in (document, *document["nodes"].values()):
        for field in _MOMENTS & part.keys():
            part[field] = moment(part[field])
    return document


def header_document(header: Header) -> dict[str, Json]:
    """An execution as lists have it, from `--json` and over HTTP."""
    return {
        "execution_id": header.execution_id,
        "workflow": header.workflow,
        "version": header.version,
        "status": header.state,
        "error": header.error,
        "created_at": moment(header.created_at),
        "started_at": moment(header.started_at),
        "finished_at": moment(header.finished_at),
        "parent_id": header.parent_id,
        "rerun_of": header.rerun_of,
        "labels": header.labels,
    }


def moment(at: float | None) -> str | None:
    """`2026-01-31T09:30:00.250Z`"""
    if at is None:
        return None
    text = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


_MOMENTS = frozenset({"created_at", "started_at", "finished_at", "due"})
