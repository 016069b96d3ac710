"""A batch larger than a commit is split where nothing can be lost, and nothing is left out."""

import msgspec
import pytest

from runnel.core.codec import decode_entry, encode_events, join_entry
from runnel.core.commands import CancelExecution
from runnel.core.effects import (
    ClearTimer,
    DeadLetter,
    Decision,
    DropTask,
    Effect,
    IssueTask,
    PutDeadLetter,
    SetTimer,
    TimerKey,
)
from runnel.core.events import (
    AnyEvent,
    ExecutionFinished,
    NodeCancelled,
    NodeCompleted,
    NodeFailed,
    NodeSkipped,
)
from runnel.core.ids import NO_ITEM, ExecutionId, NodeId, Nonce, TaskToken
from runnel.core.run_when import SkipReason
from runnel.core.states import ExecutionState
from runnel.core.values import NULL, make_inline_value
from runnel.engine.orchestrator.batch import CommitBatch, build_header, encode_parts
from runnel.errors import PayloadError
from runnel.ports.store import Commit, CommitLimits, InboxPosition
from tests.core_driver import PERMANENT, CoreDriver, make_node, make_workflow

FIELDS = (
    "histories",
    "headers",
    "closed",
    "tasks",
    "dropped",
    "timers_set",
    "timers_cleared",
    "messages",
    "dead_letters",
)


def token(number: int) -> TaskToken:
    return TaskToken(ExecutionId("e1"), NodeId(f"n{number}"), NO_ITEM, 1, Nonce("n"))


def full_batch(limits: CommitLimits) -> CommitBatch:
    """Returns a batch with three of everything that a commit may hold."""
    driver = CoreDriver(make_workflow(*(make_node(f"n{number}") for number in range(3)))).start()
    batch = CommitBatch(1.0, limits)
    letter = DeadLetter(
        token=token(0),
        queue="q",
        handler="h",
        config=msgspec.Raw(b"{}"),
        error=PERMANENT,
        reason="r",
        rejected_at=1.0,
    )
    finished = ExecutionFinished(state=ExecutionState.COMPLETED, output=NULL)
    for number, task in enumerate(driver.tasks.values()):
        due, cleared = (TimerKey(ExecutionId("e1"), NodeId(f"{letter}{number}")) for letter in "ab")
        effects: list[Effect] = [
            IssueTask(task),
            DropTask(token(number + 100)),
            SetTimer(due, 5.0, 1),
            ClearTimer(cleared),
            PutDeadLetter(letter),
        ]
        batch.add(f"x{number}", Decision(events=[finished], effects=effects), driver.root)
        batch.headers.append(build_header(driver.root))
        batch.closed[f"limit:{number}"] = None
        batch.messages.append(CancelExecution(execution_id=ExecutionId(f"y{number}")))
    batch.consumed = InboxPosition("7")
    return batch


def rows(commits: list[Commit]) -> dict[str, list[object]]:
    return {
        name: sorted((row for commit in commits for row in getattr(commit, name)), key=repr)
        for name in FIELDS
    }


@pytest.mark.parametrize("writes", [2, 3, 5, 1_000])
def test_the_commits_of_a_split_batch_together_equal_a_single_one(writes: int) -> None:
    [single] = full_batch(CommitLimits()).seal(1)

    commits = list(full_batch(CommitLimits(writes=writes)).seal(1))

    assert rows(commits) == rows([single])
    assert all(commit.writes <= writes for commit in commits)
    assert [commit.sequence for commit in commits] == list(range(1, len(commits) + 1))


def test_only_the_last_commit_of_a_batch_consumes_the_inbox() -> None:
    *before, last = full_batch(CommitLimits(writes=4)).seal(1)

    assert {commit.consumed for commit in before} == {None}
    assert last.consumed == InboxPosition("7")


def test_messages_are_written_before_rows_that_recovery_can_not_repeat() -> None:
    first, *later = full_batch(CommitLimits(writes=3)).seal(1)

    assert len(first.messages) == 3
    assert not any(commit.messages for commit in later)


def failed(item: int = NO_ITEM) -> NodeFailed:
    return NodeFailed(node=NodeId("each"), item=item, error=PERMANENT)


def cancelled(name: str, item: int = NO_ITEM) -> NodeCancelled:
    return NodeCancelled(node=NodeId(name), item=item, reason="r")


def skipped(name: str) -> NodeSkipped:
    return NodeSkipped(node=NodeId(name), reason=SkipReason.CONDITION_FALSE)


@pytest.mark.parametrize(
    "runs",
    [
        [[skipped("a")], [skipped("b")], [skipped("c")]],
        [
            [skipped("a")],
            [skipped("b"), failed(0), cancelled("each", 1), cancelled("each", 2), failed()],
            [skipped("z")],
        ],
        [[cancelled("a")], [cancelled("b")], [cancelled("c")]],
    ],
    ids=["nodes by themselves", "a map with its items", "cancelled nodes"],
)
def test_events_are_split_only_where_recovery_derives_the_rest(runs: list[list[AnyEvent]]) -> None:
    events = [event for run in runs for event in run]
    size_max = max(len(encode_events(run)) for run in runs)

    parts = encode_parts(events, size_max)

    assert [list(decode_entry(join_entry(1.0, [part])).events) for part in parts] == runs


def test_a_single_step_larger_than_a_commit_is_refused() -> None:
    large = NodeCompleted(node=NodeId("a"), output=make_inline_value("x" * 1_000))

    with pytest.raises(PayloadError, match=r"takes 1,1\d\d bytes to store, at most 500"):
        encode_parts([skipped("b"), large], 500)
