"""Rate tokens come from buckets that all workers share."""

import pytest

from runnel.ports.store import TaskQueue
from runnel.testing.conformance.suite import Suite
from runnel.testing.harness import Harness

# A store with a clock of its own does not stand still between two calls.
NEAR_S = 0.1


class RateRules(Suite):
    async def test_a_burst_passes_without_waiting(self, tasks: TaskQueue) -> None:
        waits = [await take(tasks, burst=3) for _ in range(3)]

        assert waits == [0.0, 0.0, 0.0]

    async def test_beyond_the_burst_tokens_come_at_the_rate(self, tasks: TaskQueue) -> None:
        waits = [await take(tasks, rate=2.0, burst=1) for _ in range(4)]

        assert waits == pytest.approx([0.0, 0.5, 1.0, 1.5], abs=NEAR_S)

    async def test_a_wait_that_is_too_long_takes_no_token(self, tasks: TaskQueue) -> None:
        await take(tasks, rate=1.0, burst=1)

        refused = [await take(tasks, rate=1.0, burst=1, wait_s_max=0.5) for _ in range(3)]

        assert refused == pytest.approx([1.0, 1.0, 1.0], abs=NEAR_S)
        assert await take(tasks, rate=1.0, burst=1) == pytest.approx(1.0, abs=NEAR_S)

    async def test_time_fills_the_bucket_up_to_its_burst(
        self, harness: Harness, tasks: TaskQueue
    ) -> None:
        for _ in range(2):
            await take(tasks, rate=1.0, burst=2)

        await harness.pass_time(100.0)

        waits = [await take(tasks, rate=1.0, burst=2) for _ in range(3)]
        assert waits == pytest.approx([0.0, 0.0, 1.0], abs=NEAR_S)

    async def test_each_tag_has_a_bucket_of_its_own(self, tasks: TaskQueue) -> None:
        await take(tasks, tag="a", burst=1)

        assert await take(tasks, tag="b", burst=1) == 0.0


async def take(
    tasks: TaskQueue, *, tag: str = "api", rate: float = 1.0, burst: int, wait_s_max: float = 60.0
) -> float:
    return await tasks.take_token(tag, rate_per_second=rate, burst=burst, wait_s_max=wait_s_max)
