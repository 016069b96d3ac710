"""A health probe answers soon, even if one part hangs."""

import asyncio

from runnel.api.state import PROBE_TIMEOUT_S, ReadinessProbes
from runnel.errors import StoreError
from runnel.testing.clock import FakeClock
from tests.waiting import wait_until


class Part:
    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.looks = 0
        self.problem: str | None = None

    async def look(self) -> str | None:
        self.looks += 1
        await self.answers.wait()
        if self.problem is not None:
            raise StoreError(self.problem)
        return None


async def test_a_part_that_hangs_is_told_of_and_looked_at_once_at_a_time() -> None:
    clock, part = FakeClock(), Part()
    probes = ReadinessProbes(clock)

    asked = [asyncio.create_task(probes.find_problem("store", part.look)) for _ in range(3)]
    await wait_until(lambda: part.looks == 1)
    await clock.advance(PROBE_TIMEOUT_S)
    hanging = await asyncio.gather(*asked)
    part.answers.set()
    back = await probes.find_problem("store", part.look)

    assert set(hanging) == {"no answer within 3 s"}
    assert back is None


async def test_a_part_that_is_away_says_why_and_is_looked_at_anew() -> None:
    part = Part()
    part.answers.set()
    probes = ReadinessProbes(FakeClock())
    part.problem = "gone"
    away = await probes.find_problem("store", part.look)
    part.problem = None

    assert away == "gone"
    assert await probes.find_problem("store", part.look) is None
    assert part.looks == 2
