"""Which children of a tree are still to end, by what is told of them."""

from runnel.cli.session.progress import Offspring
from runnel.core.events import ExecutionCreated, ExecutionFinished, ExecutionStarted
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.states import ExecutionState
from runnel.core.values import EMPTY_OBJECT
from runnel.notify.hub import Happened

ROOT, CHILD, GRANDCHILD = (ExecutionId(text) for text in ("r", "r.kid.1", "r.kid.1.sub.1"))


def created(execution_id: ExecutionId) -> Happened:
    event = ExecutionCreated(
        execution_id=execution_id,
        workflow="w",
        version=1,
        definition=DefinitionHash("d"),
        input=EMPTY_OBJECT,
        created_at=1.0,
    )
    return Happened(execution_id, 1.0, [event, ExecutionStarted()])


def finished(execution_id: ExecutionId) -> Happened:
    return Happened(execution_id, 2.0, [ExecutionFinished(state=ExecutionState.CANCELLED)])


def test_children_are_there_until_they_are_final() -> None:
    offspring = Offspring()

    for each in (ROOT, CHILD, GRANDCHILD):
        offspring.see(created(each))
    both = offspring.of(ROOT)
    offspring.see(finished(ROOT))
    offspring.see(finished(CHILD))
    one = offspring.of(CHILD)
    offspring.see(finished(GRANDCHILD))

    assert (both, one) == ([CHILD, GRANDCHILD], [GRANDCHILD])
    assert not offspring.has(ROOT)


def test_trees_are_kept_apart() -> None:
    offspring = Offspring()
    other = ExecutionId("s.kid.1")

    offspring.add(CHILD)
    offspring.add(other)
    offspring.end(CHILD)

    assert not offspring.has(ROOT)
    assert offspring.of(ExecutionId("s")) == [other]


def test_the_end_of_one_that_nobody_knew_is_no_news() -> None:
    offspring = Offspring()

    offspring.see(finished(CHILD))

    assert offspring.of(ROOT) == []
