"""The archiver archives each commit once, reports failures, and removes archived data from the
store.
"""

import asyncio
import logging

from runnel.core.codec import encode_entry
from runnel.core.events import NodeCompleted
from runnel.core.ids import NodeId
from runnel.core.values import make_blob_reference
from runnel.engine.services.archiver import (
    BATCH_COMMITS_MAX,
    RESENT_COMMANDS_MAX,
    TRANSACTION_BYTES_MAX,
)
from runnel.errors import FencedError, StoreError
from runnel.ports import telemetry as names
from runnel.ports.journal import JournalEntry, PendingCommand
from runnel.ports.store import HistoryRecord, InboxPosition
from runnel.telemetry.logs import get_level
from runnel.testing.conformance.suite import make_message
from tests.unit.engine.services.archiver_harness import LEASE, ArchiverHarness


async def test_commits_are_archived_in_order_and_then_trimmed() -> None:
    bench = ArchiverHarness()
    bench.journal.add(BATCH_COMMITS_MAX + 5)

    counts = [await bench.archiver.tick() for _ in range(3)]

    assert counts == [BATCH_COMMITS_MAX, 5, 0]
    assert bench.ledger.archived == list(range(1, BATCH_COMMITS_MAX + 6))
    assert bench.journal.entries == []


async def test_archived_commits_that_a_rollback_restored_are_trimmed_and_not_archived() -> None:
    bench = ArchiverHarness()
    bench.ledger.archived = [1, 2, 3]
    bench.journal.add(2)

    assert await bench.archiver.tick() == 0
    assert bench.journal.entries == []
    assert bench.ledger.archived == [1, 2, 3]


async def test_after_a_failure_the_position_of_the_archive_is_queried_again() -> None:
    bench = ArchiverHarness()
    bench.journal.add(2)
    bench.ledger.problem = StoreError("gone")
    await bench.ticks(1)
    # The reply was lost, the transaction was not.
    bench.ledger.problem, bench.ledger.archived = None, [1, 2]
    bench.journal.add(1)

    await bench.ticks(1)

    assert bench.ledger.archived == [1, 2, 3]


async def test_a_late_archive_is_reported_at_intervals_and_its_end_once() -> None:
    bench = ArchiverHarness()
    bench.journal.add(1)
    bench.ledger.problem = StoreError("gone")

    await bench.ticks(26)
    late = list(bench.telemetry.events)
    bench.ledger.problem = None
    await bench.ticks(2)

    assert late == [names.ARCHIVE_LATE, names.ARCHIVE_LATE]
    assert bench.telemetry.events == [*late, names.ARCHIVE_CAUGHT_UP]


async def test_a_gap_in_the_journal_is_reported_and_nothing_is_archived() -> None:
    bench = ArchiverHarness()
    bench.journal.add(3)
    await bench.journal.trim(LEASE, upto=2)

    await bench.ticks(12)

    assert bench.telemetry.events == [names.ARCHIVE_GAP]
    assert bench.ledger.archived == []


async def test_a_gap_that_the_archive_disproves_is_not_reported() -> None:
    """A former owner archives and deletes commits after this archiver has read the cursor."""
    bench = ArchiverHarness()
    bench.journal.add(1)
    await bench.ticks(1)
    bench.journal.add(5)
    bench.ledger.archived = [1, 2, 3]
    bench.journal.entries = [JournalEntry(sequence=number, histories=()) for number in (4, 5)]
    await bench.clock.advance(60)

    await bench.ticks(2)

    assert bench.ledger.archived == [1, 2, 3, 4, 5]
    assert bench.telemetry.events == []


async def test_an_owner_that_was_fenced_off_while_it_was_paused_stops_quietly() -> None:
    bench = ArchiverHarness()
    await bench.ticks(1)
    bench.journal.problem = FencedError(0, held="epoch 3", current="epoch 4")
    await bench.clock.advance(60)

    await bench.ticks(2)
    bench.leases = []
    await bench.ticks(20)

    assert bench.telemetry.events == []


async def test_a_bug_with_one_partition_does_not_end_the_others() -> None:
    bench = ArchiverHarness()
    bench.journal.add(1)
    bench.ledger.problem = RuntimeError("a bug")

    await bench.ticks(12)
    bench.ledger.problem = None
    await bench.ticks(1)

    assert bench.telemetry.events == [names.ARCHIVE_LATE, names.ARCHIVE_CAUGHT_UP]
    assert bench.ledger.archived == [1]


async def test_an_entry_of_a_later_version_is_archived_without_its_blobs() -> None:
    bench = ArchiverHarness()
    bench.journal.add(1, HistoryRecord(aggregate_id="x1", entry=b'[99,1.0,[{"blob":"x"}]]'))

    await bench.archiver.tick()

    assert bench.ledger.archived == [1]
    assert bench.telemetry.events == []


async def test_the_last_commits_are_archived_after_the_partition_was_released() -> None:
    bench = ArchiverHarness()
    stop = asyncio.Event()

    async with asyncio.TaskGroup() as group:
        group.create_task(bench.archiver.run(stop))
        await bench.clock.wait_for_sleeper()
        bench.journal.add(BATCH_COMMITS_MAX + 1)
        bench.leases = []
        stop.set()

    assert len(bench.ledger.archived) == BATCH_COMMITS_MAX + 1


async def test_a_full_batch_is_followed_by_the_next_without_a_pause() -> None:
    bench = ArchiverHarness()
    stop = asyncio.Event()
    bench.journal.add(2 * BATCH_COMMITS_MAX + 1)

    async with asyncio.TaskGroup() as group:
        group.create_task(bench.archiver.run(stop))
        await bench.clock.wait_for_sleeper()
        archived = len(bench.ledger.archived)
        stop.set()

    assert archived == 2 * BATCH_COMMITS_MAX + 1


