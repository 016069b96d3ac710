"""How an exception of user code is told to the world."""

import pytest

from runnel.core.retry import MESSAGE_CHARS_MAX, TRACEBACK_CHARS_MAX
from runnel.engine.worker.failures import error_info
from runnel.errors import InputError, TaskTimeoutError
from runnel.handlers.data_processor import process


class FlakyError(ConnectionError):
    retryable = True


class Unprintable(Exception):  # noqa: N818  # what users call theirs
    def __str__(self) -> str:
        raise RuntimeError("no")


def caught(error: BaseException) -> BaseException:
    with pytest.raises(type(error)) as found:
        raise error
    return found.value


def test_an_error_travels_with_its_class_names_message_and_verdict() -> None:
    info = error_info(caught(FlakyError("line is busy")))

    assert str(info) == "FlakyError: line is busy"
    assert info.types == ("FlakyError", "ConnectionError", "OSError", "Exception")
    assert info.retryable is True


def test_an_ordinary_error_leaves_the_verdict_to_the_policy() -> None:
    assert error_info(caught(ValueError("x"))).retryable is None


def test_errors_of_runnel_know_whether_to_try_again() -> None:
    assert error_info(TaskTimeoutError(3)).retryable is True
    assert error_info(InputError("x")).retryable is False


def test_the_traceback_begins_in_the_users_code() -> None:
    text = error_info(caught(ValueError("x"))).traceback or ""

    assert text.startswith("Traceback")
    assert "test_failures.py" in text


def test_an_error_that_is_all_runnels_has_no_traceback() -> None:
    with pytest.raises(InputError) as found:
        process({})
    error = found.value
    in_runnel = error.__traceback__ and error.__traceback__.tb_next

    assert error_info(error.with_traceback(in_runnel)).traceback is None


def test_messages_and_tracebacks_are_bounded() -> None:
    info = error_info(caught(ValueError("x" * 100_000)))

    assert len(info.message) == MESSAGE_CHARS_MAX
    assert len(info.traceback or "") <= TRACEBACK_CHARS_MAX


def test_an_error_whose_message_raises_is_still_told() -> None:
    info = error_info(caught(Unprintable()))

    assert info.type == "Unprintable"
    assert "RuntimeError" in info.message
