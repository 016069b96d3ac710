"""In which order queues are looked at: the one that was served longest ago comes first."""

from collections.abc import Iterable, Sequence
from itertools import count


class Rotation:
    """Knows the queues that this client has met and that there still are."""

    def __init__(self) -> None:
        self._turns = count(1)
        self._last: dict[str, int] = {}

    def order(self, wanted: Sequence[str] | None) -> list[str]:
        """Of the wanted queues, or of all that are known."""
        names = self._last if wanted is None else wanted
        return sorted(names, key=lambda name: self._last.get(name, 0))

    def served(self, names: Iterable[str]) -> None:
        for name in names:
            self._last[name] = next(self._turns)

    def known(self, names: Iterable[str]) -> None:
        """These, and no others, are there."""
        self._last = {name: self._last.get(name, 0) for name in names}
