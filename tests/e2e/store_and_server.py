"""The same command on a store and over HTTP on the server of that store."""

import re
from collections.abc import Sequence
from shlex import quote
from typing import NamedTuple

import pytest

from runnel.cli.main import run_command
from runnel.settings.variables import hide_password

# Over HTTP moments come to the millisecond; and what lasts still has gone on between two looks.
_TIMES = re.compile(r"\b\d+(?:\.\d+)? (?:s|min|h|d)\b|\d\d:\d\d:\d\d ")
_JSON_TIMES = re.compile(r'("(?:silent_s|oldest_s|took_s|p50_s|p95_s|documents_per_hour)":)[\d.]+')
_BLANKS = re.compile(r" +")


class CommandOutput(NamedTuple):
    code: int
    out: str
    err: str


class StoreAndServer:
    """`store` and `server` are the options that name each of them."""

    def __init__(self, store: Sequence[str], url: str, capfd: pytest.CaptureFixture[str]) -> None:
        self.url = url
        self._store = list(store)
        self._capfd = capfd

    def there(self, *arguments: str) -> CommandOutput:
        """Over HTTP."""
        return self._ask([*arguments, "--server", self.url])

    def here(self, *arguments: str) -> CommandOutput:
        return self._ask([*arguments, *self._store])

    def check_same(self, *arguments: str) -> CommandOutput:
        """Asserts that nothing tells the two apart; returns what was said over HTTP."""
        here, there = self._plain(self.here(*arguments)), self._plain(self.there(*arguments))
        assert there.code == here.code
        assert there.err == here.err
        assert there.out == here.out, f"{there.out}\n{here.out}"
        return there

    def _ask(self, arguments: Sequence[str]) -> CommandOutput:
        self._capfd.readouterr()
        code = run_command(arguments)
        printed = self._capfd.readouterr()
        return CommandOutput(code, printed.out, printed.err)

    def _plain(self, said: CommandOutput) -> CommandOutput:
        return CommandOutput(said.code, self._timeless(said.out), self._timeless(said.err))

    def _timeless(self, text: str) -> str:
        option, value = self._store
        for place in (f"--server {self.url}", f"{option} {quote(hide_password(value))}"):
            text = text.replace(place, "PLACE")
        text = _JSON_TIMES.sub(r"\1…", _TIMES.sub("…", text))
        return _BLANKS.sub(" ", text)
