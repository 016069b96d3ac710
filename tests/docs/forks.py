"""Commands of `runnel` as a reader of the pages gives them, in forks of one process."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.e2e.program import DEADLINE_S, clean_environment
from tests.forks import Done, forks


class Forks:
    def run(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> Done:
        given = environment or clean_environment()
        return forks().run(words, folder, given, deadline_s=3 * DEADLINE_S)
