"""Rate tokens: a task is parked without a slot for a short wait, and sent back for a long one."""

from typing import Any

import pytest

from runnel.authoring.context import Context
from runnel.core.commands import TaskCompleted, TaskDeferred, TaskFailed
from runnel.core.effects import TaskMessage
from runnel.core.workflow import RateLimit
from runnel.engine.worker.runner import STORE_RETRY_S, RateLimiter
from runnel.errors import StoreError
from runnel.testing.clock import FakeClock, settle
from tests.unit.engine.worker.worker_harness import WorkerHarness
from tests.waiting import wait_until


def limited(stage: WorkerHarness, *, rate: float | None = 1.0, node: str = "node") -> TaskMessage:
    return stage.task("output", {}, node=node, resource_tag="api", rate_per_second=rate)


async def test_tasks_run_at_the_rate_of_their_tag(frozen: WorkerHarness, clock: FakeClock) -> None:
    began: list[float] = []

    @frozen.handlers.handler("call")
    async def call(config: Any, ctx: Context) -> None:
        began.append(clock.monotonic())

    tasks = [frozen.task("call", resource_tag="api", rate_per_second=2.0) for _ in range(4)]
    async with frozen.working():
        await frozen.issue(*tasks)
        await clock.advance(3)
        await frozen.results(4)

    assert began == [0.0, 0.5, 1.0, 1.5]


async def test_each_value_of_a_template_has_a_rate_of_its_own(
    frozen: WorkerHarness, clock: FakeClock
) -> None:
    began: list[tuple[float, str]] = []

    @frozen.handlers.handler("call")
    async def call(config: Any, ctx: Context) -> None:
        began.append((clock.monotonic(), config["user"]))

    tag = "user-{{ input.user }}"
    tasks = [
        frozen.task(
            "call",
            {"user": user},
            resource_tag=tag,
            rate_per_second=2.0,
            execution_input={"user": user},
        )
        for user in ("ada", "ada", "bob", "bob")
    ]
    async with frozen.working():
        await frozen.issue(*tasks)
        await clock.advance(3)
        await frozen.results(4)

    assert sorted(began) == [(0.0, "ada"), (0.0, "bob"), (0.5, "ada"), (0.5, "bob")]


@pytest.mark.parametrize(
    ("tag", "problem"),
    [
        ("user-{{ input.user }}", "resource_tag: {{ input.user }}: 'input' has no 'user'"),
        ("{{ input }}", "resource_tag: {{ input }}: expected a number or a text of 1 to 500"),
    ],
)
async def test_a_tag_that_gives_no_name_fails_the_task(
    stage: WorkerHarness, tag: str, problem: str
) -> None:
    async with stage.working():
        await stage.issue(stage.task("output", resource_tag=tag, rate_per_second=2.0))
        [failed] = await stage.results(1)

    assert isinstance(failed, TaskFailed)
    assert failed.error.message.startswith(problem)


async def test_a_parked_task_holds_no_slot(frozen: WorkerHarness, clock: FakeClock) -> None:
    async with frozen.working(concurrency=1):
        await frozen.issue(limited(frozen), limited(frozen), frozen.task("output", node="free"))
        await settle()
        first_two = [report.token.node_id for report in await frozen.results(2)]
        await clock.advance(1)
        await frozen.results(3)

    assert first_two == ["node", "free"]


async def test_for_a_wait_above_five_seconds_the_task_goes_back_to_the_store(
    frozen: WorkerHarness, clock: FakeClock
) -> None:
    first, second = limited(frozen, rate=0.1), limited(frozen, rate=0.1, node="late")
    async with frozen.working():
        await frozen.issue(first, second)
        await settle()
        await frozen.results(1)
        reports = await frozen.read_reports()

    [deferred] = [report for report in reports if isinstance(report, TaskDeferred)]
    assert deferred.token == second.token
    assert deferred.until == clock.now() + 10
    assert frozen.telemetry.started_tokens == [first.token]


