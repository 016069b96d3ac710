"""What a server answers, as the values that a local client returns."""

from collections.abc import Mapping
from datetime import datetime
from typing import TypeVar

import msgspec

from runnel.core.json_types import Json
from runnel.node_details import NodeDetail
from runnel.ports.archive import HeaderPage
from runnel.ports.cursor import Cursor
from runnel.ports.store import Header
from runnel.remote.fields import Fields
from runnel.views import ExecutionView, HistoryView

T = TypeVar("T")

_MOMENTS = frozenset(
    {"created_at", "queued_at", "started_at", "finished_at", "next_at", "due", "at"}
)


def header_of(document: Mapping[str, Json]) -> Header:
    fields = _timed(document)
    fields["state"] = fields.pop("status")
    fields["definition"] = fields.pop("workflow_definition_id", "")
    return read(fields, Header)


def page_of(document: Mapping[str, Json]) -> HeaderPage:
    after = document["next"]
    return HeaderPage(
        headers=[header_of(each) for each in document["items"]],
        next=None if after is None else Cursor(after),
    )


def view_of(document: Mapping[str, Json]) -> ExecutionView:
    fields = _timed(document)
    fields["nodes"] = {name: _timed(node) for name, node in document["nodes"].items()}
    return read(fields, ExecutionView)


def detail_of(document: Mapping[str, Json]) -> NodeDetail:
    fields = _timed(document)
    fields["attempts"] = [_attempt(each) for each in document["attempts"]]
    if document["items"] is not None:
        items = [_timed(each) for each in document["items"]["items"]]
        fields["items"] = {**document["items"], "items": items}
    return read(fields, NodeDetail)


def _attempt(document: Mapping[str, Json]) -> dict[str, Json]:
    lines = [(seconds_of(each["at"]), each["level"], each["text"]) for each in document["logs"]]
    return {**_timed(document), "logs": lines}


def history_of(document: Mapping[str, Json]) -> list[HistoryView]:
    return [event_of(each) for each in document["items"]]


def event_of(document: Mapping[str, Json]) -> HistoryView:
    return read(_timed(document), HistoryView)


def read(document: Json, kind: type[T]) -> T:
    """Raises NotRunnelError for an answer that no Runnel gives."""
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        if isinstance(document, Fields):
            raise document.foreign(f"something else than expected: {error}") from error
        raise


def _timed(document: Mapping[str, Json]) -> dict[str, Json]:
    """Moments as seconds, to the millisecond."""
    return {
        name: seconds_of(value) if name in _MOMENTS and value is not None else value
        for name, value in document.items()
    }


def seconds_of(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
