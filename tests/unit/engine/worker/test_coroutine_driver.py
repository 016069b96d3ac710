"""The driver between an asyncio task and a user's coroutine."""

import asyncio
from collections.abc import Coroutine
from contextvars import copy_context
from typing import Any

import pytest

from runnel.engine.worker.executor import CoroutineDriver
from runnel.errors import SoftTimeoutError


def driven(coroutine: Coroutine[Any, Any, Any]) -> CoroutineDriver:
    """Returns the driver of a coroutine after its first step, as the current task's code."""
    runner = asyncio.current_task()
    assert runner is not None
    enter = copy_context().run
    return CoroutineDriver(coroutine, enter(coroutine.send, None), runner, enter)


async def test_the_driver_returns_the_value_of_the_coroutine() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return 7

    assert await driven(work()) == 7


async def test_the_driver_raises_the_error_of_the_coroutine() -> None:
    async def work() -> None:
        await asyncio.sleep(0)
        raise KeyError("x")

    with pytest.raises(KeyError):
        await driven(work())


async def test_an_error_of_the_awaited_object_reaches_the_coroutine() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def work() -> str:
        try:
            await future
        except ValueError as error:
            return f"caught {error}"
        return "nothing"

    driver = driven(work())
    future.set_exception(ValueError("it"))

    assert await driver == "caught it"


async def test_a_soft_timeout_arrives_in_place_of_the_cancellation() -> None:
    async def work() -> str:
        try:
            await asyncio.Event().wait()
        except SoftTimeoutError as error:
            return str(error)
        return "nothing"

    driver = driven(work())
    asyncio.get_running_loop().call_soon(driver.raise_soft_timeout, SoftTimeoutError(3))

    assert "3 s" in await driver


async def test_killing_ends_code_that_awaits_even_in_its_finally_block() -> None:
    swallowed: list[str] = []

    async def work() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed.append("a cancellation")

    driver = driven(work())
    asyncio.get_running_loop().call_soon(driver.kill)

    with pytest.raises(asyncio.CancelledError):
        await driver
    runner = asyncio.current_task()
    assert runner is not None
    assert runner.uncancel() == 0
    assert swallowed == []
