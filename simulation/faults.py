"""Faults to inject, features of the engine to cover, and counters for both."""

from collections import Counter
from enum import StrEnum


class Fault(StrEnum):
    """A kind of fault. Do not change the values, because stored plans contain them."""

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
    """A feature of the engine, which a campaign must use often enough to test it."""

    JOIN = "joins"
    MAP = "maps"
    MAP_OF_CHILDREN = "maps of children"
    RETRY = "retries"
    EXHAUSTED = "retries used up"
    CHILD = "children"
    CHILD_RETRY = "retries of children"
    SIGNAL = "signals taken"
    SIGNAL_TIMEOUT = "signals timed out"
    CANCEL = "cancels"
    FORCED_CANCEL = "forced cancels"
    TIMEOUT = "executions timed out"
    SLA = "SLAs missed"
    HELD_START = "held executions started"
    SKIP = "skips by a rule"
    SKIP_BY_ITSELF = "skips by code"
    KEY_WAIT = "waits for keys"
    RATE_PARK = "waits for rate tokens"
    RATE_WAIT = "tasks deferred by a rate"
    CRASH_LOOP = "crash loops"
    DEAD_LETTER = "dead letters"
    OFFLOADED_VALUE = "large values offloaded"
    SHARED_VALUE = "values shared by map items"
    FAULT_FREE = "runs without a fault"


class RunStatistics:
    """Counters of one run. A run with too little activity proves nothing."""

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
        """Calls that were executed after their caller had stopped waiting."""
        self.executions = 0
        self.killed_workers = 0
        """Workers that were crashed by a task."""

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


class InvariantViolation(Exception):  # noqa: N818  # a result, not an error of the caller
    """A broken invariant. `check` is its name; `problem` says what broke it."""

    def __init__(self, check: str, problem: str) -> None:
        super().__init__(f"{check}: {problem}")
        self.check = check
        self.problem = problem
