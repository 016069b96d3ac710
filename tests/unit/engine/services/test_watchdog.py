"""The watchdog finds executions without the work that they wait for, and repairs them."""

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.core.workflow import Workflow, encode_workflow, hash_workflow
from runnel.engine.orchestrator.orchestrator import Orchestrator
from runnel.engine.services.watchdog import Watchdog
from runnel.errors import StoreError
from runnel.testing.clock import settle
from tests.core_driver import make_node, make_workflow
from tests.unit.engine.orchestrator.orchestrator_harness import OrchestratorHarness

REPAIR_AFTER_S = 60.0
CHILD = make_workflow(make_node("inner"))
WORK = make_workflow(make_node("a"))
NAP = make_workflow(make_node("nap", handler="sleep", config={"seconds": 1_000}))
TIMED = replace(make_workflow(make_node("a")), timeout_seconds=1_000.0)
PARENT = make_workflow(make_node("c", handler="workflow", child=CHILD))
KEYED = make_workflow(make_node("one", concurrency_key="k"), make_node("two", concurrency_key="k"))
SIGNALLED = make_workflow(make_node("s", handler="wait_for_signal", config={"signal": "go"}))


def lose_the_tasks(harness: "WatchdogHarness") -> None:
    state = harness.state
    for token in list(state.board._entries):  # noqa: SLF001 - what no rule allows
        state.board.drop(token)


def lose_the_timers(harness: "WatchdogHarness") -> None:
    state = harness.state
    for timer in state.partitions[0].timers.all():
        state.partitions[0].timers.clear(timer.key)


def lose_the_child(harness: "WatchdogHarness") -> None:
    for name in [name for name in harness.state.headers if "." in name]:
        del harness.state.headers[name]


def lose_the_key(harness: "WatchdogHarness") -> None:
    del harness.state.histories["limit:k"]
    [owner] = harness.orchestrator.owners()
    owner._aggregates.forget("limit:k")  # noqa: SLF001 - as the owner of another partition would


Sabotage = Callable[["WatchdogHarness"], None]


class WatchdogHarness:
    def __init__(self, stage: OrchestratorHarness, orchestrator: Orchestrator) -> None:
        self.stage = stage
        self.orchestrator = orchestrator
        self.state = stage.backend.state
        self.watchdog = Watchdog(stage.parts, orchestrator, repair_after_s=REPAIR_AFTER_S)
        self.never = asyncio.Event()

    async def begin(self, definition: Workflow) -> ExecutionId:
        hash_, document = hash_workflow(CHILD), encode_workflow(CHILD)
        await self.stage.backend.archive.put_definition("child", hash_, document)
        execution_id = await self.stage.create(definition)
        await settle()
        return execution_id

    async def sweep_after(self, seconds: float) -> int:
        await self.stage.clock.advance(seconds)
        repaired = await self.watchdog.sweep(self.never)
        await settle()
        return repaired


@pytest.mark.parametrize(
    ("definition", "sabotage", "problem"),
    [
        (WORK, lose_the_tasks, "a task is lost"),
        (NAP, lose_the_timers, "a timer is not set"),
        (TIMED, lose_the_timers, "a timer is not set"),
        (PARENT, lose_the_child, "it waits for x1.c.1, which is not running"),
        (KEYED, lose_the_key, "two is not queued for the key 'k'"),
    ],
    ids=["task", "timer", "time limit", "child", "key"],
)
async def test_work_that_is_missing_for_long_enough_is_repaired_once(
    definition: Workflow, sabotage: Sabotage, problem: str
) -> None:
    stage = OrchestratorHarness()
    async with stage.orchestrating() as orchestrator:
        harness = WatchdogHarness(stage, orchestrator)
        await harness.begin(definition)
        sabotage(harness)
        early = [await harness.sweep_after(0), await harness.sweep_after(REPAIR_AFTER_S - 1)]
        on_time = await harness.sweep_after(1)
        later = [await harness.sweep_after(15) for _ in range(10)]

    problems = [fields["problem"] for fields in stage.telemetry.named("execution.repaired")]
    assert early == [0, 0]
    assert on_time >= 1
    assert problem in problems
    assert sum(later) == 0
    assert harness.watchdog.repaired == on_time == len(problems)


@pytest.mark.parametrize(
    "definition",
    [WORK, NAP, TIMED, PARENT, KEYED, SIGNALLED],
    ids=["task", "timer", "time limit", "child", "key", "signal"],
)
async def test_an_execution_with_work_in_flight_is_not_repaired(definition: Workflow) -> None:
    stage = OrchestratorHarness()
    async with stage.orchestrating() as orchestrator:
        harness = WatchdogHarness(stage, orchestrator)
        await harness.begin(definition)
        repair_counts = [await harness.sweep_after(15) for _ in range(10)]

    assert repair_counts == [0] * 10
    assert stage.telemetry.named("execution.repaired") == []


async def test_work_that_is_missing_only_sometimes_is_not_repaired() -> None:
    stage = OrchestratorHarness()
    async with stage.orchestrating() as orchestrator:
        harness = WatchdogHarness(stage, orchestrator)
        await harness.begin(NAP)
        [timer] = harness.state.partitions[0].timers.all()
        repair_counts = []
        for _ in range(5):
            lose_the_timers(harness)
            repair_counts.append(await harness.sweep_after(REPAIR_AFTER_S / 2))
            harness.state.partitions[0].timers.set(timer)
            repair_counts.append(await harness.sweep_after(REPAIR_AFTER_S / 2))

    assert repair_counts == [0] * 10


async def test_an_execution_that_has_ended_and_is_still_listed_as_running_is_corrected() -> None:
    stage = OrchestratorHarness()
    async with stage.orchestrating() as orchestrator:
        harness = WatchdogHarness(stage, orchestrator)
        execution_id = await harness.begin(NAP)
        running = harness.state.headers[execution_id]
        await stage.clock.advance(1_100)
        harness.state.headers[execution_id] = running
        await harness.sweep_after(0)
        repaired = await harness.sweep_after(REPAIR_AFTER_S)

    assert repaired == 1
    assert (await stage.header(execution_id)).state is ExecutionState.COMPLETED


async def test_an_entry_that_stays_unread_for_too_long_is_reported() -> None:
    stage = OrchestratorHarness(partitions=2)
    store = stage.backend.store

    async def unread_s(partition: int) -> float:
        return 31.0 if partition == 1 else 29.0

    store.unread_s = unread_s  # type: ignore[method-assign]  # the memory keeps no such time
    async with stage.orchestrating() as orchestrator:
        harness = WatchdogHarness(stage, orchestrator)
        await harness.sweep_after(0)

    assert stage.telemetry.named("inbox.stale") == [{"partition": 1, "unread_s": 31.0}]


async def test_a_sweep_is_repeated_after_a_failure_of_the_store() -> None:
    stage = OrchestratorHarness()
    store = stage.backend.store
    running, calls = store.running, 0

    async with stage.orchestrating() as orchestrator:
        await settle()

        async def fails_once(partition: int) -> object:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise StoreError("away")
            return await running(partition)

        store.running = fails_once  # type: ignore[method-assign,assignment]  # a fault
        dog = Watchdog(stage.parts, orchestrator)
        async with asyncio.TaskGroup() as group:
            group.create_task(dog.run(stage.stop))
            await stage.clock.advance(16)
            stage.stop.set()

    assert calls == 2
    assert [fields["call"] for fields in stage.telemetry.named("store.failed")] == ["sweep"]
