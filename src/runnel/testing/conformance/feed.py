"""Rules for the feed: each reader gets every change in order and at once, or is
notified of a gap.
"""

import asyncio
from collections.abc import Sequence

import pytest

from runnel.core.commands import CreateExecution
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.states import ExecutionState
from runnel.core.values import EMPTY_OBJECT
from runnel.errors import FencedError
from runnel.ports.feed import ExecutionChange, Feed, FeedPosition
from runnel.ports.store import Commit, ExecutionHeader, HistoryRecord, Mailbox, TimerRecord
from runnel.testing.clock import FakeClock
from runnel.testing.conformance.suite import (
    LIMIT_ID,
    READ_LIMIT,
    ConformanceFixtures,
    LeaseOwner,
    make_header,
    make_timer,
    take_over,
)
from runnel.testing.harness import Harness

PENDING, RUNNING = ExecutionState.PENDING, ExecutionState.RUNNING
COMPLETED = ExecutionState.COMPLETED
# A number of changes that is larger than one entry of the feed can hold.
MANY = 120


class FeedRules(ConformanceFixtures):
    async def test_the_end_of_the_feed_is_after_all_stored_changes(
        self, owner: LeaseOwner, feed: Feed
    ) -> None:
        await owner.commit(make_changes("x1"))
        end = await feed.end()

        await owner.commit(make_changes("x2"))

        assert await read_states(feed, end) == [("x2", None)]

    async def test_the_feed_of_an_empty_store_has_an_end(
        self, owner: LeaseOwner, feed: Feed
    ) -> None:
        end = await feed.end()
        page = await feed.read(end, limit=READ_LIMIT, wait_s=0)

        assert (list(page.changes), page.position, page.has_gap) == ([], end, False)
        assert await feed.end() == end

    async def test_a_commit_publishes_each_execution_once_with_the_state_of_its_header(
        self, owner: LeaseOwner, feed: Feed
    ) -> None:
        end = await feed.end()

        await owner.commit(
            make_changes("x1", "x1.child.1", headers=[make_header("x2"), make_header("x1")])
        )

        states = await read_states(feed, end)
        assert sorted(states) == [("x1", RUNNING), ("x1.child.1", None), ("x2", RUNNING)]

    @pytest.mark.parametrize("state", ExecutionState)
    async def test_each_state_is_published(
        self, owner: LeaseOwner, feed: Feed, state: ExecutionState
    ) -> None:
        end = await feed.end()

        await owner.commit(make_changes(headers=[make_header("x1", state=state)]))

        assert await read_states(feed, end) == [("x1", state)]

    async def test_a_submitted_execution_is_published_as_pending(
        self, mailbox: Mailbox, owner: LeaseOwner, feed: Feed
    ) -> None:
        end = await feed.end()

        await mailbox.send([make_creation("x1"), make_creation("x2")])

        assert await read_states(feed, end) == [("x1", PENDING), ("x2", PENDING)]

    async def test_a_running_execution_that_is_submitted_again_is_not_published_as_pending(
        self, mailbox: Mailbox, owner: LeaseOwner, feed: Feed
    ) -> None:
        await mailbox.send([make_creation("x1")])
        await owner.commit(make_changes(headers=[make_header("x1")]))
        end = await feed.end()

        await mailbox.send([make_creation("x1"), make_creation("x2")])

        assert await read_states(feed, end) == [("x2", PENDING)]

    async def test_a_child_that_a_commit_creates_is_published_as_pending(
        self, owner: LeaseOwner, feed: Feed
    ) -> None:
        end = await feed.end()

        await owner.commit(make_changes("x1", messages=[make_creation("x1.child.1")]))

        assert await read_states(feed, end) == [("x1", None), ("x1.child.1", PENDING)]

    async def test_concurrency_keys_and_timers_are_not_published(
        self, owner: LeaseOwner, feed: Feed
    ) -> None:
        end = await feed.end()

        await owner.commit(make_changes(LIMIT_ID, "x1"))
        await owner.commit(make_changes(LIMIT_ID, timers_set=[make_timer("a", due=1.0)]))

        assert await read_states(feed, end) == [("x1", None)]

    async def test_a_refused_commit_is_not_published(
        self, harness: Harness, owner: LeaseOwner, feed: Feed
    ) -> None:
        await take_over(harness, owner)
        end = await feed.end()

        with pytest.raises(FencedError):
            await owner.commit(make_changes("x1"))

        assert await read_states(feed, end) == []

    @pytest.mark.parametrize("limit", [1, 7, MANY])
    async def test_pages_keep_their_limit_and_miss_no_change(
        self, owner: LeaseOwner, feed: Feed, limit: int
    ) -> None:
        position = await feed.end()
        ids = [f"x{number:03}" for number in range(MANY)]
        await owner.commit(make_changes(*ids))
        await owner.commit(make_changes("y1"))
        await owner.commit(make_changes("y2"))

        changed: list[str] = []
        while (page := await feed.read(position, limit=limit, wait_s=0)).changes:
            assert len(page.changes) <= limit
            assert page.position == page.changes[-1].position
            changed += [change.execution_id for change in page.changes]
            position = page.position

        assert changed == [*ids, "y1", "y2"]
        assert position == await feed.end()

    async def test_reading_can_continue_after_any_change(
        self, owner: LeaseOwner, feed: Feed
    ) -> None:
        end = await feed.end()
        await owner.commit(make_changes("x1", "x2", "x3"))
        await owner.commit(make_changes("x4"))

        changes = await read_changes(feed, end)

        for number, change in enumerate(changes, start=1):
            assert await read_changes(feed, change.position) == changes[number:]

    async def test_a_waiting_feed_reader_gets_a_commit_at_once(
        self, owner: LeaseOwner, feed: Feed
    ) -> None:
        end = await feed.end()

        async with asyncio.TaskGroup() as group:
            readings = [group.create_task(read_states(feed, end, wait_s=60)) for _ in range(3)]
            await asyncio.sleep(0)
            await owner.commit(make_changes("x1"))

        assert [reading.result() for reading in readings] == 3 * [[("x1", None)]]

    async def test_a_waiting_feed_reader_gets_a_submit_at_once(
        self, mailbox: Mailbox, owner: LeaseOwner, feed: Feed
    ) -> None:
        end = await feed.end()

        async with asyncio.TaskGroup() as group:
            reading = group.create_task(read_states(feed, end, wait_s=60))
            await asyncio.sleep(0)
            await mailbox.send([make_creation("x1")])

        assert reading.result() == [("x1", PENDING)]

    async def test_a_feed_reader_waits_for_its_full_time(
        self, clock: FakeClock, owner: LeaseOwner, feed: Feed
    ) -> None:
        end = await feed.end()

        async with asyncio.TaskGroup() as group:
            reading = group.create_task(feed.read(end, limit=READ_LIMIT, wait_s=5))
            await clock.wait_for_sleeper()
            await clock.advance(4.9)
            was_done_early = reading.done()
            await clock.advance(0.2)
            page = await reading

        assert (was_done_early, list(page.changes), page.position) == (False, [], end)

    async def test_a_cancelled_read_of_the_feed_loses_nothing(
        self, clock: FakeClock, owner: LeaseOwner, feed: Feed
    ) -> None:
        end = await feed.end()
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(feed.read(end, limit=READ_LIMIT, wait_s=60))
            await clock.wait_for_sleeper()
            committing = group.create_task(owner.commit(make_changes("x1")))
            await asyncio.sleep(0)
            reading.cancel()
            await committing

        assert await read_states(feed, end) == [("x1", None)]

    async def test_a_position_that_is_too_old_is_a_gap(
        self, harness: Harness, owner: LeaseOwner, feed: Feed
    ) -> None:
        end = await feed.end()
        await owner.commit(make_changes("x1"))
        await owner.commit(make_changes("x2"))
        await harness.trim_feed()

        page = await feed.read(end, limit=READ_LIMIT, wait_s=60)

        assert (page.has_gap, list(page.changes)) == (True, [])
        assert page.position == await feed.end()
        await owner.commit(make_changes("x3"))
        assert await read_states(feed, page.position) == [("x3", None)]

    async def test_the_end_position_is_valid_after_all_earlier_entries_were_trimmed(
        self, harness: Harness, owner: LeaseOwner, feed: Feed
    ) -> None:
        await owner.commit(make_changes("x1"))
        await owner.commit(make_changes("x2"))
        end = await feed.end()
        await harness.trim_feed()

        await owner.commit(make_changes("x3"))

        assert await read_states(feed, end) == [("x3", None)]

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "no position",
            "1.1",
            "-1.0.0",
            "1.0.zz",
            "9" * 20 + ".1.0",
            "9" * 18 + ".1.0",
            "1-1.0.0",
            "é",
        ],
    )
    async def test_a_text_that_is_not_a_position_of_this_store_is_a_gap(
        self, owner: LeaseOwner, feed: Feed, text: str
    ) -> None:
        await owner.commit(make_changes("x1"))

        page = await feed.read(FeedPosition(text), limit=READ_LIMIT, wait_s=60)

        assert (page.has_gap, list(page.changes)) == (True, [])
        assert page.position == await feed.end()

    async def test_a_position_with_another_checksum_is_a_gap(
        self, owner: LeaseOwner, feed: Feed
    ) -> None:
        """A store that was replaced or rolled back has another entry under the same id."""
        await owner.commit(make_changes("x1"))
        entry, _, checksum = (await feed.end()).rpartition(".")
        other = FeedPosition(f"{entry}.{int(checksum, 16) ^ 1:x}")

        page = await feed.read(other, limit=READ_LIMIT, wait_s=0)

        assert page.has_gap

    async def test_no_change_is_missed_during_concurrent_commits_and_submits(
        self, mailbox: Mailbox, owner: LeaseOwner, feed: Feed
    ) -> None:
        start = await feed.end()
        ids = [f"x{number:02}" for number in range(40)]

        async def change() -> None:
            for first in range(0, len(ids), 8):
                batch = ids[first : first + 8]
                await mailbox.send([make_creation(execution_id) for execution_id in batch])
                await owner.commit(
                    make_changes(headers=[make_header(execution_id) for execution_id in batch])
                )
                await owner.commit(make_changes(*batch))
                ends = [make_header(execution_id, state=COMPLETED) for execution_id in batch]
                await owner.commit(make_changes(headers=ends))

        async def read(limit: int) -> list[tuple[str, ExecutionState | None]]:
            position, changes = start, list[tuple[str, ExecutionState | None]]()
            while len(changes) < 4 * len(ids):
                page = await feed.read(position, limit=limit, wait_s=60)
                assert not page.has_gap
                changes += [(change.execution_id, change.state) for change in page.changes]
                position = page.position
            return changes

        async with asyncio.TaskGroup() as group:
            readings = [group.create_task(read(limit)) for limit in (3, 50, READ_LIMIT)]
            group.create_task(change())

        first, *later = [reading.result() for reading in readings]
        assert later == [first, first]
        for expected_id in ids:
            states = [state for execution_id, state in first if execution_id == expected_id]
            assert states == [PENDING, RUNNING, None, COMPLETED]


