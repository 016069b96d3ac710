"""Calls of handlers: their arguments, where they run, and how their results are reported."""

import asyncio
import contextvars
import logging
import os
import threading
from typing import Any

import pytest

from runnel.authoring.context import Context
from runnel.core.commands import TaskCompleted, TaskSkipped
from runnel.core.ids import TaskToken
from runnel.core.values import BLOB_BYTES_MAX, INLINE_BYTES_MAX, make_blob_reference
from runnel.engine.worker.slots import Slots
from runnel.errors import Skip, StoreError
from tests.unit.engine.worker.worker_harness import WorkerHarness


async def test_a_handler_gets_its_resolved_config_and_its_result_is_reported(
    stage: WorkerHarness,
) -> None:
    @stage.handlers.handler("double")
    async def double(config: Any, ctx: Context) -> Any:
        return {"sum": config["n"] * 2, "who": config["who"]}

    task = stage.task(
        "double",
        {"n": "{{ count.value }}", "who": "hello {{ input.name }}"},
        inputs={"count": {"value": 21}},
        execution_input={"name": "Ada"},
    )

    assert await stage.output(task) == {"sum": 42, "who": "hello Ada"}


async def test_templates_can_read_the_execution_the_item_and_distant_nodes(
    stage: WorkerHarness,
) -> None:
    task = stage.task(
        "output",
        {"of": "{{ execution.workflow }}", "item": "{{ item.n }}", "far": "{{ nodes['a-b'].x }}"},
        inputs={"near": 1, "a-b": {"x": 2}},
        parents=1,
        item={"n": 7},
    )

    assert await stage.output(task) == {"of": "flow", "item": 7, "far": 2}


async def test_a_template_with_a_missing_value_fails_the_task_without_a_retry(
    stage: WorkerHarness,
) -> None:
    task = stage.task("output", {"x": "{{ fetch.nope }}"}, inputs={"fetch": {"yes": 1}})

    failed = await stage.error(task)

    assert failed.error.type == "MissingValueError"
    assert "nope" in failed.error.message
    assert failed.error.retryable is False


async def test_a_handler_may_change_its_config_without_changing_that_of_the_next(
    stage: WorkerHarness,
) -> None:
    seen: list[Any] = []

    @stage.handlers.handler("greedy")
    async def greedy(config: Any, ctx: Context) -> None:
        seen.append([len(config["fixed"]["list"]), len(config["list"])])
        config["fixed"]["list"].append("mine")
        config["list"].append("mine")

    config = {"fixed": {"list": []}, "list": [], "changing": "{{ input }}"}
    async with stage.working():
        await stage.issue(*(stage.task("greedy", config) for _ in range(3)))
        await stage.results(3)

    assert seen == [[0, 0]] * 3


async def test_the_context_names_the_attempt_and_holds_the_outputs_of_the_parents(
    stage: WorkerHarness,
) -> None:
    @stage.handlers.handler("look")
    async def look(config: Any, ctx: Context) -> Any:
        return {
            "inputs": dict(ctx.inputs),
            "ids": [ctx.execution_id, ctx.node_id, ctx.attempt, ctx.item_index],
            "key": ctx.idempotency_key,
            "far": "far" in ctx.inputs,
            "input": ctx.execution_input,
        }

    task = stage.task(
        "look", {}, inputs={"a": [1], "b": None, "far": 3}, parents=2, execution_input={"k": 1}
    )

    assert await stage.output(task) == {
        "inputs": {"a": [1], "b": None},
        "ids": ["x1", "node", 1, None],
        "key": "x1/node",
        "far": False,
        "input": {"k": 1},
    }


async def test_an_unread_input_is_never_decoded(stage: WorkerHarness) -> None:
    broken = stage.task("output", {"x": "{{ good }}"}, inputs={"good": 1, "bad": 2})
    broken.inputs["bad"] = type(broken.inputs["bad"])(data=b"{not json")  # type: ignore[index,arg-type]  # plain ids and bytes will do

    assert await stage.output(broken) == {"x": 1}


async def test_synchronous_functions_run_in_threads_side_by_side(stage: WorkerHarness) -> None:
    both_there = threading.Barrier(2, timeout=5)

    @stage.handlers.handler("sync")
    def sync(config: Any, ctx: Context) -> Any:
        both_there.wait()
        return threading.current_thread() is threading.main_thread()

    async with stage.working():
        await stage.issue(stage.task("sync"), stage.task("sync"))
        results = await stage.results(2)

    assert [r.output.decode() for r in results if isinstance(r, TaskCompleted)] == [False, False]


