"""Writing a workflow down again: short, plain, and the same when it is read."""

from typing import Any

from runnel.authoring.document import read_document
from runnel.authoring.export import to_document

DOCUMENT: dict[str, Any] = {
    "name": "w",
    "on_failure": "continue",
    "labels": {"team": "data"},
    "nodes": [
        {"id": "a", "handler": "h"},
        {"id": "b", "handler": "h", "config": {"x": "{{ a.y }}"}, "retry": {"retry_on": ["E"]}},
        {"id": "c", "handler": "h", "dependencies": ["b"], "run_when": "all_settled"},
        {
            "id": "d",
            "handler": "workflow",
            "config": {
                "input": 3,
                "definition": {"name": "v", "nodes": [{"id": "x", "handler": "h"}]},
            },
        },
        {"id": "e", "handler": "h", "config": {"x": "{{ a.y }}"}, "dependencies": []},
    ],
}


def test_a_short_document_is_written_back_as_it_was() -> None:
    assert to_document(read_document(DOCUMENT)) == DOCUMENT


def test_what_equals_a_default_is_left_out() -> None:
    long = {
        "name": "w",
        "version": 3,
        "on_failure": "fail_fast",
        "nodes": {"a": {"handler": "h", "retry": {"jitter": True}, "depends_on": []}},
    }

    assert to_document(read_document(long)) == {"name": "w", "nodes": [{"id": "a", "handler": "h"}]}
