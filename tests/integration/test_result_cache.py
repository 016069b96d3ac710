"""`cache` on a node reuses an earlier result, on every backend."""

from pathlib import Path

import pytest

from runnel.app.embedded_engine import EmbeddedEngine
from runnel.backends.local.tasks import LocalResultCache
from runnel.core.retry import RetryPolicy
from runnel.core.workflow import Cache, RateLimit, Workflow
from runnel.engine.worker.result_cache import CACHED_RESULT_BYTES_MAX
from runnel.errors import StoreError
from runnel.testing.clock import FakeClock
from tests.core_driver import make_node, make_workflow
from tests.engines import WorkHandler, open_engine, run_to_end
from tests.integration.test_scenarios import engine, work

__all__ = ["engine", "work"]

ONCE = RetryPolicy(max_retries=0)


def make_cached_workflow(**fields: object) -> Workflow:
    options: dict[str, object] = {"config": {"n": "{{ input.n }}"}, "cache": Cache(), **fields}
    return make_workflow(make_node("a", **options), make_node("b", "a"))  # type: ignore[arg-type]


async def test_a_missing_value_in_a_key_names_the_key(engine: EmbeddedEngine) -> None:
    node = make_node("a", config={"v": 1}, cache=Cache(key="{{ input.user }}"))

    view = await run_to_end(engine, make_workflow(node), {})

    assert "cache.key: {{ input.user }}: 'input' has no" in (view.nodes["a"].error or "")


async def test_a_cached_node_with_the_same_config_runs_once(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    first = await run_to_end(engine, make_cached_workflow(), {"n": 1})
    second = await run_to_end(engine, make_cached_workflow(), {"n": 1, "other": 2})
    third = await run_to_end(engine, make_cached_workflow(), {"n": 2})

    assert work.calls == ["a", "b", "b", "a", "b"]
    assert first.output == second.output == {"a": {"n": 1}}
    assert third.output == {"a": {"n": 2}}
    reasons = [view.nodes["a"].reason for view in (first, second, third)]
    assert reasons == [None, "from the cache", None]


async def test_a_cache_hit_is_in_the_history_and_uses_no_token_of_a_rate_limit(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    slow = RateLimit(rate_per_second=0.01, burst=1)
    definition = make_workflow(
        make_node("a", config={"n": 1}, cache=Cache(), resource_tag="llm"),
        rate_limits={"llm": slow},
    )
    await run_to_end(engine, definition)

    again = await run_to_end(engine, definition)

    entries = await engine.client.history(again.execution_id)
    completed = [entry.fields for entry in entries if entry.event == "NodeCompleted"]
    assert [fields["is_cached"] for fields in completed] == [True]
    assert work.calls == ["a"]


async def test_the_cache_key_includes_the_outputs_of_parents_unless_it_is_set(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    def make_child_workflow(cache: Cache) -> Workflow:
        return make_workflow(make_node("in", handler="input"), make_node("a", "in", cache=cache))

    for number in (1, 2, 1):
        await run_to_end(engine, make_child_workflow(Cache()), {"n": number})
    assert work.calls == ["a", "a"]
    work.calls.clear()
    for number in (1, 2, 3):
        await run_to_end(
            engine, make_child_workflow(Cache(key="{{ input.day }}")), {"n": number, "day": "mon"}
        )

    assert work.calls == ["a"]


async def test_items_of_a_map_share_cached_results(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    definition = make_workflow(
        make_node("a", for_each="input.list", config={"n": "{{ item }}"}, cache=Cache()),
        max_concurrency=1,
    )

    view = await run_to_end(engine, definition, {"list": [1, 2, 1, 1, 3]})

    assert view.output == [{"n": number} for number in (1, 2, 1, 1, 3)]
    assert len(work.calls) == 3


async def test_a_failure_is_not_cached_and_a_large_result_is_cached_in_a_blob(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    large = {"text": "l" * 400_000}
    definition = make_workflow(make_node("a", config=large, cache=Cache(), retry=ONCE))
    work.failures["a"] = [ValueError("no")]

    states = [(await run_to_end(engine, definition)).status for _ in range(3)]

    assert states == ["FAILED", "COMPLETED", "COMPLETED"]
    assert work.calls == ["a", "a"]
    assert (await run_to_end(engine, definition)).output == large


async def test_a_result_that_is_too_large_is_not_cached(tmp_path: Path) -> None:
    work = WorkHandler()
    async with open_engine("memory", tmp_path, work) as engine:
        definition = make_workflow(
            make_node("a", config={"text": "{{ input.text }}"}, cache=Cache()),
        )
        text = "l" * (CACHED_RESULT_BYTES_MAX + 1)

        views = [await run_to_end(engine, definition, {"text": text}) for _ in range(2)]

    assert [view.status for view in views] == ["COMPLETED", "COMPLETED"]
    assert work.calls == ["a", "a"]


async def test_an_unavailable_cache_does_not_fail_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise StoreError("temporarily unavailable")

    work = WorkHandler()
    async with open_engine("memory", tmp_path, work) as engine:
        for name in ("get_cached_result", "put_cached_result"):
            monkeypatch.setattr(engine.backend.tasks, name, refuse)

        view = await run_to_end(engine, make_cached_workflow(), {"n": 1})

    assert (view.status, work.calls) == ("COMPLETED", ["a", "b"])


async def test_the_cache_in_memory_has_a_size_limit() -> None:
    results = LocalResultCache(FakeClock(), bytes_max=100)
    for name in "abc":
        await results.put_cached_result(name, b"x" * 40, ttl_s=60.0)

    kept = [name for name in "abc" if await results.get_cached_result(name) is not None]

    assert kept == ["b", "c"]
