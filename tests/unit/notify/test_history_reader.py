"""A follower gets every event of an execution, in order, and then its end."""

import asyncio
from collections.abc import Sequence

import pytest

from runnel.backends.memory import MemoryBackend
from runnel.client.execution_lists import execution_not_found_error
from runnel.core.codec import encode_entry
from runnel.core.events import AnyEvent, ExecutionFinished, ExecutionStarted, NodeSkipped
from runnel.core.ids import ExecutionId, NodeId
from runnel.core.run_when import SkipReason
from runnel.core.states import ExecutionState
from runnel.errors import NotFoundError
from runnel.notify.event_bus import EventBus
from runnel.notify.feed_reader import FeedReader
from runnel.notify.history_reader import PAUSE_S_MAX, HistoryReader, follow_history
from runnel.notify.waiter import POLL_INTERVAL_S, POLL_INTERVAL_S_MAX
from runnel.ports.feed import FeedPage, FeedPosition
from runnel.ports.store import Commit, ExecutionHeader, HistoryRecord
from runnel.testing.clock import FakeClock, FakeIds, settle
from runnel.testing.conformance.suite import LeaseOwner, make_header
from runnel.views.execution import decode_event

EXECUTION = ExecutionId("x1")
RUNNING, FAILED = ExecutionState.RUNNING, ExecutionState.FAILED
END = ExecutionFinished(state=FAILED)


class LossyFeed:
    """A feed that loses changes: it answers with a gap, or with nothing while it `is_mute`."""

    def __init__(self, backend: MemoryBackend) -> None:
        self._feed = backend.feed
        self.has_gaps = False
        self.is_mute = False

    async def end(self) -> FeedPosition:
        return await self._feed.end()

    async def read(self, after: FeedPosition, *, limit: int, wait_s: float) -> FeedPage:
        page = await self._feed.read(after, limit=limit, wait_s=wait_s)
        while self.is_mute:
            page = await self._feed.read(page.position, limit=limit, wait_s=wait_s)
        if self.has_gaps:
            return FeedPage(changes=(), position=page.position, has_gap=True)
        return page


class HistoryHarness:
    """A store with one execution, its owner, and a follower in another process.

    A load of the history takes `load_s`. With `ends_during_load`, the execution ends after the
    next load.
    """

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.backend = MemoryBackend(self.clock, FakeIds())
        self.feed = LossyFeed(self.backend)
        self.feed_reader: FeedReader | None = FeedReader(self.feed, self.clock, EventBus())
        self.events: list[AnyEvent] = []
        self.loads = 0
        self.load_s = 0.0
        self.ends_during_load = False
        self._load = self.backend.archive.load
        self.backend.archive.load = self.load  # type: ignore[method-assign]  # counts its calls and may be slow
        self._owner: LeaseOwner | None = None

    async def load(self, execution_id: ExecutionId, *, after: int = 0) -> Sequence[bytes]:
        self.loads += 1
        if self.load_s:
            await self.clock.sleep(self.load_s)
        entries = await self._load(execution_id, after=after)
        if self.ends_during_load:
            self.ends_during_load = False
            await self.commit(END, state=FAILED)
        return entries

    async def commit(self, *events: AnyEvent, state: ExecutionState = RUNNING) -> None:
        if self._owner is None:
            self._owner = LeaseOwner(self.backend.store, await self.backend.store.acquire(0, "one"))
        entry = encode_entry(1.0, events)
        records = [HistoryRecord(aggregate_id=EXECUTION, entry=entry)] if events else []
        headers = [make_header(EXECUTION, state=state)]
        await self._owner.commit(Commit(sequence=0, histories=records, headers=headers))
        await settle()

    async def read_header(self, execution_id: ExecutionId) -> ExecutionHeader:
        header = await self.backend.archive.get_header(execution_id)
        if header is None:
            raise execution_not_found_error(execution_id)
        return header

    async def follow(self) -> None:
        reader = HistoryReader(self.backend.archive, EXECUTION, self.read_header)
        async for event in follow_history(reader, EXECUTION, self.feed_reader, self.clock):
            self.events.append(decode_event(event))