async def test_a_former_owner_reports_nothing() -> None:
    bench = ArchiverHarness()
    bench.journal.add(1)
    bench.ledger.problem = FencedError(0, held="epoch 3", current="epoch 4")

    await bench.ticks(3)

    assert bench.telemetry.events == []


async def test_blobs_are_archived_before_the_events_that_name_them() -> None:
    bench = ArchiverHarness()
    await bench.hot.put("x1/a", b"large")
    event = NodeCompleted(node=NodeId("a"), output=make_blob_reference("x1/a", 5))
    missing_blob = NodeCompleted(node=NodeId("b"), output=make_blob_reference("x1/gone", 5))
    entry = encode_entry(1.0, [event, missing_blob])
    bench.journal.add(1, HistoryRecord(aggregate_id="x1", entry=entry))

    await bench.archiver.tick()

    assert await bench.cold.get("x1/a") == b"large"
    assert bench.telemetry.events == [names.STORE_FAILED]
    assert bench.ledger.archived == [1]


async def test_commands_without_effect_are_sent_again() -> None:
    bench = ArchiverHarness()
    await bench.archiver.tick()
    bench.ledger.lost = [PendingCommand(1, make_message("lost"))]

    await bench.ticks(4)
    assert bench.journal.resent == []
    await bench.ticks(2)

    assert bench.journal.resent == [make_message("lost")]
    assert bench.telemetry.events == [names.COMMAND_RESENT]


async def test_a_refused_commit_is_found_and_quarantined_alone() -> None:
    bench = ArchiverHarness()
    bench.journal.add(BATCH_COMMITS_MAX)
    bench.ledger.refused = {7, 8, 60}

    await bench.ticks(3)
    while bench.journal.entries:
        await bench.ticks(1)

    assert bench.ledger.archived == list(range(1, BATCH_COMMITS_MAX + 1))
    assert bench.telemetry.events == [names.ARCHIVE_SET_ASIDE] * 3


async def test_a_batch_that_takes_too_long_shrinks_and_then_grows_again() -> None:
    bench = ArchiverHarness()
    bench.journal.add(BATCH_COMMITS_MAX)
    bench.ledger.slow_above = 30

    await bench.ticks(5)
    bench.ledger.slow_above = BATCH_COMMITS_MAX
    await bench.ticks(3)

    assert bench.ledger.batches == [100, 50, 25, 32, 16, 21, 27, 11]
    assert bench.ledger.archived == list(range(1, BATCH_COMMITS_MAX + 1))


async def test_a_batch_has_a_bound_in_bytes() -> None:
    bench = ArchiverHarness()
    bench.journal.add(9, HistoryRecord(aggregate_id="x", entry=b"e" * (TRANSACTION_BYTES_MAX // 4)))

    counts = [await bench.archiver.tick() for _ in range(4)]

    assert counts == [4, 4, 1, 0]


async def test_unreadable_commands_are_reported_and_the_others_are_sent() -> None:
    bench = ArchiverHarness()
    bench.ledger.lost = [
        PendingCommand(1, None, "damaged"),
        PendingCommand(2, make_message("lost")),
        PendingCommand(3, None, "of format 99", is_newer=True),
    ]

    await bench.archiver.tick()

    assert bench.journal.resent == [make_message("lost")]
    assert bench.telemetry.events == [names.COMMAND_RESENT, *[names.MESSAGE_UNREADABLE] * 2]
    assert bench.ledger.marked == [1]


async def test_many_commands_are_sent_again_in_pages_without_a_pause() -> None:
    bench = ArchiverHarness()
    bench.ledger.lost = [
        PendingCommand(number, make_message("m")) for number in range(2 * RESENT_COMMANDS_MAX + 1)
    ]

    counts = []
    for _ in range(4):
        await bench.archiver.tick()
        counts.append(len(bench.journal.resent))

    assert counts == [100, 200, 201, 201]


async def test_a_failed_resend_is_reported_although_the_archive_is_up_to_date() -> None:
    bench = ArchiverHarness()
    bench.ledger.lost_problem = StoreError("PostgreSQL: no")

    await bench.ticks(8)
    bench.journal.add(1)
    await bench.ticks(8)

    assert bench.telemetry.events == [names.STORE_FAILED] * 2
    assert bench.ledger.archived == [1]


async def test_a_fenced_archiver_that_keeps_its_lease_is_reported_as_an_error() -> None:
    """Another Redis archives the same partition."""
    bench = ArchiverHarness()
    bench.journal.add(1)
    bench.ledger.problem = FencedError(0, held="epoch 3", current="epoch 4")

    await bench.ticks(13)

    assert bench.telemetry.events == [names.ARCHIVE_FENCED]
    assert get_level(names.ARCHIVE_FENCED) == logging.ERROR


async def test_finished_executions_are_forgotten_keep_s_after_they_were_archived() -> None:
    bench = ArchiverHarness()
    bench.journal.add(5)

    await bench.ticks(60)
    assert bench.journal.forgotten == []
    await bench.ticks(1)

    assert bench.journal.forgotten == [(5, InboxPosition("7-0"))]


async def test_nothing_is_forgotten_before_the_inbox_was_read() -> None:
    bench = ArchiverHarness()
    bench.journal.is_read = False
    bench.journal.add(5)
    await bench.ticks(63)
    requests = len(bench.journal.forgotten)
    bench.journal.is_read, bench.journal.left = True, 3

    await bench.ticks(2)
    bench.journal.left = 0
    await bench.ticks(1)

    assert requests == 3
    assert bench.journal.forgotten == [(5, InboxPosition("7-0"))] * 6
