"""One reader of the feed notifies all listeners, and it reads only while a listener exists."""

import asyncio
from collections.abc import Sequence

import pytest

from runnel.backends.memory import MemoryBackend
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.errors import StoreError
from runnel.notify.event_bus import EventBus
from runnel.notify.feed_reader import BUFFERED_CHANGES_MAX, FeedReader
from runnel.ports.feed import FeedPage, FeedPosition
from runnel.testing.clock import FakeClock, FakeIds, settle
from runnel.testing.conformance.feed import make_changes
from runnel.testing.conformance.suite import LeaseOwner, make_header

FIRST, SECOND = ExecutionId("x1"), ExecutionId("x2")


class FeedThatFails:
    """A feed that counts its concurrent reads; each call raises while `is_away`."""

    def __init__(self, backend: MemoryBackend) -> None:
        self._feed = backend.feed
        self.is_away = False
        self.readers = 0

    async def end(self) -> FeedPosition:
        self._check()
        return await self._feed.end()

    async def read(self, after: FeedPosition, *, limit: int, wait_s: float) -> FeedPage:
        self._check()
        self.readers += 1
        try:
            return await self._feed.read(after, limit=limit, wait_s=wait_s)
        finally:
            self.readers -= 1

    def _check(self) -> None:
        if self.is_away:
            raise StoreError("away")


