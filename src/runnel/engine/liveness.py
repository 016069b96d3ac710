"""Who is dead: whoever has shown no new sign of life for a while, on the observer's own clock."""

from collections.abc import Hashable
from typing import Generic, TypeVar

from runnel.ports.clock import Clock

Who = TypeVar("Who", bound=Hashable)
Sign = TypeVar("Sign")


class Liveness(Generic[Who, Sign]):
    """A sign is anything that the living change: no clock but the observer's takes part.

    So neither clocks that differ nor an observer that slept for a while make anybody dead who
    has moved since the observer last looked.
    """

    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self._seen: dict[Who, tuple[Sign, float]] = {}

    def is_dead(self, who: Who, sign: Sign) -> bool:
        """True once the same sign has been seen for `timeout_s`."""
        now = self._clock.monotonic()
        known = self._seen.get(who)
        if known is None or known[0] != sign:
            self._seen[who] = (sign, now)
            return False
        return now - known[1] >= self._timeout_s

    def forget_all_but(self, known: "set[Who]") -> None:
        for who in self._seen.keys() - known:
            del self._seen[who]
