"""Steps of a WorkflowDAG with a cache: in memory, and in a data directory."""

import asyncio
import math
import threading
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from runnel import (
    StepCache,
    StepContext,
    TokenBucketRateLimiter,
    WorkflowDAG,
    WorkflowExecutor,
)
from runnel.app.step_cache import CachedResult, MemoryStepCache
from runnel.app.wiring import build_engine
from runnel.core.ids import ExecutionId
from runnel.settings.model import Settings
from runnel.testing.clock import FakeClock
from tests.integration.document_pipeline import AT_ONCE, SKIPPED, Function


def read_content(ctx: StepContext) -> Any:
    return ctx["content"]


class Extractor:
    """A step function that records the contents of its calls."""

    def __init__(self) -> None:
        self.contents: list[Any] = []

    def extract(self, ctx: StepContext) -> Any:
        self.contents.append(ctx["content"])
        return {"length": len(ctx["content"])}

    async def extract_async(self, ctx: StepContext) -> Any:
        return self.extract(ctx)

    def start_extract(self, ctx: StepContext) -> Any:
        return self.extract_async(ctx)


def build_dag(
    fn: Function, *, name: str = "document", step_id: str = "extract", **cache: Any
) -> WorkflowDAG:
    step_cache = StepCache(**{"key": read_content, **cache})
    return WorkflowDAG(name).add_step(step_id, fn, cache=step_cache)


@pytest.fixture(params=["memory", "data_dir"])
def clock_and_executor(
    request: pytest.FixtureRequest, tmp_path: Path
) -> tuple[FakeClock, WorkflowExecutor]:
    clock = FakeClock()
    data_dir = tmp_path if request.param == "data_dir" else None
    return clock, WorkflowExecutor(data_dir=data_dir, retry=AT_ONCE, clock=clock)


@pytest.mark.parametrize("method", ["extract", "extract_async", "start_extract"])
@pytest.mark.parametrize("is_stored", [False, True])
async def test_equal_content_returns_the_cached_result(
    method: str, is_stored: bool, tmp_path: Path
) -> None:
    extractor = Extractor()
    dag = build_dag(getattr(extractor, method))
    dag.add_step("count", lambda ctx: ctx.step_outputs["extract"]["length"], ["extract"])
    executor = WorkflowExecutor(data_dir=tmp_path if is_stored else None)

    results = [await executor.execute(dag, {"content": text}) for text in ("page", "page", "x")]

    assert extractor.contents == ["page", "x"]
    assert [result.outputs["count"] for result in results] == [4, 4, 1]
    assert [result.steps["extract"].is_cached for result in results] == [False, True, False]
    assert [result.steps["extract"].retries for result in results] == [0, 0, 0]
    assert not any(result.steps["count"].is_cached for result in results)


async def test_in_memory_a_cached_result_is_the_same_object() -> None:
    dag = build_dag(lambda _ctx: object())
    executor = WorkflowExecutor()

    first, second = [await executor.execute(dag, {"content": b"%PDF"}) for _ in range(2)]

    assert first.outputs["extract"] is second.outputs["extract"]
    assert (await WorkflowExecutor().execute(dag, {"content": "%PDF"})).outputs != first.outputs


async def test_in_a_data_dir_results_outlive_the_executor_and_the_history_shows_the_hit(
    tmp_path: Path,
) -> None:
    extractor = Extractor()
    results = [
        await WorkflowExecutor(data_dir=tmp_path).execute(
            build_dag(extractor.extract), {"content": "page"}
        )
        for _ in range(2)
    ]

    engine = await build_engine(Settings(data_dir=tmp_path))
    try:
        details = [
            await engine.client.node(ExecutionId(result.execution_id), "extract")
            for result in results
        ]
    finally:
        await engine.backend.close()
    assert extractor.contents == ["page"]
    assert [(detail.is_cached, detail.reason) for detail in details] == [
        (False, None),
        (True, "from the cache"),
    ]
    assert [detail.output for detail in details] == [{"length": 4}, {"length": 4}]


@pytest.mark.parametrize("ttl", [60, timedelta(minutes=1)])
async def test_a_result_expires_after_its_ttl(
    ttl: float | timedelta, clock_and_executor: tuple[FakeClock, WorkflowExecutor]
) -> None:
    clock, executor = clock_and_executor
    extractor = Extractor()
    dag = build_dag(extractor.extract_async, ttl=ttl)

    calls = []
    for wait_s in (0, 59, 2):
        await clock.advance(wait_s)
        await executor.execute(dag, {"content": "page"})
        calls.append(len(extractor.contents))

    assert calls == [1, 1, 2]


async def test_a_failure_is_not_cached_and_a_result_of_none_is(
    clock_and_executor: tuple[FakeClock, WorkflowExecutor],
) -> None:
    _, executor = clock_and_executor
    answers: list[Exception | None] = [ConnectionError("busy"), None]

    def answer(_ctx: StepContext) -> None:
        if (error := answers.pop(0)) is not None:
            raise error

    dag = build_dag(answer)
    first, second = [await executor.execute(dag, {"content": 1}) for _ in range(2)]

    assert (first.steps["extract"].retries, first.steps["extract"].is_cached) == (1, False)
    assert (second.steps["extract"].retries, second.steps["extract"].is_cached) == (0, True)


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_error_of_the_key_function_is_the_error_of_the_step(is_async: bool) -> None:
    extractor = Extractor()
    dag = build_dag(extractor.extract_async if is_async else extractor.extract)

    result = await WorkflowExecutor().execute(dag)

    assert result.steps["extract"].error == "KeyError: 'content'"
    assert extractor.contents == []


