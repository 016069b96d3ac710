"""The rule for a node whose parents are settled, as a table."""

import pytest

from runnel.core.run_when import ParentOutcome as P
from runnel.core.run_when import RunWhen, SkipReason, apply_run_when, classify_parent_outcome
from runnel.core.states import NodeState

RUN = None
FAILED, EMPTY, NOT_MET = (
    SkipReason.DEPENDENCY_FAILED,
    SkipReason.PARENTS_SKIPPED,
    SkipReason.RULE_NOT_MET,
)

#        parents                          default  all_comp none_f   settled one_failed
TABLE = [
    ((),                                 (RUN,     RUN,     RUN,     RUN,    RUN)),
    ((P.COMPLETED,),                     (RUN,     RUN,     RUN,     RUN,    NOT_MET)),
    ((P.SKIPPED,),                       (EMPTY,   NOT_MET, RUN,     RUN,    NOT_MET)),
    ((P.COMPLETED, P.SKIPPED),           (RUN,     NOT_MET, RUN,     RUN,    NOT_MET)),
    ((P.FAILED,),                        (FAILED,  FAILED,  FAILED,  RUN,    RUN)),
    ((P.COMPLETED, P.FAILED),            (FAILED,  FAILED,  FAILED,  RUN,    RUN)),
    ((P.CUT_OFF,),                       (FAILED,  FAILED,  FAILED,  RUN,    RUN)),
    ((P.BLOCKED,),                       (FAILED,  FAILED,  FAILED,  RUN,    NOT_MET)),
    ((P.BLOCKED, P.COMPLETED),           (FAILED,  FAILED,  FAILED,  RUN,    NOT_MET)),
]  # fmt: skip


@pytest.mark.parametrize(("parents", "expected"), TABLE)
def test_the_rule_follows_from_the_outcomes_of_the_parents(
    parents: tuple[P, ...], expected: tuple[SkipReason | None, ...]
) -> None:
    rules = (
        RunWhen.DEFAULT,
        RunWhen.ALL_COMPLETED,
        RunWhen.NONE_FAILED,
        RunWhen.ALL_SETTLED,
        RunWhen.ONE_FAILED,
    )

    assert tuple(apply_run_when(rule, parents) for rule in rules) == expected


@pytest.mark.parametrize(
    ("state", "attempt", "reason", "expected"),
    [
        (NodeState.COMPLETED, 1, None, P.COMPLETED),
        (NodeState.FAILED, 1, None, P.FAILED),
        (NodeState.CANCELLED, 0, None, P.BLOCKED),
        (NodeState.CANCELLED, 2, None, P.CUT_OFF),
        (NodeState.SKIPPED, 0, SkipReason.CONDITION_FALSE, P.SKIPPED),
        (NodeState.SKIPPED, 0, SkipReason.DEPENDENCY_FAILED, P.BLOCKED),
    ],
)
def test_a_settled_parent_has_one_outcome_for_all_its_children(
    state: NodeState, attempt: int, reason: SkipReason | None, expected: P
) -> None:
    assert classify_parent_outcome(state, attempt, reason) is expected
