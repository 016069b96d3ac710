"""A scheduler that dies at any store call, before or after it takes effect, loses nothing."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from runnel.client.store_client import StoreClient
from runnel.notify.waiter import Completion
from runnel.ports import Backend
from runnel.ports.archive import Archive
from runnel.triggers.schedule_store import ScheduleStore
from runnel.triggers.scheduler import Scheduler
from runnel.views.trigger import Overlap
from tests.unit.triggers.scheduler_harness import START, SchedulerHarness

CALLS_MAX = 40


class DiedError(BaseException):
    """Simulates the death of the process."""


class Dying:
    """Raises DiedError at the n-th call from now, before or after the call takes effect."""

    def __init__(self, calls: int, *, is_done: bool) -> None:
        self.left = calls
        self.is_done = is_done

    async def around(self, call: Callable[[], Awaitable[Any]]) -> Any:
        self.left -= 1
        if self.left > 0:
            return await call()
        if self.left == 0 and self.is_done:
            await call()
        raise DiedError


class Port:
    """Wraps a port: counts the calls of all its methods."""

    def __init__(self, port: object, dying: Dying) -> None:
        self._port = port
        self._dying = dying

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._port, name)

        async def call(*args: Any, **named: Any) -> Any:
            return await self._dying.around(lambda: method(*args, **named))

        return call


class DyingBackend:
    def __init__(self, backend: Backend, dying: Dying) -> None:
        self.records = Port(backend.records, dying)
        self.archive = Port(backend.archive, dying)
        self.mailbox = Port(backend.mailbox, dying)
        self.blobs = Port(backend.blobs, dying)
        self.store = Port(backend.store, dying)


def dying_scheduler(stage: SchedulerHarness, dying: Dying) -> Scheduler:
    backend = cast("Backend", DyingBackend(stage.backend, dying))
    client = StoreClient(backend, stage.clock, stage.ids, get_completion=lambda _id: Completion())
    schedules = ScheduleStore(backend, stage.clock, stage.ids)
    archive: Archive = backend.archive
    return Scheduler(schedules, client, archive, stage.clock, stage.telemetry)


async def ends_at(call: int, overlap: Overlap, *, is_done: bool) -> bool:
    """Returns whether the scheduler died there.

    Two ticks are due; another process fires a third one later.
    """
    stage = SchedulerHarness()
    await stage.add(overlap=overlap)
    dying = Dying(call, is_done=is_done)
    has_died = False
    try:
        await dying_scheduler(stage, dying).dispatch(START + 20)
    except* DiedError:
        has_died = True
    await stage.scheduler().dispatch(START + 20)
    stage.end((await stage.progress()).last_execution)
    await stage.scheduler().dispatch(START + 30)

    progress = await stage.progress()
    fired = [10.0, 20.0, 30.0] if overlap is Overlap.ALLOW else [20.0, 30.0]
    assert await stage.ticks() == fired
    assert (progress.fired, progress.skipped) == (len(fired), 3 - len(fired))
    assert (progress.failed, progress.missed, progress.planned) == (0, 0, ())
    return has_died


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("overlap", list(Overlap))
async def test_a_crash_at_any_store_call_neither_loses_nor_repeats_a_tick(
    overlap: Overlap, is_done: bool
) -> None:
    deaths = 0
    while await ends_at(deaths + 1, overlap, is_done=is_done):
        deaths += 1
        assert deaths < CALLS_MAX

    assert deaths >= 7
