"""Limits of WorkflowExecutor: concurrent steps and steps per second."""

import asyncio
import time

import pytest

from runnel import StepContext, TokenBucketRateLimiter, WorkflowDAG, WorkflowExecutor
from runnel.errors import InputError, SoftTimeoutError
from runnel.testing.clock import FakeClock
from tests.integration.document_pipeline import document


class ConcurrencyProbe:
    """Steps that wait until `most` of them run at once, then let any further step start."""

    def __init__(self, most: int) -> None:
        self.now = self.peak = 0
        self._most = most
        self._is_full = asyncio.Event()

    async def __call__(self, _ctx: StepContext) -> None:
        self.now += 1
        self.peak = max(self.peak, self.now)
        if self.now == self._most:
            self._is_full.set()
        await self._is_full.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        self.now -= 1

    def dag(self, steps: int) -> WorkflowDAG:
        dag = WorkflowDAG("probe")
        for number in range(steps):
            dag.add_step(f"s{number}", self)
        return dag


async def test_the_number_of_concurrent_steps_is_limited() -> None:
    probe = ConcurrencyProbe(4)

    result = await WorkflowExecutor(max_concurrency=4).execute(probe.dag(20))

    assert (result.completed, probe.peak) == (20, 4)


async def test_executions_of_one_executor_share_its_limit() -> None:
    probe = ConcurrencyProbe(3)
    executor = WorkflowExecutor(max_concurrency=3)

    results = await asyncio.gather(*(executor.execute(probe.dag(5)) for _ in range(4)))

    assert [result.completed for result in results] == [5] * 4
    assert probe.peak == 3


async def test_an_execution_may_end_while_another_one_of_the_executor_runs() -> None:
    executor = WorkflowExecutor()
    is_first_finished = asyncio.Event()

    async def wait_for_first(_ctx: StepContext) -> str:
        await is_first_finished.wait()
        return "second"

    async with asyncio.TaskGroup() as group:
        first = group.create_task(executor.execute(document(), {"doc_id": 1}))
        second = group.create_task(executor.execute(WorkflowDAG().add_step("a", wait_for_first)))
        assert (await first).is_successful
        is_first_finished.set()

    assert second.result().outputs == {"a": "second"}


class StartTimes:
    """Steps that record their start times."""

    def __init__(self) -> None:
        self.began: list[float] = []

    async def __call__(self, _ctx: StepContext) -> None:
        self.began.append(time.monotonic())

    def dag(self, steps: int) -> WorkflowDAG:
        dag = WorkflowDAG("times")
        for number in range(steps):
            dag.add_step(f"s{number}", self, resource_tag="api")
        return dag

    def total_s(self) -> float:
        return max(self.began) - min(self.began)


async def test_steps_of_a_resource_tag_are_limited_to_its_rate() -> None:
    times = StartTimes()
    limiter = TokenBucketRateLimiter(rate_per_second=50, burst=1)

    result = await WorkflowExecutor(rate_limiters={"api": limiter}).execute(times.dag(6))

    # 5 gaps of 20 ms. A single gap may be shorter if the step before it started late.
    assert result.completed == 6
    assert 0.095 <= times.total_s() < 5.0


async def test_a_burst_starts_at_once_and_further_steps_at_the_rate() -> None:
    times = StartTimes()
    limiter = TokenBucketRateLimiter(rate_per_second=20, burst=5)

    await WorkflowExecutor(max_concurrency=8, rate_limiters={"api": limiter}).execute(times.dag(7))

    times.began.sort()
    assert times.began[4] - times.began[0] < times.began[6] - times.began[0]
    assert times.total_s() >= 0.095


async def test_one_limiter_limits_all_executors_that_share_it() -> None:
    times = StartTimes()
    limiter = TokenBucketRateLimiter(rate_per_second=50, burst=1)
    executors = [WorkflowExecutor(rate_limiters={"api": limiter}) for _ in range(3)]

    await asyncio.gather(*(executor.execute(times.dag(3)) for executor in executors))

    assert len(times.began) == 9
    assert times.total_s() >= 0.155


