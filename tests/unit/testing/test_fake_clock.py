"""Fake time moves only when told, and wakes everybody in the order they are due."""

import asyncio

import pytest

from runnel.testing.clock import FakeClock, FakeIds, settle


async def test_time_stands_still_by_itself() -> None:
    clock = FakeClock(now=100.0)

    await settle()

    assert (clock.now(), clock.monotonic()) == (100.0, 0.0)


async def test_sleepers_wake_in_the_order_they_are_due_and_at_their_time() -> None:
    clock = FakeClock()
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.monotonic()))

    async with asyncio.TaskGroup() as group:
        for name, seconds in (("c", 3.0), ("a", 1.0), ("b", 2.0), ("a2", 1.0)):
            group.create_task(sleeper(name, seconds))
        await clock.advance(2.5)
        early = list(woken)
        await clock.advance(1.0)

    assert early == [("a", 1.0), ("a2", 1.0), ("b", 2.0)]
    assert woken[3:] == [("c", 3.0)]


async def test_what_a_sleeper_starts_within_the_span_is_woken_too() -> None:
    clock = FakeClock()

    async def twice() -> float:
        await clock.sleep(1.0)
        await clock.sleep(1.0)
        return clock.monotonic()

    async with asyncio.TaskGroup() as group:
        sleeping = group.create_task(twice())
        await clock.advance(10.0)

    assert sleeping.result() == 2.0


async def test_a_wait_ends_with_the_event_or_with_the_time() -> None:
    clock = FakeClock()
    event = asyncio.Event()

    async with asyncio.TaskGroup() as group:
        short = group.create_task(clock.wait(event, 1.0))
        long = group.create_task(clock.wait(event, 5.0))
        endless = group.create_task(clock.wait(event, None))
        await clock.advance(2.0)
        event.set()

    assert [short.result(), long.result(), endless.result()] == [False, True, True]
    assert clock.sleepers == 0


async def test_a_timeout_raises_inside_its_block_and_the_task_lives_on() -> None:
    clock = FakeClock()

    async def work() -> str:
        with pytest.raises(TimeoutError):
            async with clock.timeout(1.0):
                await asyncio.Event().wait()
        await clock.sleep(1.0)
        return "alive"

    async with asyncio.TaskGroup() as group:
        working = group.create_task(work())
        await clock.advance(5.0)

    assert working.result() == "alive"


async def test_a_cancel_from_outside_is_not_taken_for_a_timeout() -> None:
    clock = FakeClock()

    async def work() -> None:
        async with clock.timeout(1.0):
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        working = group.create_task(work())
        await settle()
        working.cancel()

    assert working.cancelled()
    assert clock.sleepers == 0


async def test_work_that_takes_too_long_is_cancelled() -> None:
    clock = FakeClock()
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def limited() -> None:
        with pytest.raises(TimeoutError):
            await clock.run_within(2.0, work())

    async with asyncio.TaskGroup() as group:
        group.create_task(limited())
        await clock.advance(3.0)

    assert ended.is_set()


def test_ids_are_fresh_and_the_same_in_every_run() -> None:
    first, second = FakeIds("a"), FakeIds("a")

    made = [first.execution_id(), first.execution_id(), first.nonce()]

    assert made == [second.execution_id(), second.execution_id(), second.nonce()]
    assert len(set(made)) == 3
