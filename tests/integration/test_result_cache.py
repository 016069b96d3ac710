"""`cache` on a node, on every backend: an earlier result instead of another run."""

from pathlib import Path

import pytest

from runnel.app.engine import Engine
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


def cached(**fields: object) -> Workflow:
    options: dict[str, object] = {"config": {"n": "{{ input.n }}"}, "cache": Cache(), **fields}
    return make_workflow(make_node("a", **options), make_node("b", "a"))  # type: ignore[arg-type]


async def test_the_same_config_is_run_once(engine: Engine, work: WorkHandler) -> None:
    first = await run_to_end(engine, cached(), {"n": 1})
    second = await run_to_end(engine, cached(), {"n": 1, "other": 2})
    third = await run_to_end(engine, cached(), {"n": 2})

    assert work.calls == ["a", "b", "b", "a", "b"]
    assert first.output == second.output == {"a": {"n": 1}}
    assert third.output == {"a": {"n": 2}}
    reasons = [view.nodes["a"].reason for view in (first, second, third)]
    assert reasons == [None, "from the cache", None]


async def test_a_hit_is_in_the_history_and_takes_no_token_of_a_rate_limit(
    engine: Engine, work: WorkHandler
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


async def test_what_the_parents_gave_belongs_to_the_key_unless_it_is_stated(
    engine: Engine, work: WorkHandler
) -> None:
    def below(cache: Cache) -> Workflow:
        return make_workflow(make_node("in", handler="input"), make_node("a", "in", cache=cache))

    for number in (1, 2, 1):
        await run_to_end(engine, below(Cache()), {"n": number})
    assert work.calls == ["a", "a"]
    work.calls.clear()
    for number in (1, 2, 3):
        await run_to_end(engine, below(Cache(key="{{ input.day }}")), {"n": number, "day": "mon"})

    assert work.calls == ["a"]


async def test_items_of_a_map_share_results(engine: Engine, work: WorkHandler) -> None:
    definition = make_workflow(
        make_node("a", for_each="input.list", config={"n": "{{ item }}"}, cache=Cache()),
        max_concurrency=1,
    )

    view = await run_to_end(engine, definition, {"list": [1, 2, 1, 1, 3]})

    assert view.output == [{"n": number} for number in (1, 2, 1, 1, 3)]
    assert len(work.calls) == 3


async def test_a_failure_is_not_kept_and_a_large_result_is_stored_aside(
    engine: Engine, work: WorkHandler
) -> None:
    large = {"text": "l" * 400_000}
    definition = make_workflow(make_node("a", config=large, cache=Cache(), retry=ONCE))
    work.failures["a"] = [ValueError("no")]

    states = [(await run_to_end(engine, definition)).status for _ in range(3)]

    assert states == ["FAILED", "COMPLETED", "COMPLETED"]
    assert work.calls == ["a", "a"]
    assert (await run_to_end(engine, definition)).output == large


async def test_what_is_too_large_is_made_again(tmp_path: Path) -> None:
    work = WorkHandler()
    async with open_engine("memory", tmp_path, work) as engine:
        definition = make_workflow(
            make_node("a", config={"text": "{{ input.text }}"}, cache=Cache()),
        )
        text = "l" * (CACHED_RESULT_BYTES_MAX + 1)

        views = [await run_to_end(engine, definition, {"text": text}) for _ in range(2)]

    assert [view.status for view in views] == ["COMPLETED", "COMPLETED"]
    assert work.calls == ["a", "a"]


async def test_a_store_that_does_not_answer_is_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise StoreError("gone for a moment")

    work = WorkHandler()
    async with open_engine("memory", tmp_path, work) as engine:
        for name in ("get_cached_result", "put_cached_result"):
            monkeypatch.setattr(engine.backend.tasks, name, refuse)

        view = await run_to_end(engine, cached(), {"n": 1})

    assert (view.status, work.calls) == ("COMPLETED", ["a", "b"])


async def test_memory_keeps_a_bounded_number_of_bytes() -> None:
    results = LocalResultCache(FakeClock(), bytes_max=100)
    for name in "abc":
        await results.put_cached_result(name, b"x" * 40, ttl_s=60.0)

    kept = [name for name in "abc" if await results.get_cached_result(name) is not None]

    assert kept == ["b", "c"]
