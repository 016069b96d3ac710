"""Views of executions: in lists, with all nodes, and their histories."""

from collections.abc import Sequence
from math import inf
from typing import Annotated

import msgspec
from msgspec import Meta

from runnel.core.codec import FORMAT_VERSION, decode_entry
from runnel.core.events import AnyEvent, Wait
from runnel.core.execution import MapRun, NodeRun
from runnel.core.ids import ExecutionId, format_node_name
from runnel.core.states import IN_FLIGHT_STATES, ExecutionState, NodeState
from runnel.core.values import Json
from runnel.views import Timestamp, format_timestamp
from runnel.views.value import BoundedRepr, ValuePreview

EVENT_ID_PREFIX = "n"


class ExecutionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """An execution in a list."""

    execution_id: ExecutionId
    workflow: str
    version: int
    status: ExecutionState
    error: str | None
    created_at: Timestamp
    started_at: Timestamp | None
    finished_at: Timestamp | None
    parent_id: ExecutionId | None
    rerun_of: ExecutionId | None
    labels: dict[str, str]
    workflow_definition_id: Annotated[str, Meta(description="The hash of the workflow's content")]


class NodeView(BoundedRepr, frozen=True, kw_only=True):
    """A node of an execution. `items` and `items_settled` count the items of a map.

    Both are null for a node that is not a map. An output above 64 KB is null and has a preview.
    """

    status: NodeState
    attempts: int
    output: Json
    error: str | None
    started_at: Timestamp | None
    finished_at: Timestamp | None
    reason: str | None = None
    waits_for: str | None = None
    due: Timestamp | None = None
    items_settled: int | None = None
    items: int | None = None
    traceback: str | None = None
    output_preview: ValuePreview | None = None


class ExecutionView(BoundedRepr, frozen=True, kw_only=True):
    """An execution with its nodes. An input or output above 1 MB is null and has a preview."""

    execution_id: ExecutionId
    workflow: str
    version: int
    status: ExecutionState
    output: Json
    error: str | None
    nodes: dict[str, NodeView]
    input: Json
    created_at: Timestamp
    started_at: Timestamp | None
    finished_at: Timestamp | None
    parent_id: ExecutionId | None
    rerun_of: ExecutionId | None
    labels: dict[str, str]
    priority: int = 0
    output_preview: ValuePreview | None = None
    input_preview: ValuePreview | None = None


class StateCount(msgspec.Struct, frozen=True, kw_only=True):
    """The number of executions in one state."""

    number: int
    is_least: Annotated[
        bool,
        Meta(description="The real number may be higher, because the count stops at a maximum"),
    ]


class ExecutionCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The number of executions in each state."""

    states: dict[ExecutionState, StateCount]


class HistoryEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of an execution."""

    at: Timestamp
    event: str
    fields: dict[str, Json]


class HistoryView(msgspec.Struct, frozen=True, kw_only=True):
    """The events of an execution, in order."""

    items: Sequence[HistoryEvent]


class HeldExecution(msgspec.Struct, frozen=True, kw_only=True):
    """A stored workflow, and an execution of the workflow that waits for its trigger."""

    workflow_definition_id: Annotated[str, Meta(description="The hash of the workflow's content")]
    workflow: str
    version: int
    execution_id: ExecutionId
    status: ExecutionState


class TriggeredExecution(msgspec.Struct, frozen=True, kw_only=True):
    """A held execution that was triggered."""

    execution_id: ExecutionId
    status: ExecutionState


class NewExecution(msgspec.Struct, frozen=True, kw_only=True):
    """A stored execution, which runs as soon as a worker is free."""

    execution_id: ExecutionId
    workflow: str
    version: int
    status: ExecutionState
    created_at: Timestamp


class NewBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The stored executions of a batch."""

    workflow: str
    version: int
    execution_ids: Annotated[
        list[ExecutionId], Meta(description="One for each input, in the order of the inputs")
    ]


class AcceptedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A stored request, which the owner of the partition processes within milliseconds."""

    execution_id: ExecutionId


def describe_wait(run: NodeRun) -> str | None:
    """Describes what a WAITING node waits for; returns None for a node in another state."""
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


def summarize_waiting_items(node_id: str, map_run: MapRun) -> WaitingItems | None:
    """Describes what a map waits for.

    Returns None while an item runs and after the map has ended.
    """
    runs = map_run.active
    waiting = {item: text for item, run in runs.items() if (text := describe_wait(run)) is not None}
    if not waiting or any(run.state in IN_FLIGHT_STATES for run in runs.values()):
        return None
    first = min(waiting, key=lambda item: (runs[item].due or inf, item))
    more = f" (and {len(waiting) - 1:,} more)" if len(waiting) > 1 else ""
    name = format_node_name(node_id, first)
    return WaitingItems(f"{name}{more}: {waiting[first]}", runs[first].due)


def decode_history(entries: Sequence[bytes]) -> list[HistoryEvent]:
    return [
        _build_history_event(entry.at, event)
        for entry in map(decode_entry, entries)
        for event in entry.events
    ]


def decode_event(view: HistoryEvent) -> AnyEvent:
    """Converts the view of an event back to the core event."""
    entry = [FORMAT_VERSION, float(view.at), [{"type": view.event, **view.fields}]]
    return decode_entry(msgspec.json.encode(entry)).events[0]


def make_event_id(number: int) -> str:
    """Returns the stream message id of an event; `number` counts the events of a history from 1."""
    return f"{EVENT_ID_PREFIX}{number}"


def _build_history_event(at: float, event: AnyEvent) -> HistoryEvent:
    fields = msgspec.json.decode(msgspec.json.encode(event))
    fields.pop("type")
    return HistoryEvent(at=Timestamp(at), event=type(event).__name__, fields=fields)


def format_time(at: float | None) -> str | None:
    """Returns a time as text such as `2026-01-31T09:30:00.250Z`; None for None."""
    return None if at is None else format_timestamp(at)
