"""Attempts derived from the history, including lost workers and waits."""

from collections.abc import Sequence

from runnel.core import events as e
from runnel.core.ids import NodeId, Nonce
from runnel.core.retry import ErrorInfo
from runnel.core.values import NULL
from runnel.views import Timestamp
from runnel.views.node import AttemptOutcome, AttemptView, TimedEvent, build_attempts

A = NodeId("a")
ERROR = ErrorInfo("ValueError", "no")


def told(*events: e.AnyEvent) -> Sequence[AttemptView]:
    """Returns the attempts of events that happen at seconds 1, 2, 3 and so on."""
    happened = [TimedEvent(float(at), event) for at, event in enumerate(events, start=1)]
    return build_attempts(happened)


def queued(attempt: int, *, item: int = -1) -> e.NodeQueued:
    return e.NodeQueued(node=A, item=item, attempt=attempt, nonce=Nonce("n"))


def test_a_lost_attempt_says_who_lost_it_and_when_the_next_is_due() -> None:
    lost, again = told(
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
    first, second = told(
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


def test_a_concurrency_key_is_waited_for_before_the_attempt() -> None:
    [attempt] = told(
        e.NodeWaits(node=A, wait=e.Wait.LIMIT, detail="key", attempt=1, nonce=Nonce("n")),
        queued(1),
    )

    assert (attempt.number, attempt.outcome, attempt.queued_at) == (1, AttemptOutcome.QUEUED, 2.0)


def test_a_crash_loop_fails_the_node_and_not_the_attempt_that_was_lost() -> None:
    [attempt] = told(
        queued(1),
        e.TaskWasLost(node=A, reason="its worker died", was_started=True),
        e.NodeFailed(node=A, error=ERROR),
    )

    assert (attempt.outcome, attempt.error, attempt.finished_at) == (AttemptOutcome.LOST, None, 2.0)


def test_a_cancelled_attempt_says_why() -> None:
    [attempt] = told(queued(1), e.NodeCancelled(node=A, reason="by request"))

    assert (attempt.outcome, attempt.reason) == (AttemptOutcome.CANCELLED, "by request")


def test_items_have_attempts_of_their_own_and_a_skipped_node_has_none() -> None:
    assert not told(queued(1, item=3), e.NodeFailed(node=A, item=3, error=ERROR))
    assert not told(e.NodeCancelled(node=A, reason="never began"))