async def test_at_most_ten_tasks_per_slot_are_parked(
    frozen: WorkerHarness, clock: FakeClock
) -> None:
    async with frozen.working(concurrency=1) as worker:
        await frozen.issue(*(limited(frozen, rate=20.0) for _ in range(15)))
        await wait_until(lambda: len(frozen.telemetry.started_tokens) == 1 and worker.holds == 10)
        reports = list(await frozen.read_reports())
        await clock.advance(1)
        done = await frozen.results(11)

    assert len([report for report in reports if isinstance(report, TaskDeferred)]) == 4
    assert len(done) == 11


async def test_the_limits_of_the_worker_apply_where_the_workflow_has_none(
    frozen: WorkerHarness, clock: FakeClock
) -> None:
    table = {"api": RateLimit(rate_per_second=1.0, burst=2)}
    async with frozen.working(rate_limits=table):
        await frozen.issue(*(limited(frozen, rate=None) for _ in range(3)))
        await settle()
        at_once = len(frozen.telemetry.started_tokens)
        await clock.advance(1)
        await frozen.results(3)

    assert at_once == 2


async def test_a_tag_without_any_limit_does_not_wait(frozen: WorkerHarness) -> None:
    async with frozen.working():
        await frozen.issue(*(limited(frozen, rate=None) for _ in range(3)))

        assert len(await frozen.results(3)) == 3


async def test_a_parked_task_that_is_dropped_does_not_run(
    frozen: WorkerHarness, clock: FakeClock
) -> None:
    first, second = limited(frozen), limited(frozen)
    async with frozen.working() as worker:
        await frozen.issue(first, second)
        await settle()
        await frozen.drop(second.token)
        await clock.advance(5)
        held = worker.holds

    assert held == 0
    assert frozen.telemetry.started_tokens == [first.token]


async def test_a_parked_task_that_was_dropped_is_not_sent_back_by_a_shutdown(
    frozen: WorkerHarness,
) -> None:
    first, second = limited(frozen), limited(frozen)
    async with frozen.working():
        await frozen.issue(first, second)
        await settle()
        await frozen.drop(second.token)
        await settle()

    assert [type(report) for report in await frozen.read_reports()] == [TaskCompleted]
    assert frozen.telemetry.named("report.refused") == []


async def test_a_task_is_sent_back_if_the_store_fails_to_return_a_rate_token(
    frozen: WorkerHarness,
) -> None:
    async def away(*_arguments: object, **_named: object) -> float:
        raise StoreError("the store is away")

    frozen.backend.tasks.take_token = away  # type: ignore[method-assign]  # a fault
    async with frozen.working():
        await frozen.issue(limited(frozen))
        await settle()

    [deferred] = await frozen.read_reports()
    assert isinstance(deferred, TaskDeferred)
    assert deferred.until == frozen.clock.now() + STORE_RETRY_S
    assert deferred.reason == "the store is away"
    assert frozen.telemetry.started_tokens == []


TABLE = {"api": RateLimit(rate_per_second=5.0, burst=3)}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"rate_per_second": 1.0}, None),
        ({"resource_tag": "other"}, None),
        ({"resource_tag": "api"}, TABLE["api"]),
        (
            {"resource_tag": "api", "rate_per_second": 1.0, "burst": 2},
            RateLimit(rate_per_second=1.0, burst=2),
        ),
    ],
)
def test_the_limit_of_the_workflow_overrides_that_of_the_engine(
    frozen: WorkerHarness, fields: dict[str, Any], expected: RateLimit | None
) -> None:
    limits = RateLimiter(frozen.backend.tasks, TABLE)

    assert limits.find_limit(frozen.task("output", **fields)) == expected


async def test_parked_tasks_do_not_overtake_tasks_of_other_queues(
    frozen: WorkerHarness, clock: FakeClock
) -> None:
    began: list[str] = []

    @frozen.handlers.handler("work")
    async def work(config: Any, ctx: Context) -> None:
        began.append(ctx.node_id)
        await clock.sleep(1.0)

    limited_tasks = [
        frozen.task("work", node=f"t{n}", resource_tag="api", rate_per_second=10.0)
        for n in range(10)
    ]
    async with frozen.working(concurrency=1):
        await frozen.issue(*limited_tasks)
        await clock.advance(3)
        count_before = len(began)
        await frozen.issue(frozen.task("work", node="other", queue="other"))
        for _ in range(30):
            await clock.advance(0.5)
        await frozen.results(11)

    assert "other" in began[count_before : count_before + 2]
