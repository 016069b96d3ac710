"""Views in JSON and back: times are texts there, and seconds here."""

import importlib
import pkgutil

import msgspec
import pytest

from runnel import StepResult, views
from runnel.cli.session import stuck
from runnel.core.ids import ExecutionId
from runnel.views import (
    Timestamp,
    build_document,
    decode_view,
    encode_view,
    make_timestamp,
    schema_hook,
)
from runnel.views.dead_letter import DeadLetterDetail
from runnel.views.execution import HistoryEvent, HistoryView
from runnel.views.node import AttemptOutcome, AttemptView, ErrorView
from runnel.views.page import Page

EVENT = HistoryEvent(at=Timestamp(1.25), event="NodeStarted", fields={"node": "a"})


def test_json_has_a_time_as_text_in_utc() -> None:
    assert encode_view(EVENT) == (
        b'{"at":"1970-01-01T00:00:01.250Z","event":"NodeStarted","fields":{"node":"a"}}'
    )


def test_a_time_comes_back_as_seconds() -> None:
    decoded = decode_view(encode_view(HistoryView(items=[EVENT])), HistoryView)

    assert decoded == HistoryView(items=[EVENT])
    assert type(decoded.items[0].at) is Timestamp


def test_a_document_is_the_value_of_the_json() -> None:
    page = Page(items=[EVENT], next=None)

    assert build_document(page) == msgspec.json.decode(encode_view(page))
    assert decode_view(encode_view(page), Page[HistoryEvent]) == page


@pytest.mark.parametrize("at", ["yesterday", True, None, [1]])
def test_what_is_not_a_time_is_refused(at: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_view(encode_view({"at": at, "event": "x", "fields": {}}), HistoryEvent)


def test_an_error_leaves_out_what_it_does_not_have() -> None:
    attempt = AttemptView(
        number=1,
        outcome=AttemptOutcome.FAILED,
        error=ErrorView(type="ValueError", message="no", traceback=None),
    )

    assert build_document(attempt)["error"] == {
        "type": "ValueError",
        "message": "no",
        "traceback": None,
    }


def test_a_detail_adds_to_what_lists_show() -> None:
    letter = DeadLetterDetail(
        name="x/a",
        execution_id=ExecutionId("x"),
        workflow="w",
        node="a",
        item=None,
        attempts=1,
        queue="python",
        handler="work",
        reason="failed",
        error="no",
        traceback=None,
        config={},
        rejected_at=Timestamp(0),
        execution_status=None,
    )

    assert list(build_document(letter))[-2:] == ["rejected_at", "execution_status"]


def test_no_time_stays_none() -> None:
    assert make_timestamp(None) is None


def test_a_schema_says_that_a_time_is_text() -> None:
    schema = schema_hook(Timestamp)

    assert (schema["type"], schema["format"]) == ("string", "date-time")


def test_every_view_calls_its_state_status() -> None:
    modules = [
        importlib.import_module(f"runnel.views.{module.name}")
        for module in pkgutil.iter_modules(views.__path__)
    ]
    fields = {
        f"{name}.{field}"
        for module in [*modules, stuck]
        for name, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
        if kind.__module__ == module.__name__
        for field in kind.__struct_fields__
    }

    assert {field for field in fields if field.endswith(".state")} == set()
    assert {"NodeView.status", "NodeDetail.status", "WorkerView.status"} < fields
    assert {"ExecutionView.status", "NodeWait.status"} < fields
    assert "status" in StepResult.__annotations__
