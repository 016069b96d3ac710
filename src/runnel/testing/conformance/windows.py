"""Requests are counted in a window that slides, for all who share the store."""

import asyncio

import pytest

from runnel.ports.backend import Backend
from runnel.testing.conformance.suite import Suite
from runnel.testing.harness import Harness

# A store with a clock of its own does not stand still between two calls.
NEAR_S = 0.5
WINDOW_S = 60.0


class WindowRules(Suite):
    async def test_as_many_requests_as_allowed_are_admitted(self, backend: Backend) -> None:
        waits = [await ask(backend, limit=3) for _ in range(3)]

        assert waits == [0.0, 0.0, 0.0]

    async def test_one_more_has_to_wait_until_the_first_leaves_the_window(
        self, backend: Backend
    ) -> None:
        for _ in range(3):
            await ask(backend, limit=3)

        waits = [await ask(backend, limit=3) for _ in range(2)]

        assert waits == pytest.approx([WINDOW_S, WINDOW_S], abs=NEAR_S)

    async def test_the_window_slides(self, harness: Harness, backend: Backend) -> None:
        await ask(backend, limit=2)
        await harness.pass_time(WINDOW_S / 2)
        await ask(backend, limit=2)
        await harness.pass_time(WINDOW_S / 2)

        waits = [await ask(backend, limit=2) for _ in range(2)]

        assert waits == pytest.approx([0.0, WINDOW_S / 2], abs=NEAR_S)

    async def test_what_was_refused_is_not_counted(
        self, harness: Harness, backend: Backend
    ) -> None:
        await ask(backend, limit=1)
        for _ in range(5):
            await ask(backend, limit=1)

        await harness.pass_time(WINDOW_S)

        assert await ask(backend, limit=1) == 0.0

    async def test_a_lower_limit_holds_at_once(self, backend: Backend) -> None:
        for _ in range(3):
            await ask(backend, limit=3)

        assert await ask(backend, limit=1) == pytest.approx(WINDOW_S, abs=NEAR_S)

    async def test_each_caller_has_a_window_of_its_own(self, backend: Backend) -> None:
        await ask(backend, limit=1)

        assert await ask(backend, who="another", limit=1) == 0.0

    async def test_requests_at_once_are_counted_one_by_one(self, backend: Backend) -> None:
        waits = await asyncio.gather(*(ask(backend, limit=5) for _ in range(20)))

        assert waits.count(0.0) == 5


async def ask(backend: Backend, *, who: str = "ada", limit: int) -> float:
    return await backend.windows.admit(who, limit=limit, window_s=WINDOW_S)