async def test_a_tag_without_a_limiter_is_not_limited() -> None:
    times = StartTimes()

    result = await WorkflowExecutor().execute(times.dag(20))

    assert result.completed == 20


async def acquire_and_record(
    limiter: TokenBucketRateLimiter, clock: FakeClock, times: list[float]
) -> None:
    await limiter.acquire()
    times.append(clock.monotonic())


async def test_a_limiter_grants_tokens_in_order() -> None:
    clock = FakeClock()
    limiter = TokenBucketRateLimiter(2, 2, clock=clock)
    times: list[float] = []

    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(acquire_and_record(limiter, clock, times))
        await clock.advance(10)

    assert times == [0.0, 0.0, 0.5, 1.0, 1.5]


async def test_an_idle_limiter_accumulates_at_most_its_burst() -> None:
    clock = FakeClock()
    limiter = TokenBucketRateLimiter(2, 3, clock=clock)
    await clock.advance(100)

    assert [limiter.take() for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]


async def test_a_cancelled_waiter_returns_its_token() -> None:
    clock = FakeClock()
    limiter = TokenBucketRateLimiter(1, 1, clock=clock)
    await limiter.acquire()
    async with asyncio.TaskGroup() as group:
        waiter = group.create_task(limiter.acquire())
        await clock.advance(0.1)
        waiter.cancel()

    assert limiter.take() == pytest.approx(0.9)


def test_a_token_beyond_the_maximum_wait_is_not_taken() -> None:
    limiter = TokenBucketRateLimiter(1, 1, clock=FakeClock())
    limiter.take()

    assert limiter.take(wait_s_max=0.5) == 1.0
    assert limiter.take(wait_s_max=1.0) == 1.0
    assert limiter.take(wait_s_max=5.0) == 2.0


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")])
def test_an_invalid_rate_is_refused(rate: float) -> None:
    with pytest.raises(InputError, match="expected rate_per_second to be above 0"):
        TokenBucketRateLimiter(rate)


def test_a_burst_of_zero_is_refused() -> None:
    with pytest.raises(
        InputError, match="expected burst to be a whole number of at least 1, got 0"
    ):
        TokenBucketRateLimiter(10, 0)


async def test_a_limiter_shows_its_free_tokens() -> None:
    clock = FakeClock()
    limiter = TokenBucketRateLimiter(rate_per_second=10, burst=3, clock=clock)
    counts = [limiter.tokens]

    for _ in range(4):  # one more than there are: the last one is reserved
        limiter.take()
        counts.append(limiter.tokens)
    await clock.advance(0.25)
    counts.append(limiter.tokens)

    assert counts == pytest.approx([3, 2, 1, 0, 0, 1.5])


async def test_a_step_is_interrupted_at_its_soft_timeout() -> None:
    async def save_what_is_done(_ctx: StepContext) -> str:
        try:
            await asyncio.Event().wait()
        except SoftTimeoutError:
            return "saved"
        return "never"

    dag = WorkflowDAG().add_step(
        "extract", save_what_is_done, timeout_seconds=30, soft_timeout_seconds=0.05
    )

    result = await WorkflowExecutor().execute(dag)

    assert result.outputs == {"extract": "saved"}


async def test_a_step_that_executes_a_workflow_of_its_own_executor_does_not_block_it() -> None:
    executor = WorkflowExecutor(max_concurrency=1)

    async def execute_level(ctx: StepContext) -> int:
        if not ctx["level"]:
            return 1
        inner = await executor.execute(dag, {"level": ctx["level"] - 1})
        return 1 + int(inner.outputs["level"])

    dag = WorkflowDAG("levels")
    dag.add_step("level", execute_level)

    async with asyncio.timeout(30):
        results = await asyncio.gather(*(executor.execute(dag, {"level": 3}) for _ in range(3)))

    assert [result.outputs for result in results] == [{"level": 4}] * 3
