"""How an exception of user code is reported."""

import asyncio
import os
from math import nan

import msgspec
import pytest

from runnel.core.retry import MESSAGE_CHARS_MAX, TRACEBACK_CHARS_MAX
from runnel.engine.worker.outputs import describe_exception
from runnel.errors import InputError, ServiceError, TaskTimeoutError
from runnel.handlers.data_processor import process


class FlakyError(ConnectionError):
    retryable = True


class Unprintable(Exception):  # noqa: N818  # what users call theirs
    def __str__(self) -> str:
        raise RuntimeError("no")


class Mute(BaseException):
    def __str__(self) -> str:
        raise SystemExit(1)


class Undecided(BaseException):
    @property
    def retryable(self) -> bool:
        raise GeneratorExit


class OddlyNamed(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]  # what a metaclass may do
        return os.fsdecode(b"Odd\xff")


class OddError(Exception, metaclass=OddlyNamed):
    pass


def caught(error: BaseException) -> BaseException:
    with pytest.raises(type(error)) as raised:
        raise error
    return raised.value


def test_an_error_is_reported_with_class_names_message_and_retryable() -> None:
    info = describe_exception(caught(FlakyError("line is busy")))

    assert str(info) == "FlakyError: line is busy"
    assert info.types == ("FlakyError", "ConnectionError", "OSError", "Exception")
    assert info.retryable is True


def test_for_an_ordinary_error_the_policy_decides_about_a_retry() -> None:
    assert describe_exception(caught(ValueError("x"))).retryable is None


def test_errors_of_runnel_say_whether_they_are_retryable() -> None:
    assert describe_exception(TaskTimeoutError(3)).retryable is True
    assert describe_exception(InputError("x")).retryable is False


def test_the_traceback_begins_in_the_users_code() -> None:
    text = describe_exception(caught(ValueError("x"))).traceback or ""

    assert text.startswith("Traceback")
    assert "test_failures.py" in text


def test_an_error_raised_inside_runnel_has_no_traceback() -> None:
    with pytest.raises(InputError) as raised:
        process({"operation": "pick", "data": {}})
    error = raised.value
    in_runnel = error.__traceback__ and error.__traceback__.tb_next

    assert describe_exception(error.with_traceback(in_runnel)).traceback is None


def test_messages_and_tracebacks_are_bounded() -> None:
    info = describe_exception(caught(ValueError("x" * 100_000)))

    assert len(info.message) == MESSAGE_CHARS_MAX
    assert len(info.traceback or "") <= TRACEBACK_CHARS_MAX


def test_an_error_whose_message_raises_is_still_reported() -> None:
    info = describe_exception(caught(Unprintable()))

    assert info.type == "Unprintable"
    assert "RuntimeError" in info.message


def test_an_error_whose_class_is_broken_is_still_reported() -> None:
    infos = [describe_exception(caught(error)) for error in (Mute(), Undecided())]

    assert [str(info) for info in infos] == [
        "Mute: (the message can't be shown: SystemExit)",
        "Undecided: (the error can't be described: GeneratorExit)",
    ]


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(os.fsdecode(b"/data/\xff.csv")),
        ExceptionGroup("\udcff", [ValueError("\udcfe"), KeyError("\ud800")]),
        OddError("odd"),
    ],
)
def test_an_error_with_any_content_can_be_stored(error: Exception) -> None:
    info = describe_exception(caught(error))

    assert msgspec.json.decode(msgspec.json.encode(info), type=type(info)) == info


def test_text_that_utf_8_can_not_encode_is_escaped() -> None:
    info = describe_exception(caught(FileNotFoundError(os.fsdecode(b"/data/\xff-\xc3\xa9.csv"))))

    assert info.message == r"/data/\udcff-é.csv"
    assert r"FileNotFoundError: /data/\udcff-é.csv" in (info.traceback or "")


def test_messages_and_tracebacks_are_bounded_with_their_escapes() -> None:
    info = describe_exception(caught(ValueError("\udcff" * 100_000)))

    assert len(info.message) == MESSAGE_CHARS_MAX
    assert len(info.traceback or "") == TRACEBACK_CHARS_MAX


@pytest.mark.parametrize(
    ("arguments", "expected"), [((), "cancelled itself"), (("enough",), "enough")]
)
def test_a_cancellation_without_a_message_is_explained(
    arguments: tuple[str, ...], expected: str
) -> None:
    assert expected in describe_exception(caught(asyncio.CancelledError(*arguments))).message


def test_terminal_control_characters_are_escaped_in_messages() -> None:
    info = describe_exception(ValueError("red \x1b[31m, bell \x07, turned \u202e, kept:\n\tümlaut"))

    assert info.message == "red \\x1b[31m, bell \\x07, turned \\u202e, kept:\n\tümlaut"


class BusyError(Exception):
    def __init__(self, retry_after_s: object) -> None:
        super().__init__("busy")
        self.retry_after_s = retry_after_s


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(7, 7.0), (0.5, 0.5), (1e9, 3_600.0), (-1, None), (True, None), ("7", None), (nan, None)],
)
def test_an_error_may_name_a_delay(arguments: object, expected: float | None) -> None:
    assert describe_exception(BusyError(arguments)).retry_after_s == expected


def test_an_error_with_says_all_has_no_traceback() -> None:
    assert describe_exception(caught(ServiceError("it broke off"))).traceback is None
