"""Runs the `runnel` commands of the pages in forks of one process."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.e2e.program import DEADLINE_S, clean_environment
from tests.fork_server import CommandResult, get_fork_server


class PageCommands:
    def run(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> CommandResult:
        given = environment or clean_environment()
        return get_fork_server().run(words, folder, given, deadline_s=3 * DEADLINE_S)
