"""An event loop on virtual time: nobody ever waits, the clock jumps to what comes next."""

import asyncio
import selectors
from collections.abc import Mapping
from typing import Any

# Far more than ever happens in one moment: in 300 seeds the most was 14.
TURNS_MAX = 20_000


class StandstillError(Exception):
    """Time does not move any more: somebody waits for nothing, or everybody for nobody."""


class _Jump(selectors.BaseSelector):
    """Instead of sleeping, tells the loop how long it would have slept.

    The loop's own wake-up pipe is the only file it is ever given, and nothing here writes to it.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._turns = 0
        self._files: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, fileobj, events, data)
        self._files[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._files.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise StandstillError("everything waits, and no time is set")
        self._turns = 0 if timeout > 0 else self._turns + 1
        if self._turns > TURNS_MAX:
            self._turns = 0
            raise StandstillError(f"{TURNS_MAX} turns of the loop in one moment: somebody spins")
        self.now += max(0.0, timeout)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._files


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs what is ready in order, then moves time on to the next timer: the same every time."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now