EXPECTED = "InputError: expected the cache key to be text, bytes or a JSON value"
WRONG_KEYS: list[tuple[Function, str]] = [
    (lambda _ctx: object(), f"{EXPECTED}: Encoding objects of type object is unsupported"),
    (Extractor().start_extract, f"{EXPECTED}, got a coroutine"),
    (lambda _ctx: [1.5, math.nan], f"{EXPECTED}, but key[1] is nan"),
]


@pytest.mark.parametrize(("key", "expected"), WRONG_KEYS)
async def test_a_key_that_is_not_json_fails_the_step_without_a_retry(
    key: Function, expected: str
) -> None:
    dag = build_dag(Extractor().extract, key=key)

    step = (await WorkflowExecutor(retry=AT_ONCE).execute(dag, {"content": "x"})).steps["extract"]

    assert (step.error, step.retries) == (expected, 0)


async def test_a_key_of_none_runs_the_step_without_the_cache() -> None:
    extractor = Extractor()
    dag = build_dag(extractor.extract, key=lambda ctx: ctx.get("digest"))
    executor = WorkflowExecutor()

    for content in ("page", "other"):
        await executor.execute(dag, {"content": content})

    assert extractor.contents == ["page", "other"]


async def test_the_condition_is_evaluated_before_the_cache() -> None:
    extractor = Extractor()
    dag = WorkflowDAG("document").add_step(
        "extract",
        extractor.extract,
        condition=lambda ctx: ctx["is_new"],
        cache=StepCache(key=read_content),
    )
    executor = WorkflowExecutor()

    await executor.execute(dag, {"content": "page", "is_new": True})
    result = await executor.execute(dag, {"content": "page", "is_new": False})

    assert result.steps["extract"].status is SKIPPED


async def test_a_step_takes_its_rate_token_before_the_cache_is_read() -> None:
    limiter = TokenBucketRateLimiter(rate_per_second=1, burst=5, clock=FakeClock())
    dag = WorkflowDAG("document").add_step(
        "extract", Extractor().extract, resource_tag="api", cache=StepCache(key=read_content)
    )
    executor = WorkflowExecutor(rate_limiters={"api": limiter})

    results = [await executor.execute(dag, {"content": "page"}) for _ in range(2)]

    assert results[1].steps["extract"].is_cached
    assert limiter.tokens == 3


async def test_steps_that_run_at_the_same_time_with_the_same_key_all_call_their_function() -> None:
    both = asyncio.Barrier(2)

    async def meet(_ctx: StepContext) -> int:
        async with asyncio.timeout(10):
            return await both.wait()

    executor = WorkflowExecutor()
    dag = build_dag(meet)
    results = await asyncio.gather(*(executor.execute(dag, {"content": "x"}) for _ in range(2)))

    assert sorted(result.outputs["extract"] for result in results) == [0, 1]


async def test_in_a_data_dir_a_result_above_1_mb_is_not_cached(tmp_path: Path) -> None:
    dag = build_dag(lambda _ctx: "x" * 1024 * 1024)
    executor = WorkflowExecutor(data_dir=tmp_path)

    results = [await executor.execute(dag, {"content": "page"}) for _ in range(2)]

    assert [result.steps["extract"].is_cached for result in results] == [False, False]


async def test_only_the_same_step_and_function_of_a_workflow_share_results() -> None:
    executor = WorkflowExecutor()
    extractor = Extractor()
    dags = [
        build_dag(extractor.extract),
        build_dag(extractor.extract, name="invoice"),
        build_dag(extractor.extract, step_id="again"),
        build_dag(extractor.extract_async),
        build_dag(partial(extractor.extract)),  # the same function
    ]

    results = [await executor.execute(dag, {"content": "page"}) for dag in dags]
    of_bytes = await executor.execute(dags[0], {"content": b"page"})

    hits = [step.is_cached for result in results for step in result.steps.values()]
    assert hits == [False, False, False, False, True]
    assert not of_bytes.steps["extract"].is_cached


async def test_the_order_of_keys_in_an_object_does_not_matter() -> None:
    executor = WorkflowExecutor()
    dag = build_dag(Extractor().extract)

    await executor.execute(dag, {"content": {"a": 1, "b": {"c": 2, "d": 3}}})
    result = await executor.execute(dag, {"content": {"b": {"d": 3, "c": 2}, "a": 1}})

    assert result.steps["extract"].is_cached


async def test_a_late_result_of_a_timed_out_function_is_not_cached() -> None:
    may_return = threading.Event()
    threads: list[threading.Thread] = []

    def hang_at_first(ctx: StepContext) -> str:
        if ctx.task.attempt > 1:
            return "in time"
        threads.append(threading.current_thread())
        may_return.wait(10)
        return "late"

    def release(_ctx: StepContext) -> None:
        may_return.set()

    dag = WorkflowDAG("document").add_step(
        "extract", hang_at_first, timeout_seconds=0.05, cache=StepCache(key=read_content)
    )
    dag.add_step("release", release, ["extract"])
    executor = WorkflowExecutor(retry=AT_ONCE)

    results = [await executor.execute(dag, {"content": "page"})]
    threads[0].join(10)  # the thread ends with its executor
    results.append(await executor.execute(dag, {"content": "page"}))

    assert [result.outputs["extract"] for result in results] == ["in time", "in time"]
    assert results[1].steps["extract"].is_cached


async def test_the_result_that_was_used_least_recently_is_evicted() -> None:
    cache = MemoryStepCache(FakeClock(), results_max=2)
    await cache.put("a", 1, ttl_s=60)
    await cache.put("b", 2, ttl_s=60)
    await cache.get("a")
    await cache.put("c", 3, ttl_s=60)

    assert [await cache.get(key) for key in "abc"] == [CachedResult(1), None, CachedResult(3)]
