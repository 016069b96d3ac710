"""The history of a busy key is compacted: its size depends on current holders and waiters only."""

from runnel.backends.sqlite.partition import COMPACT_BYTES_MIN, LimitHistories
from runnel.core.codec import encode_entry
from runnel.core.concurrency_key import replay_limit
from runnel.core.events import LimitEvent, LimitHeld, LimitQueued, LimitReleased
from runnel.ports.store import Commit, HistoryRecord
from runnel.testing.conformance.suite import LIMIT_ID, make_token


def test_the_history_of_a_key_that_is_never_free_does_not_grow() -> None:
    limits = LimitHistories()
    apply(limits, *(LimitQueued(holder=make_token(f"n{number}"), limit=1) for number in range(3)))

    for turn in range(2_000):
        holder = make_token(f"n{turn}")
        apply(limits, LimitHeld(holder=holder, limit=1))
        apply(limits, LimitReleased(holder=holder))
        apply(limits, LimitQueued(holder=make_token(f"n{turn + 3}"), limit=1))

    entries = limits.load(LIMIT_ID)
    limit = replay_limit("gpu", entries)
    assert sum(map(len, entries)) < 2 * COMPACT_BYTES_MIN
    assert list(limit.waiters) == [make_token(f"n{number}") for number in (2_000, 2_001, 2_002)]
    assert not limit.holders


def test_compaction_keeps_holders_and_the_order_of_waiters() -> None:
    limits = LimitHistories()
    many = [make_token(f"n{number}") for number in range(500)]
    for holder in many:
        apply(limits, LimitQueued(holder=holder, limit=2))
    for holder in many[:2]:
        apply(limits, LimitHeld(holder=holder, limit=2))

    limit = replay_limit("gpu", limits.load(LIMIT_ID))

    assert len(limits.load(LIMIT_ID)) < len(many)
    assert (list(limit.holders), list(limit.waiters)) == (many[:2], many[2:])


def apply(limits: LimitHistories, *events: LimitEvent) -> None:
    history = HistoryRecord(aggregate_id=LIMIT_ID, entry=encode_entry(1.0, events))
    limits.apply(Commit(sequence=1, histories=[history]))
