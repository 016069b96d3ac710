"""One reader of the feed tells all who listen, and only as long as somebody does."""

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
    """Counts its reads; while `is_away`, and once for each of `failures`, a call raises."""

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
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.backend = MemoryBackend(self.clock, FakeIds())
        self.feed = FeedThatFails(self.backend)
        self.feed_reader = FeedReader(self.feed, self.clock, EventBus())
        self._owner: LeaseOwner | None = None

    async def change(self, *ids: str, state: ExecutionState | None = None) -> None:
        """Commits once, and waits until the feed reader has read the commit."""
        if self._owner is None:
            self._owner = LeaseOwner(self.backend.store, await self.backend.store.acquire(0, "one"))
        headers = [] if state is None else [make_header(each, state=state) for each in ids]
        await self._owner.commit(make_changes(*ids, headers=headers))
        await settle()

    async def forget(self) -> None:
        """What was not read yet is not known any more."""
        self.backend.state.change_log.trim(1_000_000)


@pytest.fixture
def stage() -> FeedReaderHarness:
    return FeedReaderHarness()


def ids_of(page: FeedPage) -> Sequence[str]:
    return [change.execution_id for change in page.changes]


# -- one execution -----------------------------------------------------------------------------


async def test_a_listener_is_told_of_its_execution_and_of_no_other(
    stage: FeedReaderHarness,
) -> None:
    async with stage.feed_reader.listen(FIRST) as first, stage.feed_reader.listen(SECOND) as second:
        await settle()
        first.clear()
        second.clear()

        await stage.change(FIRST)

        assert (first.is_set(), second.is_set()) == (True, False)


async def test_any_number_of_listeners_share_one_reader(stage: FeedReaderHarness) -> None:
    async with (
        stage.feed_reader.listen(FIRST) as one,
        stage.feed_reader.listen(FIRST) as two,
        stage.feed_reader.open_subscription() as all_,
    ):
        await settle()
        one.clear()
        two.clear()

        await stage.change(FIRST)

        assert one.is_set()
        assert two.is_set()
        assert ids_of(await all_.next(wait_s=0)) == [FIRST]
        assert stage.feed.readers == 1


async def test_nobody_reads_when_nobody_listens(stage: FeedReaderHarness) -> None:
    before = stage.feed.readers
    async with stage.feed_reader.listen(FIRST):
        async with stage.feed_reader.listen(SECOND):
            await settle()
        during = stage.feed.readers
    after = stage.feed.readers

    assert (before, during, after) == (0, 1, 0)


async def test_a_listener_who_comes_later_is_told_too(stage: FeedReaderHarness) -> None:
    async with stage.feed_reader.listen(FIRST):
        await settle()
    async with stage.feed_reader.listen(FIRST) as news:
        await settle()
        news.clear()

        await stage.change(FIRST)

        assert news.is_set()


async def test_who_listens_before_the_reader_has_begun_is_woken_to_look(
    stage: FeedReaderHarness,
) -> None:
    async with stage.feed_reader.listen(FIRST) as news:
        was_set = news.is_set()
        await settle()

        assert (was_set, news.is_set()) == (False, True)


async def test_who_listens_for_an_end_is_told_of_the_end_only(stage: FeedReaderHarness) -> None:
    news = asyncio.Event()
    async with stage.feed_reader.listen(FIRST, news, ends_only=True):
        await settle()
        news.clear()

        await stage.change(FIRST)
        await stage.change(FIRST, state=ExecutionState.RUNNING)
        was_set = news.is_set()
        await stage.change(FIRST, state=ExecutionState.FAILED)

        assert (was_set, news.is_set()) == (False, True)


async def test_a_gap_wakes_everybody(stage: FeedReaderHarness) -> None:
    ended = asyncio.Event()
    async with (
        stage.feed_reader.listen(FIRST) as news,
        stage.feed_reader.listen(SECOND, ended, ends_only=True),
        stage.feed_reader.open_subscription() as all_,
    ):
        await settle()
        stage.feed.is_away = True
        await stage.change("x3")
        await all_.next(wait_s=0)
        news.clear()
        ended.clear()
        await stage.change("x4")
        await stage.forget()
        stage.feed.is_away = False

        await stage.clock.advance(10)

        assert news.is_set()
        assert ended.is_set()
        assert (await all_.next(wait_s=0)).has_gap


# -- a store that is away ----------------------------------------------------------------------


async def test_what_happens_while_the_store_is_away_is_told_when_it_is_back(
    stage: FeedReaderHarness,
) -> None:
    async with stage.feed_reader.open_subscription() as all_:
        stage.feed.is_away = True
        await stage.change("x1")
        await stage.change("x2")
        first = await all_.next(wait_s=0)
        nothing = await all_.next(wait_s=0)
        stage.feed.is_away = False
        await stage.clock.advance(10)
        rest = await all_.next(wait_s=0)

    assert [ids_of(first), ids_of(nothing), ids_of(rest)] == [["x1"], [], ["x2"]]
    assert not rest.has_gap


async def test_a_store_that_is_away_when_somebody_begins_to_listen_is_waited_for(
    stage: FeedReaderHarness,
) -> None:
    stage.feed.is_away = True
    async with stage.feed_reader.listen(FIRST) as news:
        await stage.clock.advance(10)
        was_set = news.is_set()
        stage.feed.is_away = False

        await stage.clock.advance(10)

        assert (was_set, news.is_set()) == (False, True)


