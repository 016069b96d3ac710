"""The JSON Schema for editors agrees with the tables that read documents."""

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from runnel.authoring.documents import read_document
from runnel.authoring.documents.fields import (
    CACHE_TABLE,
    NODE_TABLE,
    RATE_LIMIT_TABLE,
    RETRY_TABLE,
    WORKFLOW_TABLE,
    CheckedReader,
    FieldTable,
)
from runnel.authoring.documents.files import read_data
from runnel.authoring.documents.schema import (
    FIELD_DESCRIPTIONS,
    FIELD_SCHEMAS,
    build_document_schema,
    find_field_schema,
    format_document_schema,
    read_shipped_schema,
)
from runnel.cli.main import run_command
from runnel.core.validation.handler_settings import ANYTHING, HANDLER_SETTINGS
from runnel.errors import InvalidWorkflowError

EXAMPLES = Path(__file__).parents[3] / "examples"
TABLES: dict[str, FieldTable] = {
    "workflow": WORKFLOW_TABLE,
    "node": NODE_TABLE,
    "retry": RETRY_TABLE,
    "cache": CACHE_TABLE,
    "rate_limit": RATE_LIMIT_TABLE,
}
VALIDATOR = Draft202012Validator(build_document_schema())


def node(**fields: Any) -> dict[str, Any]:
    return {"name": "a", "nodes": [{"id": "a", "handler": "output", **fields}]}


def problems(document: object) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(document)]


def test_the_shipped_schema_is_current() -> None:
    """Run `make reference` to update it."""
    assert read_shipped_schema() == format_document_schema()


def test_the_command_schema_prints_the_shipped_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["schema"]) == 0

    assert capsys.readouterr().out == format_document_schema()


def test_the_document_schema_is_a_valid_json_schema() -> None:
    Draft202012Validator.check_schema(build_document_schema())

    assert VALIDATOR.is_valid({"name": "a", "nodes": {"a": {"handler": "output"}}})


@pytest.mark.parametrize("name", TABLES)
def test_every_field_has_a_schema_and_every_schema_a_field(name: str) -> None:
    fields = TABLES[name].fields

    assert [
        key for key, field in fields.items() if find_field_schema(name, key, field) is None
    ] == []
    composed = {key for key, field in fields.items() if not isinstance(field.read, CheckedReader)}
    assert set(FIELD_SCHEMAS.get(name, {})) == composed


def test_every_field_has_a_description_and_every_description_a_field() -> None:
    fields = {name: set(table.fields) for name, table in TABLES.items()}

    assert {name: set(descriptions) for name, descriptions in FIELD_DESCRIPTIONS.items()} == fields


@pytest.mark.parametrize(
    "handler", [name for name, settings in HANDLER_SETTINGS.items() if settings]
)
def test_every_setting_of_a_handler_has_a_schema(handler: str) -> None:
    settings = HANDLER_SETTINGS[handler] or {}

    unknown = [name for name, setting in settings.items() if not setting.check.schema]
    assert [name for name in unknown if settings[name].check is not ANYTHING] == []


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_matches_the_schema(path: Path) -> None:
    assert problems(read_data(path)) == []


@pytest.mark.parametrize(
    "document",
    [
        node(retry=3),
        node(retry=False),
        node(cache=True),
        node(cache={"ttl": 3}),
        node(retry={"max_retries": 2, "retry_on": "LookupError"}),
        node(depends_on=[], condition=True, run_when="all_settled", queue="q"),
        node(for_each=[1, 2]),
        node(for_each={"items": "input.x"}),
        node(handler="sleep", config={"seconds": "{{ input.s }}"}),
        node(handler="mine", config={"anything": 1}),
        node(handler="workflow", config={"definition": {"nodes": {"b": {"handler": "input"}}}}),
        {**node(), "labels": {"a": 1}, "rate_limits": {"api": {"rate_per_second": 2}}},
    ],
    ids=str,
)
def test_a_document_that_can_be_read_matches_the_schema(document: dict[str, Any]) -> None:
    assert read_document(document).nodes
    assert problems(document) == []


@pytest.mark.parametrize(
    "document",
    [
        {"name": "a"},
        {"nodes": []},
        {"name": "", "nodes": [{"id": "a", "handler": "output"}]},
        node(timeout_seconds=0),
        node(timeout="3"),
        node(run_when="always"),
        node(retry={"retries": 3}),
        node(cache={"hours": 3}),
        {"name": "a", "nodes": [{"handler": "output"}]},
    ],
    ids=str,
)
def test_a_document_that_is_refused_does_not_match_the_schema(document: dict[str, Any]) -> None:
    with pytest.raises(InvalidWorkflowError):
        read_document(document)
    assert problems(document) != []


@pytest.mark.parametrize(
    "config",
    [{}, {"secs": 3}, {"seconds": -1}, {"seconds": "soon"}],
    ids=str,
)
def test_the_schema_checks_the_settings_of_built_in_handlers(config: dict[str, Any]) -> None:
    assert problems(node(handler="sleep", config=config)) != []
