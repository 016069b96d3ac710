"""Sentences on stderr: a stream that fails does not stop a command."""

import sys
from io import StringIO

import pytest

from runnel.cli.streams import print_to_stderr


class FullDisk(StringIO):
    def flush(self) -> None:
        raise OSError(28, "No space left on device")


def test_a_sentence_is_printed_as_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    is_printed = print_to_stderr("go on")

    assert is_printed
    assert capsys.readouterr().err == "go on\n"


def test_a_stderr_that_fails_is_reported_and_raises_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stderr", FullDisk())

    assert not print_to_stderr("go on")
