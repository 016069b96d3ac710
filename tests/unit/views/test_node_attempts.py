"""Attempts are built from the history of a node, also after a crash or a wait."""

from collections.abc import Sequence

from runnel.core import events as e
from runnel.core.ids import NodeId, Nonce
from runnel.core.retry import ErrorInfo
from runnel.core.values import NULL
from runnel.views import Timestamp
from runnel.views.node import AttemptOutcome, AttemptView, TimedEvent, build_attempts

A = NodeId("a")
ERROR = ErrorInfo("ValueError", "no")


def build_from(*events: e.AnyEvent) -> Sequence[AttemptView]:
    """Builds the attempts from events that happen one per second, the first at 1 s."""
    timed = [TimedEvent(float(at), event) for at, event in enumerate(events, start=1)]
    return build_attempts(timed)


def queued(attempt: int, *, item: int = -1) -> e.NodeQueued:
    return e.NodeQueued(node=A, item=item, attempt=attempt, nonce=Nonce("n"))


def test_a_lost_attempt_has_its_worker_a_reason_and_the_time_of_the_next() -> None:
    lost, again = build_from(
        queued(1),
        e.NodeStarted(node=A, worker="w", started_at=1.5),
        e.TaskWasLost(node=A, reason="its worker died", was_started=True),
        e.NodeWaits(node=A, wait=e.Wait.CRASH, due=9.0, detail="1 process died with it"),
        queued(2),
    )

    assert lost == AttemptView(
        number=1,
        outcome=AttemptOutcome.LOST,
        worker="w",
        queued_at=Timestamp(1.0),
        started_at=Timestamp(1.5),
        finished_at=Timestamp(3.0),
        reason="its worker died",
        next_at=Timestamp(9.0),
    )
    assert again == AttemptView(number=2, outcome=AttemptOutcome.QUEUED, queued_at=Timestamp(5.0))


def test_a_rate_limit_defers_an_attempt() -> None:
    first, second = build_from(
        queued(1),
        e.NodeWaits(node=A, wait=e.Wait.RATE_LIMIT, due=8.0, detail="rate limit"),
        queued(2),
        e.NodeCompleted(node=A, output=NULL, worker="w", started_at=3.5),
    )

    assert (first.outcome, first.reason, first.next_at) == (
        AttemptOutcome.DEFERRED,
        "rate limit",
        8.0,
    )
    assert (second.outcome, second.worker, second.started_at) == (
        AttemptOutcome.COMPLETED,
        "w",
        3.5,
    )


def test_an_attempt_begins_after_the_wait_for_a_concurrency_key() -> None:
    [attempt] = build_from(
        e.NodeWaits(node=A, wait=e.Wait.LIMIT, detail="key", attempt=1, nonce=Nonce("n")),
        queued(1),
    )

    assert (attempt.number, attempt.outcome, attempt.queued_at) == (1, AttemptOutcome.QUEUED, 2.0)


def test_a_crash_loop_fails_the_node_and_not_the_attempt_that_was_lost() -> None:
    [attempt] = build_from(
        queued(1),
        e.TaskWasLost(node=A, reason="its worker died", was_started=True),
        e.NodeFailed(node=A, error=ERROR),
    )

    assert (attempt.outcome, attempt.error, attempt.finished_at) == (AttemptOutcome.LOST, None, 2.0)


def test_a_cancelled_attempt_has_a_reason() -> None:
    [attempt] = build_from(queued(1), e.NodeCancelled(node=A, reason="by request"))

    assert (attempt.outcome, attempt.reason) == (AttemptOutcome.CANCELLED, "by request")


def test_map_items_and_a_node_that_never_began_add_no_attempts() -> None:
    assert not build_from(queued(1, item=3), e.NodeFailed(node=A, item=3, error=ERROR))
    assert not build_from(e.NodeCancelled(node=A, reason="never began"))