async def test_asynchronous_handlers_that_wait_run_side_by_side(stage: WorkerHarness) -> None:
    entered: list[int] = []
    all_entered = asyncio.Event()

    @stage.handlers.handler("meet")
    async def meet(config: Any, ctx: Context) -> None:
        entered.append(1)
        if len(entered) == 4:
            all_entered.set()
        await all_entered.wait()

    async with stage.working(concurrency=4):
        await stage.issue(*(stage.task("meet") for _ in range(4)))
        results = await stage.results(4)

    assert len(results) == 4


async def test_an_async_function_inside_a_lambda_runs_on_the_loop(
    stage: WorkerHarness,
) -> None:
    loop = asyncio.get_running_loop()

    async def work() -> bool:
        await asyncio.sleep(0)
        return asyncio.get_running_loop() is loop

    stage.handlers.register("indirect", lambda _config, _ctx: work())

    assert await stage.output(stage.task("indirect")) is True


async def test_a_handler_may_use_timeouts_and_task_groups(
    stage: WorkerHarness,
) -> None:
    async def said(word: str) -> str:
        await asyncio.sleep(0)
        return word

    @stage.handlers.handler("nested")
    async def nested(config: Any, ctx: Context) -> Any:
        before = asyncio.current_task()
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            async with asyncio.TaskGroup() as group:
                inner = group.create_task(said("inner"))
            return [inner.result(), before is asyncio.current_task()]

    assert await stage.output(stage.task("nested")) == ["inner", True]


async def test_context_variables_of_one_task_do_not_reach_the_next(stage: WorkerHarness) -> None:
    var: contextvars.ContextVar[str] = contextvars.ContextVar("var", default="clean")

    @stage.handlers.handler("bind")
    async def bind(config: Any, ctx: Context) -> Any:
        found = var.get()
        var.set("dirty")
        await asyncio.sleep(0)
        return [found, var.get()]

    async with stage.working(concurrency=1):
        await stage.issue(stage.task("bind"), stage.task("bind"))
        results = await stage.results(2)

    outputs = [r.output.decode() for r in results if isinstance(r, TaskCompleted)]
    assert outputs == [["clean", "dirty"]] * 2


@pytest.mark.parametrize("mode", ["loop", "thread"])
@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), ZeroDivisionError("x")]
)
async def test_any_exception_of_user_code_is_the_error_of_its_task(
    stage: WorkerHarness, error: BaseException, mode: str
) -> None:
    def boom(config: Any, ctx: Context) -> Any:
        raise error

    stage.handlers.register("boom", boom, mode=mode)
    async with stage.working():
        await stage.issue(stage.task("boom"), stage.task("output", {"still": "alive"}))
        results = await stage.results(2)

    by_kind = {type(result).__name__: result for result in results}
    assert by_kind["TaskFailed"].error.type == type(error).__name__  # type: ignore[union-attr]  # by its key
    assert "TaskCompleted" in by_kind


@pytest.mark.parametrize("mode", ["loop", "thread"])
async def test_a_handler_may_skip_its_node(stage: WorkerHarness, mode: str) -> None:
    def skips(config: Any, ctx: Context) -> None:
        raise Skip("nothing to do")

    stage.handlers.register("skips", skips, mode=mode)
    skipped = await stage.run(stage.task("skips"))

    assert isinstance(skipped, TaskSkipped)
    assert skipped.reason == "nothing to do"


async def test_a_skip_reason_with_any_content_can_be_stored(stage: WorkerHarness) -> None:
    @stage.handlers.handler("skips")
    async def skips(config: Any, ctx: Context) -> None:
        raise Skip(os.fsdecode(b"no rows in \xff.csv"))

    skipped = await stage.run(stage.task("skips"))

    assert isinstance(skipped, TaskSkipped)
    assert skipped.reason == r"no rows in \udcff.csv"


async def test_a_cancelled_error_raised_by_user_code_fails_the_task(
    stage: WorkerHarness,
) -> None:
    @stage.handlers.handler("odd")
    async def odd(config: Any, ctx: Context) -> None:
        raise asyncio.CancelledError

    failed = await stage.error(stage.task("odd"))

    assert failed.error.type == "CancelledError"


async def test_the_error_for_an_unknown_handler_lists_the_registered_ones(
    stage: WorkerHarness,
) -> None:
    failed = await stage.error(stage.task("nosuch"))

    assert failed.error.type == "HandlerNotFoundError"
    assert "data_processor" in failed.error.message


async def test_a_large_result_is_offloaded_before_it_is_reported(stage: WorkerHarness) -> None:
    text = "x" * (INLINE_BYTES_MAX + 1)

    result = await stage.run(stage.task("output", {"text": "{{ input }}"}, execution_input=text))

    assert isinstance(result, TaskCompleted)
    key = f"x1/node/-1/1-{result.token.nonce}"
    assert result.output.blob == key
    assert len(await stage.backend.blobs.get(key)) == result.output.size


