"""Detects dead processes: a process is dead if its counter stays unchanged for too long."""

from collections.abc import Hashable
from typing import Generic, TypeVar

from runnel.ports.clock import Clock

POLLS_PER_TIMEOUT = 6
# The observer reads the last change of a counter at most one poll interval after the change. The
# observer notices that the silence was long enough at most one interval later. The observer
# therefore detects a death two intervals after the silence at the latest. Half an interval is left
# for the time that polling takes.
POLLS_AFTER_SILENCE = 2.5

Member = TypeVar("Member", bound=Hashable)
Observation = TypeVar("Observation")


class FailureDetector(Generic[Member, Observation]):
    """Decides which members are dead, by a value that every live member changes regularly.

    The detector uses only the observer's clock. A member whose value has changed since the last
    poll is never dead, even if clocks differ or the observer was suspended. Suppose that a member
    changes its value every `poll_s` and is polled every `poll_s`. Such a member counts as dead at
    most `timeout_s` after its last change, and only after three missed changes.

    With more polls per timeout, the silence before a death takes a larger part of the timeout.
    """

    def __init__(
        self, clock: Clock, timeout_s: float, *, polls_per_timeout: int = POLLS_PER_TIMEOUT
    ) -> None:
        self.poll_s = timeout_s / polls_per_timeout
        self._clock = clock
        self._silence_s = (polls_per_timeout - POLLS_AFTER_SILENCE) * self.poll_s
        self._observations: dict[Member, tuple[Observation, float]] = {}

    def is_dead(self, member: Member, observation: Observation, *, grace_s: float = 0.0) -> bool:
        """Returns True if `observation` has stayed the same for long enough, at least for
        `grace_s`.
        """
        now = self._clock.monotonic()
        previous = self._observations.get(member)
        if previous is None or previous[0] != observation:
            self._observations[member] = (observation, now)
            return False
        return now - previous[1] >= max(self._silence_s, grace_s)

    def retain_only(self, members: "set[Member]") -> None:
        for member in self._observations.keys() - members:
            del self._observations[member]
