"""Runs the same command directly on a store and over HTTP on the server of that store."""

import re
from collections.abc import Sequence
from shlex import quote
from typing import NamedTuple

import pytest

from runnel.cli.main import run_command
from runnel.settings.variables import hide_password

# Times have milliseconds over HTTP, and durations grow between the two commands.
_TIMES = re.compile(r"\b\d+(?:\.\d+)? (?:s|min|h|d)\b|\d\d:\d\d:\d\d ")
_JSON_TIMES = re.compile(r'("(?:silent_s|oldest_s|took_s|p50_s|p95_s|documents_per_hour)":)[\d.]+')
_BLANKS = re.compile(r" +")


class CommandOutput(NamedTuple):
    code: int
    out: str
    err: str


class StoreAndServer:
    """Runs commands in this process. `store` holds the options that name the store."""

    def __init__(self, store: Sequence[str], url: str, capfd: pytest.CaptureFixture[str]) -> None:
        self.url = url
        self._store = list(store)
        self._capfd = capfd

    def on_server(self, *arguments: str) -> CommandOutput:
        return self._run([*arguments, "--server", self.url])

    def on_store(self, *arguments: str) -> CommandOutput:
        return self._run([*arguments, *self._store])

    def check_same(self, *arguments: str) -> CommandOutput:
        """Asserts that both outputs are equal; returns the output over HTTP."""
        on_store = self._normalize(self.on_store(*arguments))
        on_server = self._normalize(self.on_server(*arguments))
        assert on_server.code == on_store.code
        assert on_server.err == on_store.err
        assert on_server.out == on_store.out, f"{on_server.out}\n{on_store.out}"
        return on_server

    def _run(self, arguments: Sequence[str]) -> CommandOutput:
        self._capfd.readouterr()
        code = run_command(arguments)
        printed = self._capfd.readouterr()
        return CommandOutput(code, printed.out, printed.err)

    def _normalize(self, output: CommandOutput) -> CommandOutput:
        return CommandOutput(
            output.code, self._remove_differences(output.out), self._remove_differences(output.err)
        )

    def _remove_differences(self, text: str) -> str:
        """Removes times, column widths, and the options that name the store or the server."""
        option, value = self._store
        for location in (f"--server {self.url}", f"{option} {quote(hide_password(value))}"):
            text = text.replace(location, "LOCATION")
        text = _JSON_TIMES.sub(r"\1…", _TIMES.sub("…", text))
        return _BLANKS.sub(" ", text)
