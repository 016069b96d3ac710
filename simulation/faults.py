"""What can go wrong, what a run uses of the engine, and how often both happened."""

from collections import Counter
from enum import StrEnum


class Fault(StrEnum):
    CRASH = "crash"
    PAUSE = "pause"
    DROP = "drop"
    ANSWER_LOST = "executed, answer lost"
    CLAIM_ANSWER_LOST = "claim answer lost"
    DUPLICATE = "duplicate"
    REORDER = "reorder"
    DELAY = "delay"
    ROLLBACK = "store rolled back"
    SKEW = "clock skew"
    SLOW = "slow writes"
    CUT_OFF = "cut off from the store"
    RESTART = "restart in good order"


class Feature(StrEnum):
    """What a run has used of the engine: what never happens is not shown to work."""

    JOIN = "joins"
    MAP = "maps"
    MAP_OF_CHILDREN = "maps of children"
    RETRY = "retries"
    EXHAUSTED = "retries used up"
    CHILD = "children"
    CHILD_RETRY = "retries of children"
    SIGNAL = "signals taken"
    SIGNAL_TIMEOUT = "signals not in time"
    CANCEL = "cancels"
    FORCED_CANCEL = "forced cancels"
    TIMEOUT = "executions out of time"
    SLA = "SLAs missed"
    HELD_START = "held executions started"
    SKIP = "skips by a rule"
    SKIP_BY_ITSELF = "skips by code"
    KEY_WAIT = "keys waited for"
    RATE_PARK = "rate tokens waited for"
    RATE_WAIT = "tasks deferred by a rate"
    CRASH_LOOP = "crash loops"
    DEAD_LETTER = "dead letters"
    OFFLOADED_VALUE = "large values put aside"
    SHARED_VALUE = "values put aside for maps"
    FAULT_FREE = "runs without a fault"


class RunStatistics:
    """What one run did: a run that did nothing proves nothing."""

    def __init__(self) -> None:
        self.faults: Counter[Fault] = Counter()
        self.features: Counter[Feature] = Counter()
        self.steps = 0
        self.commits = 0
        self.takeovers = 0
        self.refused_commits = 0
        self.lost_tasks = 0
        self.refused_reports = 0
        self.late_calls = 0
        """Executed when their caller did not wait for them any more."""
        self.executions = 0
        self.killed_workers = 0
        """Taken down by a task that they ran."""

    def add(self, other: "RunStatistics") -> None:
        self.faults.update(other.faults)
        self.features.update(other.features)
        for name in COUNTER_NAMES:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def counts(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in COUNTER_NAMES}


COUNTER_NAMES = (
    "steps",
    "commits",
    "takeovers",
    "refused_commits",
    "lost_tasks",
    "refused_reports",
    "late_calls",
    "executions",
    "killed_workers",
)


# Something that must never happen, and did.


class InvariantViolation(Exception):  # noqa: N818  # a finding, not a mistake of the caller
    """`check` is the name of the invariant; the message says who broke it and how."""

    def __init__(self, check: str, problem: str) -> None:
        super().__init__(f"{check}: {problem}")
        self.check = check
        self.problem = problem
