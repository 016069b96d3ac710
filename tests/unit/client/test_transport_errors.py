"""A client raises the same error that the server raised."""

from collections.abc import Sequence

import pytest

from runnel import errors
from runnel.api.problems import (
    STATUS_BY_ERROR,
    make_internal_error_response,
    make_problem_response,
)
from runnel.client.transport import ERROR_CLASSES, decode_error
from runnel.errors import InputError, RunnelError

ERRORS: Sequence[RunnelError] = (
    errors.InputError("labels: there are 99"),
    errors.InvalidWorkflowError(
        ["nodes[2].retry: expected a number", "node 'b': no such parent", "a cycle: a → b → a"],
        source="flow.yaml",
    ),
    errors.InvalidInputError("input.name: it is missing"),
    errors.NotFoundError("execution", "01x", hint="'runnel list' shows the executions"),
    errors.InvalidTriggerError(["cron: expected five fields", "timezone: no 'Mars'"], source="x"),
    errors.WebhookRefusedError("the signature is not that of the secret"),
    errors.WrongStateError("execution 01x is COMPLETED already"),
    errors.ConflictError("schedule", "nightly", expected=2, found=3),
    errors.KeyReusedError("'k'", "01x", "another input"),
    errors.PayloadError("input: it is not JSON"),
    errors.MalformedBodyError("the body: line 1: expected a value"),
    errors.UnsupportedMediaError("text/plain", ["application/json"]),
    errors.BodyTooLargeError(10_000_000),
    errors.ForeignRequestError("Host", "evil.example", "name it"),
    errors.NotAuthenticatedError("the token is unknown"),
    errors.MissingScopeError("operate", ["read", "run"]),
    errors.NotAllowedError("the function", "a:b", setting="RUNNEL_ALLOW_PYTHON"),
    errors.TooManyRequestsError(60, 12.5),
    errors.TooManyStreamsError(1_000),
    errors.OverloadedError("python", 100_001, 100_000),
    errors.TooManyStreamsError(2_000),
    errors.StoreError("Redis: connection lost"),
    errors.NoServerError("Redis", "redis://***@host", reason="refused", remedy="start it"),
    errors.ArchiveBehindError(3, 100_000),
    errors.EngineEndedError("01x"),
)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_decoded_as_the_same_error(error: RunnelError) -> None:
    answer = make_problem_response(error)

    decoded = decode_error(answer.status_code, bytes(answer.body))

    assert type(decoded) is type(error)
    assert str(decoded) == str(error)
    assert vars(decoded) == vars(error)


def test_the_table_has_an_error_of_every_class_with_a_status() -> None:
    tried = {kind for error in ERRORS for kind in type(error).__mro__}

    assert set(STATUS_BY_ERROR) <= tried


def test_each_error_code_belongs_to_one_class() -> None:
    coded = [error for error in errors.list_error_classes() if "code" in vars(error)]

    assert len(ERROR_CLASSES) == len(coded)


def test_an_internal_error_reveals_no_details() -> None:
    answer = make_internal_error_response()

    decoded = decode_error(answer.status_code, bytes(answer.body))

    assert type(decoded) is RunnelError
    assert "the log of the server" in str(decoded)


@pytest.mark.parametrize(
    ("status", "kind"), [(404, InputError), (409, InputError), (500, RunnelError)]
)
def test_an_unknown_code_is_decoded_by_its_status(status: int, kind: type[RunnelError]) -> None:
    decoded = decode_error(status, b'{"code": "not_invented_yet", "detail": "so it is"}')

    assert type(decoded) is kind
    assert str(decoded) == "so it is"


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"detail": "x"}', b'{"code": 1}'])
def test_a_body_that_runnel_did_not_write_is_not_decoded(body: bytes) -> None:
    assert decode_error(404, body) is None
