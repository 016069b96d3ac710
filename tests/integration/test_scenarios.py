"""Typical workflows on every backend, with the real engine and worker."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runnel.app.embedded_engine import EmbeddedEngine
from runnel.core.retry import RetryPolicy
from runnel.core.run_when import RunWhen
from runnel.core.workflow import OnFailure, RateLimit, Workflow
from tests.core_driver import make_node, make_workflow
from tests.engines import (
    WorkHandler,
    flush_redis,
    get_node_states,
    open_engine,
    run_to_end,
    wait_for_end,
)
from tests.redis_postgres import open_archived_engine
from tests.waiting import wait_until

QUICK = RetryPolicy(max_retries=2, initial_delay=0.01, jitter=False)


@pytest.fixture
def work() -> WorkHandler:
    return WorkHandler()


@pytest.fixture(params=["memory", "sqlite", "redis", "redis and postgres"])
async def engine(
    request: pytest.FixtureRequest, tmp_path: Path, work: WorkHandler
) -> AsyncIterator[EmbeddedEngine]:
    kind = str(request.param)
    if kind == "redis and postgres":
        redis = request.getfixturevalue("shared_redis")
        postgres = request.getfixturevalue("shared_postgres")
        async with open_archived_engine(redis, postgres, work) as archived:
            yield archived.engine
        return
    url = flush_redis(request) if kind == "redis" else None
    async with open_engine(kind, tmp_path, work, redis_url=url) as opened:
        yield opened


async def test_a_linear_chain_passes_its_data_from_node_to_node(engine: EmbeddedEngine) -> None:
    definition = make_workflow(
        make_node("a", handler="input"),
        make_node("b", "a", config={"twice": ["{{ a.x }}", "{{ a.x }}"]}),
        make_node("c", "b", config={"text": "got {{ b.twice[1] }} of {{ input.x }}"}),
    )

    view = await run_to_end(engine, definition, {"x": 7})

    assert view.status == "COMPLETED"
    assert view.output == {"text": "got 7 of 7"}


async def test_a_fan_in_gets_the_outputs_of_all_its_parents(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    definition = make_workflow(
        make_node("a"),
        make_node("b", "a", config={"v": 1}),
        make_node("c", "a", config={"v": 2}),
        make_node("d", "b", "c"),
    )

    view = await run_to_end(engine, definition)

    assert view.output == {"b": {"v": 1}, "c": {"v": 2}}
    assert sorted(work.calls) == ["a", "b", "c", "d"]


def document_pipeline(**fields: object) -> Workflow:
    return make_workflow(
        make_node("extract"),
        make_node("save_parquet", "extract"),
        make_node("save_json", "extract"),
        make_node("record_metrics", "extract", condition="extract is defined"),
        make_node("create_review", "save_parquet", "save_json"),
        on_failure=OnFailure.CONTINUE,
        **fields,
    )


@pytest.mark.parametrize(
    ("failing", "expected"),
    [
        (
            "save_json",
            "COMPLETED COMPLETED FAILED COMPLETED SKIPPED",
        ),
        (
            "extract",
            "FAILED SKIPPED SKIPPED SKIPPED SKIPPED",
        ),
        (
            "record_metrics",
            "COMPLETED COMPLETED COMPLETED FAILED COMPLETED",
        ),
    ],
)
async def test_a_failed_step_of_the_document_pipeline_gives_the_expected_states(
    engine: EmbeddedEngine, work: WorkHandler, failing: str, expected: str
) -> None:
    work.failures[failing] = [ValueError("bad document")]

    view = await run_to_end(engine, document_pipeline())

    assert " ".join(get_node_states(view).values()) == expected
    assert view.status == "FAILED"


async def test_a_node_that_fails_twice_completes_after_retries(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    work.failures["a"] = [ConnectionError("refused"), TimeoutError("slow")]

    view = await run_to_end(engine, make_workflow(make_node("a", retry=QUICK)))

    assert view.status == "COMPLETED"
    assert view.nodes["a"].attempts == 3


async def test_exhausted_retries_fail_the_execution(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    work.failures["a"] = [ConnectionError("refused") for _ in range(9)]

    view = await run_to_end(engine, make_workflow(make_node("a", retry=QUICK), make_node("b", "a")))

    assert get_node_states(view) == {"a": "FAILED", "b": "CANCELLED"}
    assert work.calls == ["a", "a", "a"]
    assert "ConnectionError: refused" in (view.error or "")


async def test_a_task_is_stopped_and_retried_after_its_timeout(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    work.gate("a")
    policy = RetryPolicy(max_retries=1, initial_delay=0.01)

    view = await run_to_end(
        engine, make_workflow(make_node("a", timeout_seconds=0.05, retry=policy))
    )

    assert view.status == "FAILED"
    assert "timeout of 0.05 s" in (view.nodes["a"].error or "")
    assert work.calls == ["a", "a"]
    assert work.cancelled == ["a", "a"]


async def test_a_cancel_stops_the_running_code_and_runs_the_cleanup(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    work.gate("a")
    definition = make_workflow(
        make_node("a"), make_node("b", "a"), make_node("tidy", "a", run_when=RunWhen.ALL_SETTLED)
    )
    execution_id = await engine.client.submit(definition)
    await work.entered["a"].wait()

    await engine.client.cancel(execution_id, reason="no more")
    view = await wait_for_end(engine, execution_id)

    assert get_node_states(view) == {"a": "CANCELLED", "b": "CANCELLED", "tidy": "COMPLETED"}
    assert view.status == "CANCELLED"
    assert work.cancelled == ["a"]


@pytest.mark.parametrize("cause", ["cancel", "fail fast", "timeout"])
async def test_the_cleanup_runs_after_the_code_of_cancelled_tasks_has_ended(
    engine: EmbeddedEngine, work: WorkHandler, cause: str
) -> None:
    work.gate("slow")
    may_end = work.delay_end("slow")
    may_fail = work.gate("other")
    work.failures["other"] = [ValueError("bad")]
    tidy = make_node("tidy", "slow", "other", run_when=RunWhen.ALL_SETTLED)
    timeout_s = 0.5 if cause == "timeout" else None
    definition = make_workflow(
        make_node("slow"), make_node("other"), tidy, timeout_seconds=timeout_s
    )
    execution_id = await engine.client.submit(definition)
    await work.entered["slow"].wait()
    await work.entered["other"].wait()

    if cause == "cancel":
        await engine.client.cancel(execution_id)
    elif cause == "fail fast":
        may_fail.set()
    await wait_until(lambda: "slow" in work.cancelled)
    during = await engine.client.get(execution_id)
    may_end.set()
    view = await wait_for_end(engine, execution_id)

    assert get_node_states(during)["slow"] == "CANCELLED"
    assert get_node_states(during)["tidy"] == "PENDING"
    assert get_node_states(view)["tidy"] == "COMPLETED"
    assert work.ended.index("slow") < work.ended.index("tidy")


async def test_a_map_runs_over_a_list_from_a_former_node(engine: EmbeddedEngine) -> None:
    definition = make_workflow(
        make_node("list", config={"items": "{{ input.items }}"}),
        make_node("each", "list", for_each="list.items", config={"n": "{{ item }}"}),
    )

    view = await run_to_end(engine, definition, {"items": list(range(50))})

    assert view.output == [{"n": n} for n in range(50)]
    assert view.nodes["each"].items == 50


async def test_a_child_workflow_returns_its_output_to_the_parent(engine: EmbeddedEngine) -> None:
    child = Workflow(name="child", nodes=(make_node("c", config={"got": "{{ input.n }}"}),))
    parent = make_node(
        "sub", handler="workflow", config={"input": {"n": "{{ input.k }}"}}, child=child
    )

    view = await run_to_end(engine, make_workflow(parent), {"k": 3})

    assert view.output == {"got": 3}


async def test_an_execution_continues_after_a_sleep_and_an_approval(engine: EmbeddedEngine) -> None:
    definition = make_workflow(
        make_node("nap", handler="sleep", config={"seconds": 0.02}),
        make_node("ok", "nap", handler="wait_for_signal", config={"signal": "approve"}),
        make_node("after", "ok"),
    )
    execution_id = await engine.client.submit(definition)

    await engine.client.signal(execution_id, "approve", {"by": "eve"})
    view = await wait_for_end(engine, execution_id)

    assert view.output == {"ok": {"by": "eve"}}


async def test_a_large_output_is_offloaded_and_read_back_unchanged(engine: EmbeddedEngine) -> None:
    big = "x" * 400_000
    definition = make_workflow(
        make_node("a", config={"text": big}),
        make_node("b", "a", condition="a.text | length > 10", config={"copy": "{{ a.text }}"}),
    )

    view = await run_to_end(engine, definition)

    assert view.output == {"copy": big}


async def test_a_concurrency_key_is_never_exceeded(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    nodes = [make_node(f"n{i}", concurrency_key="db", concurrency_limit=2) for i in range(12)]

    view = await run_to_end(engine, make_workflow(*nodes))

    assert view.status == "COMPLETED"
    assert work.running_most <= 2


async def test_a_rate_limit_delays_the_tasks_of_its_tag(engine: EmbeddedEngine) -> None:
    nodes = [make_node(f"n{i}", resource_tag="api") for i in range(6)]
    limit = {"api": RateLimit(rate_per_second=50, burst=1)}

    view = await run_to_end(engine, make_workflow(*nodes, rate_limits=limit))

    starts = sorted(node.started_at or 0 for node in view.nodes.values())
    assert view.status == "COMPLETED"
    assert starts[-1] - starts[0] >= 5 / 50 * 0.8


async def test_a_resource_tag_with_a_template_limits_each_value(engine: EmbeddedEngine) -> None:
    tag = "user-{{ item }}"
    node = make_node("n", config={"v": 1}, for_each="input.users", resource_tag=tag)
    limit = {tag: RateLimit(rate_per_second=20, burst=1)}
    users = [f"{number % 2}" for number in range(6)]

    view = await run_to_end(engine, make_workflow(node, rate_limits=limit), {"users": users})

    assert view.status == "COMPLETED"
    assert (view.finished_at or 0) - (view.started_at or 0) >= 2 / 20 * 0.8


async def test_an_unknown_handler_fails_the_node_with_the_names_that_exist(
    engine: EmbeddedEngine,
) -> None:
    view = await run_to_end(engine, make_workflow(make_node("a", handler="wrok")))

    assert view.status == "FAILED"
    assert "no handler registered under 'wrok'" in (view.error or "")


async def test_a_held_execution_starts_with_its_trigger(engine: EmbeddedEngine) -> None:
    definition = make_workflow(make_node("a", handler="input"))
    execution_id = await engine.client.hold(definition)
    assert (await engine.client.get(execution_id)).status == "PENDING"

    await engine.client.trigger(execution_id, {"k": 1})

    assert (await wait_for_end(engine, execution_id)).output == {"k": 1}


async def test_a_new_execution_can_be_cancelled_at_once(engine: EmbeddedEngine) -> None:
    execution_id = await engine.client.submit(
        make_workflow(make_node("s", handler="sleep", config={"seconds": 60}))
    )

    await engine.client.cancel(execution_id)

    assert (await wait_for_end(engine, execution_id)).status == "CANCELLED"
