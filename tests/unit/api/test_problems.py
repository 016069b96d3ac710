"""Problems of requests: plain sentences in place of those of pydantic."""

import json
from datetime import datetime
from typing import Annotated, Any, Literal

import pytest
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from runnel.api.problems import handle_invalid_request
from runnel.core.states import ExecutionState


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    tags: list[str] = []


def refuse(_value: str) -> str:
    raise ValueError("Two nodes have this name")


STATES = "'PENDING', 'RUNNING', 'COMPLETED', 'FAILED' or 'CANCELLED'"
SENTENCES: list[tuple[Any, Any, str, str]] = [
    (Body, {}, "$.name", "it is missing"),
    (Body, {"name": "a", "x": 1}, "$.x", "there is no such field; remove it"),
    (Body, {"name": 3}, "$.name", "expected a text, got 3"),
    (Body, {"name": "a", "tags": [None]}, "$.tags[0]", "expected a text, got null"),
    (Body, {"name": "a", "tags": "b"}, "$.tags", "expected a list, got 'b'"),
    (Body, [], "$", "expected an object, got a list"),
    (int, "x", "$", "expected a whole number, got 'x'"),
    (int, 1.5, "$", "expected a whole number, got 1.5"),
    (float, "x", "$", "expected a number, got 'x'"),
    (bool, "x", "$", "expected true or false, got 'x'"),
    (datetime, "x", "$", "expected a date and time such as 2026-01-31T12:00:00Z, got 'x'"),
    (Literal["a", "b"], "c", "$", "expected 'a' or 'b', got 'c'"),
    (ExecutionState, "DONE", "$", f"expected {STATES}, got 'DONE'"),
    (Annotated[int, Field(ge=1)], 0, "$", "expected at least 1, got 0"),
    (Annotated[int, Field(le=500)], 501, "$", "expected at most 500, got 501"),
    (Annotated[float, Field(gt=0)], 0, "$", "expected more than 0, got 0"),
    (Annotated[float, Field(lt=1)], 1, "$", "expected less than 1, got 1"),
    (Annotated[int, Field(multiple_of=2)], 3, "$", "expected a multiple of 2, got 3"),
    (
        Annotated[str, Field(min_length=1)],
        "",
        "$",
        "expected a text of at least 1 character, got ''",
    ),
    (
        Annotated[str, Field(max_length=2)],
        "abc",
        "$",
        "expected a text of at most 2 characters, got 'abc'",
    ),
    (Annotated[str, Field(pattern="^x")], "a", "$", "expected a text that matches '^x', got 'a'"),
    (Annotated[list[int], Field(min_length=1)], [], "$", "expected at least 1 item, got 0"),
    (Annotated[list[int], Field(max_length=1)], [1, 2], "$", "expected at most 1 item, got 2"),
    (Annotated[str, AfterValidator(refuse)], "a", "$", "two nodes have this name"),
]


@pytest.mark.parametrize(("kind", "value", "path", "sentence"), SENTENCES)
async def test_a_wrong_request_gets_plain_sentences(
    kind: Any, value: Any, path: str, sentence: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(kind).validate_python(value)

    assert await answer(caught.value) == [{"path": path, "message": sentence}]


async def test_a_body_that_is_not_json_is_reported_as_a_whole() -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(Body).validate_json('{"name": ')

    [problem] = await answer(caught.value)
    assert problem["path"] == "$"
    assert problem["message"].startswith("the body is not JSON: EOF while parsing")


async def answer(error: ValidationError) -> list[dict[str, str]]:
    errors = [{**item, "loc": ("body", *item["loc"])} for item in error.errors()]
    response = await handle_invalid_request(
        Request({"type": "http"}), RequestValidationError(errors)
    )
    problems: list[dict[str, str]] = json.loads(bytes(response.body))["errors"]
    return problems
