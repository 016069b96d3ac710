"""Details of a node: attempts, config, inputs, log lines and output."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from runnel.app.embedded_engine import EmbeddedEngine
from runnel.authoring.context import Context
from runnel.client.shown_values import SHOWN_BYTES_MAX
from runnel.core.ids import ExecutionId
from runnel.core.retry import RetryPolicy
from runnel.core.states import NodeState
from runnel.core.values import INLINE_BYTES_MAX, LOG_LINE_CHARS_MAX, LOG_LINES_MAX, Json
from runnel.core.workflow import Cache
from runnel.errors import NotFoundError
from runnel.views import build_document
from runnel.views.node import AttemptOutcome
from tests.core_driver import make_node, make_workflow
from tests.engines import WorkHandler, flush_redis, open_engine, run_to_end, wait_for_end

SECRET = "s3cret-value"
NO_DELAY = RetryPolicy(max_retries=2, initial_delay=0.0, jitter=False)


class LoggingHandler(WorkHandler):
    """Logs the lines of its config key `say`, then works as usual."""

    async def __call__(self, config: Json, ctx: Context) -> Json:
        for line in config.pop("say", ()):
            ctx.logger.info("%s", line)
        return await super().__call__(config, ctx)


@pytest.fixture
def work() -> WorkHandler:
    return LoggingHandler()


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def engine(
    request: pytest.FixtureRequest, tmp_path: Path, work: WorkHandler
) -> AsyncIterator[EmbeddedEngine]:
    url = flush_redis(request) if request.param == "redis" else None
    async with open_engine(
        request.param, tmp_path, work, redis_url=url, secrets={"token": SECRET}
    ) as opened:
        yield opened


async def test_attempts_config_inputs_and_log_lines_of_a_node_are_shown(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    config = {"n": "{{ a.n }}", "key": "{{ secrets.token }}", "say": ["{{ secrets.token }} used"]}
    work.failures["b"] = [ConnectionError("away"), None]
    flow = make_workflow(
        make_node("a", config={"n": 7}), make_node("b", "a", config=config, retry=NO_DELAY)
    )
    view = await run_to_end(engine, flow)

    detail = await engine.client.node(ExecutionId(view.execution_id), "b")

    first, second = detail.attempts
    assert (first.number, first.outcome, second.number) == (1, AttemptOutcome.FAILED, 2)
    assert second.outcome is AttemptOutcome.COMPLETED
    assert first.error is not None
    assert str(first.error) == "ConnectionError: away"
    assert "raise error" in (first.error.traceback or "")
    assert first.worker == second.worker != ""
    for attempt in (first, second):
        assert attempt.queued_at is not None
        assert attempt.started_at is not None
        assert attempt.finished_at is not None
        [line] = attempt.logs
        assert (line.level, SECRET in line.text, line.text.endswith(" used")) == (
            *("info", False),
            True,
        )
    assert detail.config == {
        "n": 7,
        "key": "{{ secrets.token }}",
        "say": ["{{ secrets.token }} used"],
    }
    assert (detail.inputs, detail.dependencies) == ({"a": {"n": 7}}, {"a": NodeState.COMPLETED})
    assert (detail.status, detail.error, detail.items) == (NodeState.COMPLETED, None, None)
    assert SECRET not in str(detail)
    assert detail.output == view.nodes["b"].output


async def test_only_the_last_log_lines_of_an_attempt_are_kept(
    engine: EmbeddedEngine,
) -> None:
    lines = [f"line {number}" for number in range(100)] + ["x" * 5_000]
    flow = make_workflow(make_node("loud", config={"say": lines}), make_node("silent", config={}))
    view = await run_to_end(engine, flow)
    id_ = ExecutionId(view.execution_id)

    loud = await engine.client.node(id_, "loud")
    silent = await engine.client.node(id_, "silent")
    history = await engine.client.history(id_)

    kept = [line.text for line in loud.attempts[0].logs]
    assert len(kept) == LOG_LINES_MAX
    assert (kept[0], kept[-2]) == (f"line {101 - LOG_LINES_MAX}", "line 99")
    assert kept[-1] == "x" * (LOG_LINE_CHARS_MAX - 1) + "…"
    assert silent.attempts[0].logs == ()
    assert [entry.fields["node"] for entry in history if entry.fields.get("logs")] == ["loud"]


async def test_items_of_a_map_are_shown_in_pages_and_individually(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    flow = make_workflow(
        make_node("list", config={"all": list(range(7))}),
        make_node("each", "list", for_each="list.all", config={"v": "{{ item }}"}),
    )
    view = await run_to_end(engine, flow)
    id_ = ExecutionId(view.execution_id)

    first = await engine.client.node(id_, "each", items_limit=4)
    assert first.items is not None
    second = await engine.client.node(id_, "each", items_after=first.items.next or 0, items_limit=4)
    sixth = await engine.client.node(id_, "each", item=5)

    assert second.items is not None
    assert (first.items.count, first.items.settled, first.items.next) == (7, 7, 3)
    assert [item.item for item in (*first.items.items, *second.items.items)] == list(range(7))
    assert [item.output for item in second.items.items] == [{"v": 4}, {"v": 5}, {"v": 6}]
    assert {item.status for item in first.items.items} == {NodeState.COMPLETED}
    assert second.items.next is None
    assert (sixth.item, sixth.config, sixth.output, sixth.items) == (5, {"v": 5}, {"v": 5}, None)
    assert [(attempt.number, attempt.outcome) for attempt in sixth.attempts] == [
        (1, AttemptOutcome.COMPLETED)
    ]


async def test_a_failed_item_shows_its_error_and_the_others_their_states(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    work.failures["each"] = [None, ValueError("bad item")]
    flow = make_workflow(
        make_node("list", config={"all": list(range(4))}),
        make_node(
            "each", "list", for_each="list.all", config={"v": "{{ item }}", "say": ["hello"]}
        ),
        max_concurrency=1,
    )
    view = await run_to_end(engine, flow)

    detail = await engine.client.node(ExecutionId(view.execution_id), "each")
    failed = await engine.client.node(ExecutionId(view.execution_id), "each", item=1)

    assert detail.items is not None
    assert [item.status for item in detail.items.items] == [
        NodeState.COMPLETED,
        NodeState.FAILED,
        NodeState.CANCELLED,
        NodeState.CANCELLED,
    ]
    assert str(detail.error) == "ValueError: each[1]: bad item"
    assert str(failed.error) == "ValueError: bad item"
    assert [line.text for line in failed.attempts[0].logs] == ["hello"]
    assert failed.attempts[0].worker != ""


async def test_a_node_that_has_not_settled_shows_its_reason_to_wait(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    gate = work.gate("inner")
    flow = make_workflow(
        make_node(
            "child",
            handler="workflow",
            child=make_workflow(make_node("inner")),
            config={"input": {}},
        ),
        make_node("ok", handler="wait_for_signal", config={"signal": "go"}),
        make_node("last", "child", "ok"),
    )
    id_ = await engine.client.submit(flow)
    await work.entered["inner"].wait()

    child, ok, last = [
        await engine.client.node(id_, node_id) for node_id in ("child", "ok", "last")
    ]
    gate.set()
    await engine.client.signal(id_, "go", {"by": "me"})
    await wait_for_end(engine, id_)
    ended = await engine.client.node(id_, "child")

    assert child.child_id is not None
    assert child.waits_for == f"child execution {child.child_id}"
    assert (ok.waits_for, ok.status, ok.config) == (
        "signal 'go'",
        NodeState.WAITING,
        {"signal": "go"},
    )
    assert (last.waits_for, last.attempts, last.config) == ("nodes child, ok", [], None)
    assert (ended.child_id, ended.attempts[-1].outcome) == (
        child.child_id,
        AttemptOutcome.COMPLETED,
    )
    assert (await engine.client.get(ExecutionId(child.child_id))).status == "COMPLETED"


async def test_a_cached_result_and_a_large_value_are_marked(engine: EmbeddedEngine) -> None:
    large, largest = "x" * (INLINE_BYTES_MAX + 1), "y" * (SHOWN_BYTES_MAX + 1)
    flow = make_workflow(
        make_node("a", config={"large": "{{ input.large }}"}),
        make_node("b", config={"largest": "{{ input.largest }}"}),
        make_node(
            "c", "a", "b", config={"size": "{{ a.large | length }}"}, cache=Cache(ttl_seconds=60)
        ),
    )
    values = {"large": large, "largest": largest}
    await run_to_end(engine, flow, values)
    view = await run_to_end(engine, flow, values)

    detail = await engine.client.node(ExecutionId(view.execution_id), "c")

    assert (detail.is_cached, detail.reason) == (True, "from the cache")
    assert detail.config == {"size": len(large)}
    assert detail.inputs == {"a": None, "b": None}
    sizes = {name: preview.size for name, preview in detail.input_previews.items()}
    assert sizes == {
        name: len(msgspec.json.encode(value))
        for name, value in (("a", {"large": large}), ("b", {"largest": largest}))
    }


async def test_a_config_that_can_not_be_resolved_shows_the_reason(engine: EmbeddedEngine) -> None:
    flow = make_workflow(
        make_node("a", config={}), make_node("b", "a", config={"x": "{{ a.nothing }}"})
    )
    view = await run_to_end(engine, flow)

    detail = await engine.client.node(ExecutionId(view.execution_id), "b")

    assert detail.config is None
    assert "nothing" in (detail.config_error or "")
    assert detail.status is NodeState.FAILED


async def test_the_error_names_an_unknown_node_or_item(engine: EmbeddedEngine) -> None:
    view = await run_to_end(engine, make_workflow(make_node("alpha")))
    id_ = ExecutionId(view.execution_id)

    with pytest.raises(NotFoundError, match=r"no node 'alpa'.*alpha"):
        await engine.client.node(id_, "alpa")
    with pytest.raises(NotFoundError, match=r"no item 'alpha\[0\]'; the node is not a map"):
        await engine.client.node(id_, "alpha", item=0)
    with pytest.raises(NotFoundError):
        await engine.client.node(ExecutionId("nobody"), "alpha")


async def test_the_document_of_a_node_has_timestamps_as_text(engine: EmbeddedEngine) -> None:
    view = await run_to_end(engine, make_workflow(make_node("a", config={"say": ["hello"]})))

    document = build_document(await engine.client.node(ExecutionId(view.execution_id), "a"))

    [attempt] = document["attempts"]
    assert document["started_at"].endswith("Z")
    assert attempt["queued_at"].endswith("Z")
    assert attempt["logs"][0] == {
        "level": "info",
        "text": "hello",
        "at": attempt["logs"][0]["at"],
    }
    assert attempt["logs"][0]["at"].endswith("Z")
    assert msgspec.json.decode(msgspec.json.encode(document)) == document
