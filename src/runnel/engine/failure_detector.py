"""Detects dead processes: those whose sign of life has not changed, by the observer's own clock."""

from collections.abc import Hashable
from typing import Generic, TypeVar

from runnel.ports.clock import Clock

POLLS_PER_TIMEOUT = 6
# The last sign is seen at most one look after it was given, and found to be old at most one look
# after it is: 3.5 + 2 of 6 looks leave half a look for the looking itself.
POLLS_UNTIL_DEAD = 3.5

Member = TypeVar("Member", bound=Hashable)
Observation = TypeVar("Observation")


class FailureDetector(Generic[Member, Observation]):
    """A sign is anything that the living change: no clock but the observer's takes part.

    So neither clocks that differ nor an observer that slept for a while make anybody dead who
    has moved since the observer last looked. Whoever gives a sign every `poll_s` and is looked
    at every `poll_s` is found dead at most `timeout_s` after its last sign, and not before it
    has missed three.
    """

    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self.poll_s = timeout_s / POLLS_PER_TIMEOUT
        self._clock = clock
        self._silence_s = POLLS_UNTIL_DEAD * self.poll_s
        self._observations: dict[Member, tuple[Observation, float]] = {}

    def is_dead(self, member: Member, observation: Observation, *, grace_s: float = 0.0) -> bool:
        """True once the same sign has been seen for long enough, `grace_s` at least."""
        now = self._clock.monotonic()
        known = self._observations.get(member)
        if known is None or known[0] != observation:
            self._observations[member] = (observation, now)
            return False
        return now - known[1] >= max(self._silence_s, grace_s)

    def retain_only(self, members: "set[Member]") -> None:
        for member in self._observations.keys() - members:
            del self._observations[member]
