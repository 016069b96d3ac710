"""Which orchestrators live, as far as this process knows."""

from collections.abc import Sequence
from copy import copy
from itertools import count

from runnel.ports.registry import Attendance


class LocalAttendance:
    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        # One counter for all: who comes back never shows a number seen before.
        self._signs = count(1)

    def copy(self) -> "LocalAttendance":
        copied = LocalAttendance()
        copied._last, copied._signs = dict(self._last), copy(self._signs)
        return copied

    def attend(self, owner: str) -> Sequence[Attendance]:
        self._last[owner] = next(self._signs)
        return [Attendance(owner=name, counter=counter) for name, counter in self._last.items()]

    def depart(self, owner: str, counter: int | None) -> None:
        if counter is None or self._last.get(owner) == counter:
            self._last.pop(owner, None)
