"""Readiness probes answer within their timeout, even if a part hangs."""

import asyncio

from runnel.api.state import PROBE_TIMEOUT_S, ReadinessProbes
from runnel.errors import StoreError
from runnel.testing.clock import FakeClock
from tests.waiting import wait_until


class Part:
    """A part that answers its probe once `answers` is set."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.probes = 0
        self.problem: str | None = None

    async def probe(self) -> str | None:
        self.probes += 1
        await self.answers.wait()
        if self.problem is not None:
            raise StoreError(self.problem)
        return None


async def test_a_part_that_hangs_is_reported_and_probed_by_one_task_at_a_time() -> None:
    clock, part = FakeClock(), Part()
    probes = ReadinessProbes(clock)

    problems = [asyncio.create_task(probes.find_problem("store", part.probe)) for _ in range(3)]
    await wait_until(lambda: part.probes == 1)
    await clock.advance(PROBE_TIMEOUT_S)
    hanging = await asyncio.gather(*problems)
    part.answers.set()
    problem = await probes.find_problem("store", part.probe)

    assert set(hanging) == {"no answer within 3 s"}
    assert problem is None


async def test_a_part_that_fails_is_reported_and_probed_again() -> None:
    part = Part()
    part.answers.set()
    probes = ReadinessProbes(FakeClock())
    part.problem = "gone"
    failure = await probes.find_problem("store", part.probe)
    part.problem = None

    assert failure == "gone"
    assert await probes.find_problem("store", part.probe) is None
    assert part.probes == 2
