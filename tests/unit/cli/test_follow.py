"""A command that follows an execution shows all its events, although the store fails meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

import pytest

from runnel.cli.render.progress import ExecutionProgress
from runnel.cli.session import follow
from runnel.cli.session.follow import FollowSession, MissingProcessWarning
from runnel.cli.session.open_client import ClientSession
from runnel.core.ids import ExecutionId
from runnel.core.run_when import SkipReason
from runnel.core.states import ExecutionState, NodeState
from runnel.errors import StoreError
from runnel.testing.clock import FakeClock, settle
from runnel.views import Timestamp
from runnel.views.execution import ExecutionView, HistoryEvent
from tests.core_driver import make_node, make_workflow

FLOW = make_workflow(make_node("a"), make_node("b", "a"))
EXECUTION = ExecutionId("x1")


def event(name: str, *, at: float = 1.0, **fields: Any) -> HistoryEvent:
    return HistoryEvent(at=Timestamp(at), event=name, fields=fields)


HISTORY = [
    event("ExecutionStarted"),
    event("NodeSkipped", node="a", reason=SkipReason.CONDITION_FALSE.value),
    event("NodeSkipped", node="b", reason=SkipReason.CONDITION_FALSE.value),
    event("ExecutionFinished", state="COMPLETED"),
]


class BreakingClient:
    """A client of a server that breaks after each event of `breaks_after`."""

    def __init__(
        self, history: Sequence[HistoryEvent], *, breaks_after: Sequence[int] = ()
    ) -> None:
        self.history = history
        self.breaks = list(breaks_after)
        self.starts: list[int] = []
        self.may_end = asyncio.Event()

    async def follow(
        self, _execution_id: ExecutionId, *, after: int = 0
    ) -> AsyncIterator[HistoryEvent]:
        self.starts.append(after)
        for number, event in enumerate(self.history[after:], start=after + 1):
            yield event
            if number in self.breaks:
                self.breaks.remove(number)
                raise StoreError("away")
        await self.may_end.wait()

    async def get(self, execution_id: ExecutionId) -> ExecutionView:
        return ExecutionView(
            execution_id=execution_id,
            workflow=FLOW.name,
            version=1,
            status=ExecutionState.FAILED,
            output=None,
            error="it could not be created",
            nodes={},
            input=None,
            created_at=Timestamp(1.0),
            started_at=None,
            finished_at=Timestamp(1.0),
            parent_id=None,
            rerun_of=None,
            labels={},
        )


class RecordedWarning:
    """Counts its checks instead of warning."""

    def __init__(self) -> None:
        self.checks = 0

    async def check(self, _execution_id: ExecutionId, _warn: Callable[[str], None]) -> None:
        self.checks += 1


class SilentView:
    """Records states and messages instead of printing them."""

    def __init__(self) -> None:
        self.shown: list[NodeState] = []
        self.shows = 0
        self.messages: list[str] = []
        self.is_closed = False

    def add(self, progress: ExecutionProgress) -> None: ...

    def show_changes(self, progress: ExecutionProgress) -> None:
        self.shown += [line.state for line in progress.changed]
        self.shows += bool(progress.changed)
        progress.changed.clear()

    def refresh(self) -> None: ...

    def print_message(self, text: str) -> None:
        self.messages.append(text)

    def close(self) -> None:
        self.is_closed = True


class WatchHarness:
    """A follow session with a fake client, clock and view."""

    def __init__(self, client: BreakingClient) -> None:
        self.client = client
        self.clock = FakeClock()
        self.view = SilentView()
        self.warning = RecordedWarning()
        self.progress = ExecutionProgress(EXECUTION, FLOW)
        session = ClientSession(
            client=cast("Any", client),
            clock=self.clock,
            has_workers=True,
            build_operations=cast("Any", None),
        )
        warning = cast("MissingProcessWarning", self.warning)
        self.session = FollowSession(session, self.progress, self.view, warning)


@pytest.fixture(autouse=True)
def no_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disables `show_logs`, which would send all later logs of this process to stderr."""
    monkeypatch.setattr(follow, "show_logs", lambda _hide: None)


async def test_a_stream_that_breaks_continues_after_the_last_event() -> None:
    harness = WatchHarness(BreakingClient(HISTORY, breaks_after=[1, 3]))
    harness.client.may_end.set()
    async with asyncio.TaskGroup() as group:
        group.create_task(harness.session.run())
        await harness.clock.advance(2.0)

    assert harness.client.starts == [0, 1, 3]
    assert harness.view.shown == [NodeState.SKIPPED, NodeState.SKIPPED]
    assert (harness.progress.state, harness.view.is_closed) == (ExecutionState.COMPLETED, True)
    assert harness.session.interruption is None


async def test_the_events_of_one_commit_are_shown_together_and_those_of_two_are_not() -> None:
    first = event("NodeSkipped", at=1.0, node="a", reason=SkipReason.CONDITION_FALSE.value)
    same = event("NodeSkipped", at=1.0, node="b", reason=SkipReason.CONDITION_FALSE.value)
    later = event("NodeSkipped", at=2.0, node="b", reason=SkipReason.CONDITION_FALSE.value)
    end = event("ExecutionFinished", at=2.0, state="COMPLETED")
    together = WatchHarness(BreakingClient([first, same, end]))
    apart = WatchHarness(BreakingClient([first, later, end]))
    for harness in (together, apart):
        harness.client.may_end.set()

        await harness.session.run()

    assert (together.view.shows, apart.view.shows) == (1, 2)


async def test_an_event_is_shown_although_no_later_event_arrives() -> None:
    harness = WatchHarness(BreakingClient(HISTORY[:2]))
    async with asyncio.TaskGroup() as group:
        group.create_task(harness.session.run())
        await harness.clock.advance(0.5)
        shown = list(harness.view.shown)
        harness.client.may_end.set()
        await harness.clock.advance(1.0)

    assert shown == [NodeState.SKIPPED]


async def test_an_execution_without_events_ends_in_the_stored_state() -> None:
    harness = WatchHarness(BreakingClient([]))
    harness.client.may_end.set()

    await harness.session.run()

    assert harness.progress.state is ExecutionState.FAILED
    assert harness.progress.error == "it could not be created"


async def test_missing_processes_are_checked_once_a_second_while_no_event_arrives() -> None:
    harness = WatchHarness(BreakingClient(HISTORY[:2]))
    async with asyncio.TaskGroup() as group:
        group.create_task(harness.session.run())
        await harness.clock.advance(1.0)
        after_events = harness.warning.checks
        await harness.clock.advance(3.0)
        harness.client.may_end.set()
        await settle()
        await harness.clock.advance(1.0)

    assert (after_events, harness.warning.checks) == (0, 3)