# -- all of them -------------------------------------------------------------------------------


async def test_all_changes_are_told_in_order_from_the_beginning_of_listening(
    stage: FeedReaderHarness,
) -> None:
    await stage.change("x0")
    async with stage.feed_reader.open_subscription() as all_:
        assert all_.position == await stage.feed.end()
        await stage.change("x1", "x2")
        await stage.change("x3")

        assert ids_of(await all_.next(wait_s=0)) == ["x1", "x2"]
        assert ids_of(await all_.next(wait_s=0)) == ["x3"]
        assert all_.position == await stage.feed.end()


async def test_a_listener_waits_for_the_next_change_as_long_as_it_said(
    stage: FeedReaderHarness,
) -> None:
    async with stage.feed_reader.open_subscription() as all_, asyncio.TaskGroup() as group:
        told = group.create_task(all_.next(wait_s=5))
        await stage.clock.advance(4.9)
        was_done = told.done()
        await stage.clock.advance(0.2)
        later = group.create_task(all_.next(wait_s=5))
        await settle()
        await stage.change("x1")

    assert (was_done, ids_of(told.result()), ids_of(later.result())) == (False, [], ["x1"])


async def test_a_listener_that_is_closed_is_kept_waiting_no_longer(
    stage: FeedReaderHarness,
) -> None:
    async with stage.feed_reader.open_subscription() as all_, asyncio.TaskGroup() as group:
        waiting = group.create_task(all_.next(wait_s=60))
        await settle()
        all_.close()
        await settle()
        was_done = waiting.done()
        await stage.change("x1")

        assert (was_done, ids_of(waiting.result())) == (True, [])
        assert [ids_of(await all_.next(wait_s=60)) for _ in range(2)] == [["x1"], []]


async def test_a_listener_that_is_too_slow_gets_a_gap_and_what_comes_then(
    stage: FeedReaderHarness,
) -> None:
    ids = [f"x{number}" for number in range(1_000)]
    async with stage.feed_reader.open_subscription() as slow:
        for _ in range(BUFFERED_CHANGES_MAX // len(ids) + 1):
            await stage.change(*ids)
        end = await stage.feed.end()
        await stage.change("y")

        page = await slow.next(wait_s=0)

        assert (page.has_gap, page.position) == (True, end)
        assert ids_of(await slow.next(wait_s=0)) == ["y"]


async def test_who_was_away_goes_on_behind_what_was_told_last(stage: FeedReaderHarness) -> None:
    async with stage.feed_reader.open_subscription() as all_:
        await stage.change("x1", "x2", "x3")
        page = await all_.next(wait_s=0)
    await stage.change("x4")
    async with stage.feed_reader.open_subscription(after=page.changes[0].position) as again:
        await stage.change("x5")

        found: list[str] = []
        while (page := await again.next(wait_s=0)).changes:
            found += ids_of(page)
        await stage.change("x6")
        found += ids_of(await again.next(wait_s=0))

    assert found == ["x2", "x3", "x4", "x5", "x6"]


async def test_who_was_away_while_others_listen_is_told_each_change_once(
    stage: FeedReaderHarness,
) -> None:
    """Whatever the others have been told, and whatever comes while it catches up."""
    async with stage.feed_reader.open_subscription() as others:
        start = others.position
        for number in range(30):
            await stage.change(f"a{number}", f"b{number}")
        async with stage.feed_reader.open_subscription(after=start) as again:
            found: list[str] = []
            for number in range(30, 60):
                if number % 3 == 0:
                    found += ids_of(await again.next(wait_s=0))
                await stage.change(f"a{number}", f"b{number}")
            while (page := await again.next(wait_s=0)).changes:
                found += ids_of(page)

    assert found == [f"{letter}{number}" for number in range(60) for letter in "ab"]


async def test_who_reads_ahead_of_the_others_is_told_each_change_once(
    stage: FeedReaderHarness,
) -> None:
    async with stage.feed_reader.open_subscription() as others:
        start = others.position
        stage.feed.is_away = True
        await stage.change("x1")
        await stage.change("x2")
        async with stage.feed_reader.open_subscription(after=start) as again:
            stage.feed.is_away = False
            found = list(ids_of(await again.next(wait_s=0)))
            found += ids_of(await again.next(wait_s=0))
            await stage.change("x3")
            await stage.clock.advance(10)
            await stage.change("x4")
            while (page := await again.next(wait_s=0)).changes:
                found += ids_of(page)

    assert found == ["x1", "x2", "x3", "x4"]


async def test_who_was_away_for_too_long_gets_a_gap(stage: FeedReaderHarness) -> None:
    start = await stage.feed.end()
    await stage.change("x1")
    await stage.forget()
    await stage.change("x2")

    async with stage.feed_reader.open_subscription(after=start) as again:
        page = await again.next(wait_s=0)
        await stage.change("x3")

        assert page.has_gap
        assert ids_of(await again.next(wait_s=0)) == ["x3"]


async def test_cancelling_the_wait_for_a_change_loses_nothing(stage: FeedReaderHarness) -> None:
    async with stage.feed_reader.open_subscription() as all_, asyncio.TaskGroup() as group:
        waiting = group.create_task(all_.next(wait_s=60))
        await settle()
        waiting.cancel()
        await stage.change("x1")

        assert ids_of(await all_.next(wait_s=0)) == ["x1"]
