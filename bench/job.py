"""One measurement that runs in a process of its own: none pays for what another left behind."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from runnel.bench.setup import Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkJob:
    """`name` is the workload and then the configuration.

    `is_short` ones are what `--quick` leaves; one that is a sample by itself runs `is_once`.
    """

    name: str
    run: Callable[[], Figures]
    is_short: bool = False
    is_once: bool = False

    def has_words(self, words: Collection[str]) -> bool:
        """All of them, in any order."""
        return set(words) <= set(self.name.split())