def make_changes(
    *ids: str,
    headers: Sequence[ExecutionHeader] = (),
    messages: Sequence[CreateExecution] = (),
    timers_set: Sequence[TimerRecord] = (),
) -> Commit:
    """Builds a commit with one history entry per id."""
    histories = [
        HistoryRecord(aggregate_id=execution_id, entry=b"[1,1.0,[]]") for execution_id in ids
    ]
    return Commit(
        sequence=0,
        histories=histories,
        headers=headers,
        messages=messages,
        timers_set=timers_set,
    )


def make_creation(execution_id: str) -> CreateExecution:
    return CreateExecution(
        execution_id=ExecutionId(execution_id),
        workflow="w",
        definition=DefinitionHash("hash"),
        version=1,
        input=EMPTY_OBJECT,
        created_at=1.0,
    )


async def read_states(
    feed: Feed, after: FeedPosition, *, wait_s: float = 0
) -> list[tuple[str, ExecutionState | None]]:
    """Waits for the first change after the position and returns all changes; fails if there is a
    gap.
    """
    changes = await read_changes(feed, after, wait_s=wait_s)
    return [(change.execution_id, change.state) for change in changes]


async def read_changes(
    feed: Feed, after: FeedPosition, *, wait_s: float = 0
) -> list[ExecutionChange]:
    page = await feed.read(after, limit=READ_LIMIT, wait_s=wait_s)
    assert not page.has_gap
    return list(page.changes)
