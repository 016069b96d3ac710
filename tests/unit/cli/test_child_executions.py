"""UnfinishedChildren tracks the children of an execution that have not ended."""

from runnel.cli.session.run_locally import UnfinishedChildren
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
    children = UnfinishedChildren()

    for execution_id in (ROOT, CHILD, GRANDCHILD):
        children.update(created(execution_id))
    both = children.list_children(ROOT)
    children.update(finished(ROOT))
    children.update(finished(CHILD))
    below_child = children.list_children(CHILD)
    children.update(finished(GRANDCHILD))

    assert (both, below_child) == ([CHILD, GRANDCHILD], [GRANDCHILD])
    assert not children.has_any(ROOT)


def test_children_of_different_trees_are_kept_apart() -> None:
    children = UnfinishedChildren()
    other = ExecutionId("s.kid.1")

    children.add(CHILD)
    children.add(other)
    children.remove(CHILD)

    assert not children.has_any(ROOT)
    assert children.list_children(ExecutionId("s")) == [other]


def test_the_end_of_an_unknown_child_is_ignored() -> None:
    children = UnfinishedChildren()

    children.update(finished(CHILD))

    assert children.list_children(ROOT) == []
