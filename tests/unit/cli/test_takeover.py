"""An execution that needs the memory of one process can't be resumed by another process."""

import pytest

from runnel.authoring.documents import read_document
from runnel.cli.session.unfinished import is_bound_to_program
from runnel.core.values import Json


def document(handler: str, **config: Json) -> Json:
    return {"name": "a", "nodes": [{"id": "a", "handler": handler, "config": config}]}


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        (document("python", function="flow:fetch"), False),
        (document("output", function="__main"), False),
        (document("step", mode="thread"), True),
        (document("python", function="__main__:fetch"), True),
        (
            document("workflow", definition=document("python", function="__main__:fetch")),
            True,
        ),
    ],
    ids=str,
)
def test_functions_that_other_processes_cannot_import_bind_a_workflow_to_its_program(
    definition: Json, expected: bool
) -> None:
    assert is_bound_to_program(read_document(definition)) is expected
