"""An error of the server reaches the caller as the same error."""

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
    errors.NotFoundError("execution", "01x", hint="'runnel list' shows those that exist"),
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
def test_an_error_comes_back_as_it_was(error: RunnelError) -> None:
    answer = make_problem_response(error)

    found = decode_error(answer.status_code, bytes(answer.body))

    assert type(found) is type(error)
    assert str(found) == str(error)
    assert vars(found) == vars(error)


def test_every_class_that_has_a_status_is_in_the_table() -> None:
    tried = {kind for error in ERRORS for kind in type(error).__mro__}

    assert set(STATUS_BY_ERROR) <= tried


def test_a_code_belongs_to_one_class() -> None:
    coded = [error for error in errors.list_error_classes() if "code" in vars(error)]

    assert len(ERROR_CLASSES) == len(coded)


def test_what_went_wrong_inside_stays_there() -> None:
    answer = make_internal_error_response()

    found = decode_error(answer.status_code, bytes(answer.body))

    assert type(found) is RunnelError
    assert "the log of the server" in str(found)


@pytest.mark.parametrize(
    ("status", "kind"), [(404, InputError), (409, InputError), (500, RunnelError)]
)
def test_a_code_of_a_later_version_is_told_by_its_status(
    status: int, kind: type[RunnelError]
) -> None:
    found = decode_error(status, b'{"code": "not_invented_yet", "detail": "so it is"}')

    assert type(found) is kind
    assert str(found) == "so it is"


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"detail": "x"}', b'{"code": 1}'])
def test_what_no_runnel_says_is_no_error_of_runnel(body: bytes) -> None:
    assert decode_error(404, body) is None
