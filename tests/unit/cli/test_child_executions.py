"""The unfinished children of a tree, as notifications report them."""

from runnel.cli.session.follow import UnfinishedChildren
from runnel.core.events import ExecutionCreated, ExecutionFinished, ExecutionStarted
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.states import ExecutionState
from runnel.core.values import EMPTY_OBJECT
from runnel.notify.event_bus import CommittedEvents

ROOT, CHILD, GRANDCHILD = (ExecutionId(text) for text in ("r", "r.kid.1", "r.kid.1.sub.1"))


def created(execution_id: ExecutionId) -> CommittedEvents:
    event = ExecutionCreated(
        execution_id=execution_id,
        workflow="w",
        version=1,
        definition=DefinitionHash("d"),
        input=EMPTY_OBJECT,
        created_at=1.0,
    )
    return CommittedEvents(execution_id, 1.0, [event, ExecutionStarted()])


def finished(execution_id: ExecutionId) -> CommittedEvents:
    return CommittedEvents(execution_id, 2.0, [ExecutionFinished(state=ExecutionState.CANCELLED)])


def test_children_are_listed_until_they_are_final() -> None:
    offspring = UnfinishedChildren()

    for each in (ROOT, CHILD, GRANDCHILD):
        offspring.update(created(each))
    both = offspring.list_children(ROOT)
    offspring.update(finished(ROOT))
    offspring.update(finished(CHILD))
    one = offspring.list_children(CHILD)
    offspring.update(finished(GRANDCHILD))

    assert (both, one) == ([CHILD, GRANDCHILD], [GRANDCHILD])
    assert not offspring.has_any(ROOT)


def test_children_of_different_trees_are_kept_apart() -> None:
    offspring = UnfinishedChildren()
    other = ExecutionId("s.kid.1")

    offspring.add(CHILD)
    offspring.add(other)
    offspring.remove(CHILD)

    assert not offspring.has_any(ROOT)
    assert offspring.list_children(ExecutionId("s")) == [other]


def test_the_end_of_an_unknown_child_is_ignored() -> None:
    offspring = UnfinishedChildren()

    offspring.update(finished(CHILD))

    assert offspring.list_children(ROOT) == []
