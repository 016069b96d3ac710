"""The rule by which a node whose parents are all settled runs, or is skipped."""

from collections.abc import Iterable
from enum import StrEnum

from runnel.core.states import NodeState


class RunWhen(StrEnum):
    DEFAULT = "default"
    ALL_COMPLETED = "all_completed"
    NONE_FAILED = "none_failed"
    ALL_SETTLED = "all_settled"
    ONE_FAILED = "one_failed"


CLEAN_UP = frozenset({RunWhen.ALL_SETTLED, RunWhen.ONE_FAILED})


class SkipReason(StrEnum):
    CONDITION_FALSE = "condition is false"
    PARENTS_SKIPPED = "all parents were skipped"
    DEPENDENCY_FAILED = "dependency failed"
    RULE_NOT_MET = "run_when was not met"
    BY_ITSELF = "its own code skipped it"


class ParentOutcome(StrEnum):
    """What a settled parent means to its children.

    CUT_OFF is a parent that was cancelled after it had been handed to a worker: its code may have
    had effects, so a `one_failed` node cleans up after it. BLOCKED never ran because of a failure
    further up.
    """

    COMPLETED = "completed"
    SKIPPED = "skipped"
    FAILED = "failed"
    CUT_OFF = "cut off"
    BLOCKED = "blocked"


def outcome_of(state: NodeState, attempt: int, reason: SkipReason | None) -> ParentOutcome:
    if state is NodeState.COMPLETED:
        return ParentOutcome.COMPLETED
    if state is NodeState.FAILED:
        return ParentOutcome.FAILED
    if state is NodeState.CANCELLED:
        return ParentOutcome.CUT_OFF if attempt else ParentOutcome.BLOCKED
    is_blocked = reason is SkipReason.DEPENDENCY_FAILED
    return ParentOutcome.BLOCKED if is_blocked else ParentOutcome.SKIPPED


_GOOD = frozenset({ParentOutcome.COMPLETED, ParentOutcome.SKIPPED})
_BAD = frozenset({ParentOutcome.FAILED, ParentOutcome.CUT_OFF, ParentOutcome.BLOCKED})
_TRIGGERS_CLEAN_UP = frozenset({ParentOutcome.FAILED, ParentOutcome.CUT_OFF})


def judge(rule: RunWhen, parents: Iterable[ParentOutcome]) -> SkipReason | None:
    """None means run; otherwise why the node is skipped. A node without parents always runs."""
    outcomes = set(parents)
    if not outcomes or rule is RunWhen.ALL_SETTLED:
        return None
    if rule is RunWhen.ONE_FAILED:
        return None if outcomes & _TRIGGERS_CLEAN_UP else SkipReason.RULE_NOT_MET
    if outcomes & _BAD:
        return SkipReason.DEPENDENCY_FAILED
    if rule is RunWhen.ALL_COMPLETED and ParentOutcome.SKIPPED in outcomes:
        return SkipReason.RULE_NOT_MET
    if rule is RunWhen.DEFAULT and ParentOutcome.COMPLETED not in outcomes:
        return SkipReason.PARENTS_SKIPPED
    return None
