"""Events change the progress of an execution, which is printed as sentences or frames."""

from runnel.cli.render.live_frames import build_frame
from runnel.cli.render.progress import ExecutionProgress, apply_events
from runnel.cli.render.sentences import describe_change, describe_outcome
from runnel.cli.session.hints import CommandHints
from runnel.core import events as e
from runnel.core.ids import NodeId, Nonce
from runnel.core.retry import ErrorInfo
from runnel.core.run_when import SkipReason
from runnel.core.states import ExecutionState, NodeState
from runnel.core.values import NULL
from tests.unit.cli.graphs import workflow

A, B = NodeId("a"), NodeId("b")
ERROR = ErrorInfo(type="ConnectionError", message="refused")


def progress(edges: dict[str, str] | None = None) -> ExecutionProgress:
    execution = ExecutionProgress("e1", workflow(edges or {"a": "", "b": "a"}))
    apply_events(execution, 10.0, [e.ExecutionStarted()])
    return execution


def queued(node: NodeId, attempt: int = 1) -> e.NodeQueued:
    return e.NodeQueued(node=node, attempt=attempt, nonce=Nonce("n"))


def describe_changes(execution: ExecutionProgress, now: float = 20.0) -> list[str]:
    lines, execution.changed = execution.changed, []
    return [describe_change(line, now) for line in lines]


def render_frame(
    execution: ExecutionProgress, *, now: float = 20.0, lines_max: int = 40
) -> list[str]:
    return [
        text.plain.rstrip()
        for text in build_frame(execution, now=now, hints=CommandHints(), lines_max=lines_max)
    ]


def test_a_node_is_reported_when_it_starts_and_when_it_completes() -> None:
    execution = progress()

    apply_events(execution, 11.0, [queued(A)])
    execution.start("a", 1, 11.5)
    apply_events(
        execution, 12.0, [e.NodeCompleted(node=A, output=NULL, started_at=11.5), queued(B)]
    )

    assert describe_changes(execution) == ["a: completed in 0.5 s", "a: completed in 0.5 s"]
    assert execution.counts[NodeState.COMPLETED] == 1
    assert execution.settled == 1


def test_a_start_that_arrives_before_the_queued_event_still_counts() -> None:
    execution = progress()

    execution.start("a", 1, 11.5)
    before = describe_changes(execution)
    apply_events(execution, 11.0, [queued(A)])

    assert (before, describe_changes(execution)) == ([], ["a: started"])
    assert execution.lines["a"].started_at == 11.5


def test_a_retry_shows_the_next_attempt_the_delay_and_the_error() -> None:
    execution = progress()

    apply_events(execution, 11.0, [queued(A), e.RetryPlanned(node=A, error=ERROR, due=22.5)])

    assert describe_changes(execution) == ["a: attempt 2 in 2.5 s, after ConnectionError: refused"]


def test_a_wait_after_crashes_shows_the_next_attempt_the_delay_and_the_reason() -> None:
    execution = progress()
    crashed = e.NodeWaits(
        node=A, wait=e.Wait.CRASH, due=45.0, detail="2 processes died while they held it"
    )

    apply_events(execution, 11.0, [queued(A, attempt=2), crashed])

    assert describe_changes(execution) == [
        "a: attempt 3 in 25 s, after 2 processes died while they held it"
    ]


def test_a_skipped_node_shows_the_reason() -> None:
    execution = progress()

    apply_events(execution, 11.0, [e.NodeSkipped(node=A, reason=SkipReason.CONDITION_FALSE)])

    assert describe_changes(execution) == ["a: skipped (condition is false)"]


def test_a_task_that_skips_itself_shows_its_own_reason() -> None:
    execution, by_itself = progress(), SkipReason.BY_ITSELF

    apply_events(
        execution, 11.0, [e.NodeSkipped(node=A, reason=by_itself, detail="no orders today")]
    )

    assert describe_changes(execution) == ["a: skipped (no orders today)"]


def test_an_item_that_skips_itself_counts_as_settled_in_its_map() -> None:
    execution = progress()
    skipped = e.NodeSkipped(node=A, item=0, reason=SkipReason.BY_ITSELF)

    apply_events(execution, 11.0, [e.MapStarted(node=A, count=2), skipped])

    assert describe_change(execution.lines["a"], 20.0) == "a: 1 of 2 items"
    assert execution.settled == 0


def test_closing_cancels_nodes_that_have_not_started() -> None:
    execution = progress()

    apply_events(execution, 11.0, [e.ExecutionClosing(outcome=ExecutionState.CANCELLED)])

    assert execution.counts[NodeState.CANCELLED] == 2


def test_a_map_counts_its_items_and_shows_a_bar() -> None:
    execution = progress()
    events = [e.NodeCompleted(node=A, item=i, output=NULL) for i in range(5)]

    apply_events(execution, 11.0, [e.MapStarted(node=A, count=10), *events])

    assert describe_change(execution.lines["a"], 20.0) == "a: 5 of 10 items"
    assert render_frame(execution)[1].endswith("━━━━━━━━━━────────── 5/10")


def test_a_node_that_waits_for_a_signal_shows_the_command_that_sends_it() -> None:
    execution = progress()

    apply_events(execution, 11.0, [e.NodeWaits(node=A, wait=e.Wait.SIGNAL, detail="approve")])

    lines = render_frame(execution)
    assert lines[1].endswith("waits for signal 'approve'")
    assert lines[2].strip() == "runnel signal e1 approve"


def test_a_pending_node_shows_the_parents_that_it_waits_for() -> None:
    assert render_frame(progress())[2].endswith("after a")


def test_a_large_graph_is_shown_as_counts_and_active_nodes() -> None:
    execution = progress({f"n{i}": "" for i in range(100)})
    apply_events(execution, 11.0, [queued(NodeId("n7")), queued(NodeId("n8"))])
    execution.start("n7", 1, 11.0)
    apply_events(execution, 12.0, [e.NodeFailed(node=NodeId("n8"), error=ERROR)])

    lines = render_frame(execution)

    assert lines[1].split() == ["·", "98", "pending", "●", "1", "running", "✗", "1", "failed"]
    assert "n8" in lines[2]
    assert "n7" in lines[3]
    assert len(lines) == 4


def test_the_outcome_is_one_line_with_the_error() -> None:
    execution = progress()
    error = ErrorInfo(type="ValueError", message="two\nlines")

    apply_events(execution, 13.0, [e.ExecutionFinished(state=ExecutionState.FAILED, error=error)])

    assert describe_outcome(execution, 99.0) == "test failed in 3.0 s: ValueError: two lines"
