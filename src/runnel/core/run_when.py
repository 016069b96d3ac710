"""`run_when`: whether a node runs or is skipped once all its parents are settled."""

from collections.abc import Iterable
from enum import StrEnum

from runnel.core.states import NodeState


class RunWhen(StrEnum):
    DEFAULT = "default"
    ALL_COMPLETED = "all_completed"
    NONE_FAILED = "none_failed"
    ALL_SETTLED = "all_settled"
    ONE_FAILED = "one_failed"


class WhenNotMet(StrEnum):
    """What becomes of a node whose `run_when` is not met."""

    SKIP = "skip"
    FAIL = "fail"


CLEAN_UP_RULES = frozenset({RunWhen.ALL_SETTLED, RunWhen.ONE_FAILED})


class SkipReason(StrEnum):
    CONDITION_FALSE = "condition is false"
    PARENTS_SKIPPED = "all parents were skipped"
    DEPENDENCY_FAILED = "dependency failed"
    RULE_NOT_MET = "run_when was not met"
    BY_ITSELF = "its own code skipped it"


def describe_rule_not_met(rule: RunWhen) -> str:
    """Returns a sentence such as `run_when one_failed was not met: no parent failed`."""
    cause = "no parent failed" if rule is RunWhen.ONE_FAILED else "a parent was skipped"
    return f"run_when {rule} was not met: {cause}"


class ParentOutcome(StrEnum):
    """The outcome of a settled parent, as the `run_when` rules of its children distinguish it.

    CUT_OFF is a parent that was cancelled after its task was issued. The parent's code may have had
    effects, so a `one_failed` node runs after it. BLOCKED is a parent that never ran because of an
    earlier failure.
    """

    COMPLETED = "completed"
    SKIPPED = "skipped"
    FAILED = "failed"
    CUT_OFF = "cut off"
    BLOCKED = "blocked"


def classify_parent_outcome(
    state: NodeState, attempt: int, reason: SkipReason | None
) -> ParentOutcome:
    if state is NodeState.COMPLETED:
        return ParentOutcome.COMPLETED
    if state is NodeState.FAILED:
        return ParentOutcome.FAILED
    if state is NodeState.CANCELLED:
        return ParentOutcome.CUT_OFF if attempt else ParentOutcome.BLOCKED
    is_blocked = reason is SkipReason.DEPENDENCY_FAILED
    return ParentOutcome.BLOCKED if is_blocked else ParentOutcome.SKIPPED


_FAILED_OUTCOMES = frozenset({ParentOutcome.FAILED, ParentOutcome.CUT_OFF, ParentOutcome.BLOCKED})
_CLEAN_UP_OUTCOMES = frozenset({ParentOutcome.FAILED, ParentOutcome.CUT_OFF})


def apply_run_when(rule: RunWhen, parents: Iterable[ParentOutcome]) -> SkipReason | None:
    """Returns None if the node runs, and the reason if the node is skipped.

    A node without parents always runs.
    """
    outcomes = set(parents)
    if not outcomes or rule is RunWhen.ALL_SETTLED:
        return None
    if rule is RunWhen.ONE_FAILED:
        return None if outcomes & _CLEAN_UP_OUTCOMES else SkipReason.RULE_NOT_MET
    if outcomes & _FAILED_OUTCOMES:
        return SkipReason.DEPENDENCY_FAILED
    if rule is RunWhen.ALL_COMPLETED and ParentOutcome.SKIPPED in outcomes:
        return SkipReason.RULE_NOT_MET
    if rule is RunWhen.DEFAULT and ParentOutcome.COMPLETED not in outcomes:
        return SkipReason.PARENTS_SKIPPED
    return None