async def test_a_result_above_the_largest_blob_fails_the_task(stage: WorkerHarness) -> None:
    @stage.handlers.handler("huge")
    async def huge(config: Any, ctx: Context) -> Any:
        return "x" * BLOB_BYTES_MAX

    failed = await stage.error(stage.task("huge"))

    assert "return its address" in failed.error.message
    assert failed.error.retryable is False


@pytest.mark.parametrize("call", ["put", "get"])
async def test_a_blob_store_that_is_down_does_not_fail_the_task(
    stage: WorkerHarness, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.backend.blobs.put("k1", b'"from a blob"')
    errors = [StoreError("away")]
    real = getattr(stage.backend.blobs, call)

    async def away_once(*args: Any) -> Any:
        if errors:
            raise errors.pop()
        return await real(*args)

    monkeypatch.setattr(stage.backend.blobs, call, away_once)

    task = stage.task(
        "output",
        {"x": "{{ far }}", "large": "x" * INLINE_BYTES_MAX},
        inputs={"far": make_blob_reference("k1", 13)},
        parents=0,
    )
    async with stage.working():
        await stage.issue(task)
        (result,) = await stage.results()

    assert isinstance(result, TaskCompleted)
    assert stage.telemetry.named("store.failed") == [
        {"worker": "w1", "call": call, "error": "away"}
    ]


async def test_blobs_are_loaded_for_templates_that_name_them_and_for_parents(
    stage: WorkerHarness,
) -> None:
    await stage.backend.blobs.put("k1", b'{"v": "from a blob"}')
    await stage.backend.blobs.put("k2", b'"parent"')

    @stage.handlers.handler("both")
    async def both(config: Any, ctx: Context) -> Any:
        return [config["x"], ctx.inputs["up"]]

    task = stage.task(
        "both",
        {"x": "{{ far.v }}"},
        inputs={
            "up": make_blob_reference("k2", 8),
            "far": make_blob_reference("k1", 20),
            "unused": make_blob_reference("gone", 5),
        },
        parents=1,
    )

    assert await stage.output(task) == ["from a blob", "parent"]


async def test_a_blob_is_read_once_and_the_next_task_that_needs_it_does_not_wait(
    stage: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.backend.blobs.put("x1/input/shared", b'{"n": 3}')
    read, suspended = list[str](), list[Slots]()
    real_get, real_waits = stage.backend.blobs.get, Slots.note_suspended

    async def get(key: str) -> bytes:
        read.append(key)
        return await real_get(key)

    def waits_too(slots: Slots) -> None:
        suspended.append(slots)
        real_waits(slots)

    monkeypatch.setattr(stage.backend.blobs, "get", get)
    monkeypatch.setattr(Slots, "note_suspended", waits_too)

    @stage.handlers.handler("sum")
    async def sum_(config: Any, ctx: Context) -> Any:
        return ctx.execution_input["n"] + config["n"]

    shared = make_blob_reference("x1/input/shared", 8)
    async with stage.working():
        for number in range(3):
            task = stage.task("sum", {"n": "{{ input.n }}"}, execution_input=shared)
            await stage.issue(task)
            await stage.results(expected=number + 1)

    outputs = [
        report.output.decode() for report in stage.ended() if isinstance(report, TaskCompleted)
    ]
    assert outputs == [6, 6, 6]
    assert read == ["x1/input/shared"]
    assert len(suspended) == 1


async def test_metrics_and_log_lines_of_a_handler_carry_its_ids(
    stage: WorkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    @stage.handlers.handler("loud")
    def loud(config: Any, ctx: Context) -> None:
        ctx.metrics.count("pages", 3, kind="a")
        ctx.logger.warning("half-way", extra={"page": 2})

    with caplog.at_level(logging.INFO, "runnel.handler.loud"):
        await stage.output(stage.task("loud"))

    [metric] = stage.telemetry.named("handler.metric")
    assert metric["metric"] == "pages"
    assert metric["value"] == 3
    assert metric["node_id"] == "node"
    [record] = [
        candidate for candidate in caplog.records if candidate.name == "runnel.handler.loud"
    ]
    assert record.__dict__["execution_id"] == "x1"
    assert record.__dict__["page"] == 2


async def test_each_start_is_reported_to_telemetry_at_once(stage: WorkerHarness) -> None:
    task = stage.task("output")

    await stage.output(task)

    expected: list[TaskToken] = [task.token]
    assert stage.telemetry.started_tokens == expected
