"""Exporting a workflow: a short document that loads as an equal workflow."""

from typing import Any

import pytest

from runnel.authoring.documents import read_document
from runnel.authoring.documents.export import to_document
from runnel.authoring.documents.yaml import write_yaml
from tests.workflow_text import load_text

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


def test_exporting_a_minimal_document_returns_the_same_document() -> None:
    assert to_document(read_document(DOCUMENT)) == DOCUMENT


def test_export_leaves_out_default_values() -> None:
    long = {
        "name": "w",
        "version": 3,
        "on_failure": "fail_fast",
        "nodes": {"a": {"handler": "h", "retry": {"jitter": True}, "depends_on": []}},
    }

    assert to_document(read_document(long)) == {"name": "w", "nodes": [{"id": "a", "handler": "h"}]}


@pytest.mark.parametrize(
    "text",
    [
        *("yes", "~", "1e3", "0x1f", "12:30", "2026-01-01", "a: b", "x #y", "- a", "", " a ", "<<"),
        *(
            "a\nb",
            "a\n\n",
            "\ta",
            "a\r\nb",
            "\x00",
            "\x7f",
            "\x85",
            "a\u2028b",
            "\u2029",
            "\ufeff",
            "😀",
        ),
    ],
)
def test_unusual_texts_are_equal_after_yaml(text: str) -> None:
    nodes = [{"id": "a", "handler": "h", "config": {text: [text, {"x": text}]}}]
    workflow = read_document({"name": "w", "nodes": nodes})

    assert load_text(write_yaml(to_document(workflow))) == workflow