class FeedReaderHarness:
    """A store with one partition owner, and a broadcaster that reads its feed."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.backend = MemoryBackend(self.clock, FakeIds())
        self.feed = FeedThatFails(self.backend)
        self.feed_reader = FeedReader(self.feed, self.clock, EventBus())
        self._owner: LeaseOwner | None = None

    async def change(self, *ids: str, state: ExecutionState | None = None) -> None:
        """Commits a change of each execution and lets the feed reader read it."""
        if self._owner is None:
            self._owner = LeaseOwner(self.backend.store, await self.backend.store.acquire(0, "one"))
        headers = [] if state is None else [make_header(id_, state=state) for id_ in ids]
        await self._owner.commit(make_changes(*ids, headers=headers))
        await settle()

    async def trim_feed(self) -> None:
        """Trims the feed, so that changes that were not read are lost."""
        self.backend.state.change_log.trim(1_000_000)


@pytest.fixture
def harness() -> FeedReaderHarness:
    return FeedReaderHarness()


def ids_of(page: FeedPage) -> Sequence[str]:
    return [change.execution_id for change in page.changes]


# -- listeners of one execution ----------------------------------------------------------------


async def test_a_listener_is_notified_only_of_its_execution(
    harness: FeedReaderHarness,
) -> None:
    async with (
        harness.feed_reader.listen(FIRST) as first,
        harness.feed_reader.listen(SECOND) as second,
    ):
        await settle()
        first.clear()
        second.clear()

        await harness.change(FIRST)

        assert (first.is_set(), second.is_set()) == (True, False)


async def test_any_number_of_listeners_share_one_reader(harness: FeedReaderHarness) -> None:
    async with (
        harness.feed_reader.listen(FIRST) as first,
        harness.feed_reader.listen(FIRST) as second,
        harness.feed_reader.open_subscription() as subscription,
    ):
        await settle()
        first.clear()
        second.clear()

        await harness.change(FIRST)

        assert first.is_set()
        assert second.is_set()
        assert ids_of(await subscription.next(wait_s=0)) == [FIRST]
        assert harness.feed.readers == 1


async def test_the_feed_is_read_only_while_a_listener_exists(harness: FeedReaderHarness) -> None:
    before = harness.feed.readers
    async with harness.feed_reader.listen(FIRST):
        async with harness.feed_reader.listen(SECOND):
            await settle()
        during = harness.feed.readers
    after = harness.feed.readers

    assert (before, during, after) == (0, 1, 0)


async def test_a_later_listener_is_notified_too(harness: FeedReaderHarness) -> None:
    async with harness.feed_reader.listen(FIRST):
        await settle()
    async with harness.feed_reader.listen(FIRST) as wakeup:
        await settle()
        wakeup.clear()

        await harness.change(FIRST)

        assert wakeup.is_set()


async def test_a_listener_is_woken_once_the_reader_has_started(
    harness: FeedReaderHarness,
) -> None:
    async with harness.feed_reader.listen(FIRST) as wakeup:
        was_set = wakeup.is_set()
        await settle()

        assert (was_set, wakeup.is_set()) == (False, True)


async def test_a_listener_for_ends_is_notified_only_of_the_end(harness: FeedReaderHarness) -> None:
    wakeup = asyncio.Event()
    async with harness.feed_reader.listen(FIRST, wakeup, ends_only=True):
        await settle()
        wakeup.clear()

        await harness.change(FIRST)
        await harness.change(FIRST, state=ExecutionState.RUNNING)
        was_set = wakeup.is_set()
        await harness.change(FIRST, state=ExecutionState.FAILED)

        assert (was_set, wakeup.is_set()) == (False, True)


async def test_a_gap_wakes_all_listeners(harness: FeedReaderHarness) -> None:
    ended = asyncio.Event()
    async with (
        harness.feed_reader.listen(FIRST) as wakeup,
        harness.feed_reader.listen(SECOND, ended, ends_only=True),
        harness.feed_reader.open_subscription() as subscription,
    ):
        await settle()
        harness.feed.is_away = True
        await harness.change("x3")
        await subscription.next(wait_s=0)
        wakeup.clear()
        ended.clear()
        await harness.change("x4")
        await harness.trim_feed()
        harness.feed.is_away = False

        await harness.clock.advance(10)

        assert wakeup.is_set()
        assert ended.is_set()
        assert (await subscription.next(wait_s=0)).has_gap


# -- an unreachable store ----------------------------------------------------------------------


async def test_changes_during_an_outage_of_the_store_are_delivered_afterwards(
    harness: FeedReaderHarness,
) -> None:
    async with harness.feed_reader.open_subscription() as subscription:
        harness.feed.is_away = True
        await harness.change("x1")
        await harness.change("x2")
        first = await subscription.next(wait_s=0)
        empty = await subscription.next(wait_s=0)
        harness.feed.is_away = False
        await harness.clock.advance(10)
        second = await subscription.next(wait_s=0)

    assert [ids_of(first), ids_of(empty), ids_of(second)] == [["x1"], [], ["x2"]]
    assert not second.has_gap


async def test_a_listener_that_starts_during_an_outage_is_woken_afterwards(
    harness: FeedReaderHarness,
) -> None:
    harness.feed.is_away = True
    async with harness.feed_reader.listen(FIRST) as wakeup:
        await harness.clock.advance(10)
        was_set = wakeup.is_set()
        harness.feed.is_away = False

        await harness.clock.advance(10)

        assert (was_set, wakeup.is_set()) == (False, True)


# -- subscriptions to all executions -----------------------------------------------------------


async def test_a_subscription_gets_all_later_changes_in_order(
    harness: FeedReaderHarness,
) -> None:
    await harness.change("x0")
    async with harness.feed_reader.open_subscription() as subscription:
        assert subscription.position == await harness.feed.end()
        await harness.change("x1", "x2")
        await harness.change("x3")

        assert ids_of(await subscription.next(wait_s=0)) == ["x1", "x2"]
        assert ids_of(await subscription.next(wait_s=0)) == ["x3"]
        assert subscription.position == await harness.feed.end()


async def test_next_waits_for_a_change_at_most_as_long_as_requested(
    harness: FeedReaderHarness,
) -> None:
    async with (
        harness.feed_reader.open_subscription() as subscription,
        asyncio.TaskGroup() as group,
    ):
        waiting = group.create_task(subscription.next(wait_s=5))
        await harness.clock.advance(4.9)
        was_done = waiting.done()
        await harness.clock.advance(0.2)
        later = group.create_task(subscription.next(wait_s=5))
        await settle()
        await harness.change("x1")

    assert (was_done, ids_of(waiting.result()), ids_of(later.result())) == (False, [], ["x1"])


async def test_closing_a_subscription_ends_its_wait(
    harness: FeedReaderHarness,
) -> None:
    async with (
        harness.feed_reader.open_subscription() as subscription,
        asyncio.TaskGroup() as group,
    ):
        waiting = group.create_task(subscription.next(wait_s=60))
        await settle()
        subscription.close()
        await settle()
        was_done = waiting.done()
        await harness.change("x1")

        assert (was_done, ids_of(waiting.result())) == (True, [])
        assert [ids_of(await subscription.next(wait_s=60)) for _ in range(2)] == [["x1"], []]


async def test_a_slow_subscription_gets_a_gap_and_then_later_changes(
    harness: FeedReaderHarness,
) -> None:
    ids = [f"x{number}" for number in range(1_000)]
    async with harness.feed_reader.open_subscription() as slow:
        for _ in range(BUFFERED_CHANGES_MAX // len(ids) + 1):
            await harness.change(*ids)
        end = await harness.feed.end()
        await harness.change("y")

        page = await slow.next(wait_s=0)

        assert (page.has_gap, page.position) == (True, end)
        assert ids_of(await slow.next(wait_s=0)) == ["y"]


async def test_a_new_subscription_continues_after_the_given_position(
    harness: FeedReaderHarness,
) -> None:
    async with harness.feed_reader.open_subscription() as subscription:
        await harness.change("x1", "x2", "x3")
        page = await subscription.next(wait_s=0)
    await harness.change("x4")
    async with harness.feed_reader.open_subscription(after=page.changes[0].position) as resumed:
        await harness.change("x5")

        received: list[str] = []
        while (page := await resumed.next(wait_s=0)).changes:
            received += ids_of(page)
        await harness.change("x6")
        received += ids_of(await resumed.next(wait_s=0))

    assert received == ["x2", "x3", "x4", "x5", "x6"]


async def test_a_subscription_that_catches_up_gets_each_change_once(
    harness: FeedReaderHarness,
) -> None:
    """Changes continue while the subscription catches up."""
    async with harness.feed_reader.open_subscription() as live:
        start = live.position
        for number in range(30):
            await harness.change(f"a{number}", f"b{number}")
        async with harness.feed_reader.open_subscription(after=start) as resumed:
            received: list[str] = []
            for number in range(30, 60):
                if number % 3 == 0:
                    received += ids_of(await resumed.next(wait_s=0))
                await harness.change(f"a{number}", f"b{number}")
            while (page := await resumed.next(wait_s=0)).changes:
                received += ids_of(page)

    assert received == [f"{letter}{number}" for number in range(60) for letter in "ab"]


async def test_a_subscription_that_reads_ahead_gets_each_change_once(
    harness: FeedReaderHarness,
) -> None:
    async with harness.feed_reader.open_subscription() as live:
        start = live.position
        harness.feed.is_away = True
        await harness.change("x1")
        await harness.change("x2")
        async with harness.feed_reader.open_subscription(after=start) as resumed:
            harness.feed.is_away = False
            received = list(ids_of(await resumed.next(wait_s=0)))
            received += ids_of(await resumed.next(wait_s=0))
            await harness.change("x3")
            await harness.clock.advance(10)
            await harness.change("x4")
            while (page := await resumed.next(wait_s=0)).changes:
                received += ids_of(page)

    assert received == ["x1", "x2", "x3", "x4"]


async def test_a_position_that_was_trimmed_gives_a_gap(harness: FeedReaderHarness) -> None:
    start = await harness.feed.end()
    await harness.change("x1")
    await harness.trim_feed()
    await harness.change("x2")

    async with harness.feed_reader.open_subscription(after=start) as resumed:
        page = await resumed.next(wait_s=0)
        await harness.change("x3")

        assert page.has_gap
        assert ids_of(await resumed.next(wait_s=0)) == ["x3"]


async def test_cancelling_the_wait_for_a_change_loses_nothing(harness: FeedReaderHarness) -> None:
    async with (
        harness.feed_reader.open_subscription() as subscription,
        asyncio.TaskGroup() as group,
    ):
        waiting = group.create_task(subscription.next(wait_s=60))
        await settle()
        waiting.cancel()
        await harness.change("x1")

        assert ids_of(await subscription.next(wait_s=0)) == ["x1"]