@pytest.fixture
def harness() -> HistoryHarness:
    return HistoryHarness()


def skip(node: str) -> NodeSkipped:
    return NodeSkipped(node=NodeId(node), reason=SkipReason.CONDITION_FALSE, detail="a\u2028b")


async def test_events_are_yielded_as_they_are_stored_and_then_the_end(
    harness: HistoryHarness,
) -> None:
    await harness.commit(ExecutionStarted())
    async with asyncio.TaskGroup() as group:
        following = group.create_task(harness.follow())
        await settle()
        first = [*harness.events]
        await harness.commit(skip("a"), skip("b"))
        second = [*harness.events]
        await harness.commit(skip("c"), END, state=FAILED)

        assert first == [ExecutionStarted()]
        assert second == [ExecutionStarted(), skip("a"), skip("b")]
        assert harness.events == [*second, skip("c"), END]
        assert following.done()


async def test_an_execution_that_could_not_be_created_ends_without_an_event(
    harness: HistoryHarness,
) -> None:
    await harness.commit(state=ExecutionState.PENDING)
    async with asyncio.TaskGroup() as group:
        following = group.create_task(harness.follow())
        await settle()
        was_done = following.done()
        await harness.commit(state=FAILED)

        assert (was_done, following.done(), harness.events) == (False, True, [])


async def test_an_end_between_two_reads_is_yielded_with_all_events(
    harness: HistoryHarness,
) -> None:
    await harness.commit(state=ExecutionState.PENDING)
    harness.ends_during_load = True

    await harness.follow()

    assert harness.events == [END]


@pytest.mark.parametrize("has_ended", [True, False])
async def test_a_gap_in_the_feed_makes_the_follower_read_the_store(
    harness: HistoryHarness, *, has_ended: bool
) -> None:
    await harness.commit(ExecutionStarted())
    async with asyncio.TaskGroup() as group:
        following = group.create_task(harness.follow())
        await settle()
        harness.feed.has_gaps = True
        await harness.commit(
            END if has_ended else skip("a"), state=FAILED if has_ended else RUNNING
        )

        assert len(harness.events) == 2
        assert following.done() is has_ended
        following.cancel()


@pytest.mark.parametrize("has_feed", [True, False])
async def test_a_change_that_no_feed_reports_is_found_by_a_poll(
    harness: HistoryHarness, *, has_feed: bool
) -> None:
    if has_feed:
        harness.feed.is_mute = True
    else:
        harness.feed_reader = None
    await harness.commit(ExecutionStarted())
    async with asyncio.TaskGroup() as group:
        group.create_task(harness.follow())
        await settle()
        await harness.commit(END, state=FAILED)
        before = [*harness.events]
        await harness.clock.advance(POLL_INTERVAL_S_MAX if has_feed else POLL_INTERVAL_S)

        assert (before, harness.events) == ([ExecutionStarted()], [ExecutionStarted(), END])


async def test_a_history_that_is_slow_to_read_is_read_with_pauses(
    harness: HistoryHarness,
) -> None:
    harness.load_s = 1.0
    await harness.commit(ExecutionStarted())
    async with asyncio.TaskGroup() as group:
        following = group.create_task(harness.follow())
        await harness.clock.advance(1.0)
        for _ in range(60):
            await harness.commit(skip("a"))
            await harness.clock.advance(1.0)
        following.cancel()

    assert harness.loads <= 2 + 60 / (1.0 + PAUSE_S_MAX)


async def test_the_end_of_a_long_history_is_read_without_a_pause(harness: HistoryHarness) -> None:
    harness.load_s = 1.0
    await harness.commit(ExecutionStarted())
    async with asyncio.TaskGroup() as group:
        following = group.create_task(harness.follow())
        await harness.clock.advance(1.0)
        await harness.commit(END, state=FAILED)
        await harness.clock.advance(1.0)

        assert following.done()


async def test_an_unknown_execution_is_not_found(harness: HistoryHarness) -> None:
    with pytest.raises(NotFoundError):
        await harness.follow()
