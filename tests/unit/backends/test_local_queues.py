"""A dropped task is removed from its queue, even if no worker serves that queue."""

from runnel.backends.local.task_board import TaskBoard
from runnel.testing.conformance.suite import make_task, make_token


def test_a_dropped_task_is_removed_from_a_queue_without_workers() -> None:
    board = TaskBoard(lambda _partition, _command: None)
    for node in ("a", "b", "c"):
        board.issue(0, make_task(node, queue="unserved"))

    board.drop(make_token("a"))
    remaining = len(board.ready)
    board.drop_partition(0)

    assert (remaining, len(board.ready)) == (2, 0)


def test_the_tasks_around_a_dropped_one_keep_their_order() -> None:
    board = TaskBoard(lambda _partition, _command: None)
    for node in ("a", "b", "c"):
        board.issue(0, make_task(node))

    board.drop(make_token("b"))

    assert [entry.task.token for entry in board.ready.pop(None, 9)] == [
        make_token("a"),
        make_token("c"),
    ]
    assert len(board.ready) == 0
