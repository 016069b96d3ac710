"""What can go wrong, and how often it did."""

from collections import Counter
from enum import StrEnum


class Fault(StrEnum):
    CRASH = "crash"
    PAUSE = "pause"
    DROP = "drop"
    UNSEEN = "executed, answer lost"
    LOST_CLAIM = "claim answer lost"
    DUPLICATE = "duplicate"
    REORDER = "reorder"
    DELAY = "delay"
    ROLLBACK = "store rolled back"
    SKEW = "clock skew"
    SLOW = "slow writes"
    CUT_OFF = "cut off from the store"
    RESTART = "restart in good order"


class Tally:
    """What one run did: a run that did nothing proves nothing."""

    def __init__(self) -> None:
        self.faults: Counter[Fault] = Counter()
        self.steps = 0
        self.commits = 0
        self.takeovers = 0
        self.refused_commits = 0
        self.lost_tasks = 0
        self.refused_reports = 0
        self.late_calls = 0
        """Executed when their caller did not wait for them any more."""
        self.executions = 0

    def add(self, other: "Tally") -> None:
        self.faults.update(other.faults)
        for name in COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def counts(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in COUNTED}


COUNTED = (
    "steps",
    "commits",
    "takeovers",
    "refused_commits",
    "lost_tasks",
    "refused_reports",
    "late_calls",
    "executions",
)
