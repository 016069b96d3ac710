"""Detects dead processes: their sign of life has not changed for too long on the
observer's clock.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

from runnel.ports.clock import Clock

POLLS_PER_TIMEOUT = 6
# The observer sees the last sign at most one poll after it was given, and sees that it is old at
# most one poll after it is. 3.5 + 2 of 6 polls leave half a poll for the time that polling takes.
POLLS_UNTIL_DEAD = 3.5

Member = TypeVar("Member", bound=Hashable)
Observation = TypeVar("Observation")


class FailureDetector(Generic[Member, Observation]):
    """Judges members by a sign that every live member changes; only the observer's clock counts.

    So a member that has moved since the last poll is never dead, although clocks differ or the
    observer was suspended. Suppose that a member gives a sign every `poll_s` and is polled every
    `poll_s`. Then it is judged dead at most `timeout_s` after its last sign, and not before it has
    missed three.
    """

    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self.poll_s = timeout_s / POLLS_PER_TIMEOUT
        self._clock = clock
        self._silence_s = POLLS_UNTIL_DEAD * self.poll_s
        self._observations: dict[Member, tuple[Observation, float]] = {}

    def is_dead(self, member: Member, observation: Observation, *, grace_s: float = 0.0) -> bool:
        """Returns True once the same sign was observed for long enough, at least for `grace_s`."""
        now = self._clock.monotonic()
        previous = self._observations.get(member)
        if previous is None or previous[0] != observation:
            self._observations[member] = (observation, now)
            return False
        return now - previous[1] >= max(self._silence_s, grace_s)

    def retain_only(self, members: "set[Member]") -> None:
        for member in self._observations.keys() - members:
            del self._observations[member]
