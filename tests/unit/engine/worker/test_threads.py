"""Calls of short functions share a thread, and lose nothing by it."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from runnel.authoring.context import Context
from runnel.core.commands import (
    TaskCompleted,
    TaskDeferred,
    TaskFailed,
    TaskSkipped,
    TaskStopped,
)
from runnel.core.effects import TaskMessage
from runnel.core.ids import TaskToken
from runnel.core.retry import SUSPECT_LOSSES
from runnel.core.values import INLINE_BYTES_MAX
from runnel.engine.worker import threads
from runnel.engine.worker.node_plan import SHORT_S, CallDuration
from runnel.engine.worker.slots import current_slot
from runnel.engine.worker.threads import CHECK_AFTER_S
from runnel.engine.worker.worker import Worker
from runnel.errors import Skip
from runnel.testing.clock import FakeClock
from tests.unit.engine.worker.worker_harness import WorkerHarness
from tests.waiting import wait_until

Function = Callable[[Context], Any]
CALLS_UNTIL_SHORT = 20


class ShortFunctions:
    """A handler whose calls are short: time stands still. `code` has the functions by node.

    A node without a function returns its name at once. `threads` has the thread of each call.
    """

    def __init__(self, stage: WorkerHarness, patch: pytest.MonkeyPatch) -> None:
        self.code: dict[str, Function] = {}
        self.threads: dict[str, int] = {}
        self.begun: list[tuple[TaskToken, int]] = []
        self.running: list[str] = []
        self._stage = stage
        self._patch = patch
        self._begin, self._end = stage.backend.tasks.begin, stage.backend.tasks.end
        stage.backend.tasks.begin = self._record_begin  # type: ignore[method-assign]  # a spy
        stage.backend.tasks.end = self._record_end  # type: ignore[method-assign]  # a spy
        stage.handlers.register("short", self._call, mode="thread")

    def task(self, node: str, **fields: Any) -> TaskMessage:
        return self._stage.task("short", node=node, **fields)

    @asynccontextmanager
    async def working(self, *, wait_s: float = 0.002, **settings: Any) -> AsyncIterator[Worker]:
        """Runs a worker that has made enough calls to know that they are short.

        All its slots are free, and its next claim is for all of them.
        """
        async with self._stage.working(**settings) as worker:
            self._patch.setattr(threads, "WAIT_S", 10.0)
            await self._stage.issue(*[self.task(f"call {n}") for n in range(CALLS_UNTIL_SHORT)])
            await self._stage.results(CALLS_UNTIL_SHORT)
            await wait_until(lambda: worker.holds == 0)
            self._stage.reports.clear()
            self.begun.clear()
            self.running.clear()
            self._patch.setattr(threads, "WAIT_S", wait_s)
            yield worker

    def has_begun(self, node: str) -> bool:
        return node in [token.node_id for token, _thread in self.begun]

    def _call(self, _config: Any, ctx: Context) -> Any:
        self.threads[ctx.node_id] = threading.get_ident()
        code = self.code.get(ctx.node_id)
        return ctx.node_id if code is None else code(ctx)

    def _record_begin(self, token: TaskToken) -> None:
        self.begun.append((token, threading.get_ident()))
        self.running.append(token.node_id)
        self._begin(token)

    def _record_end(self, token: TaskToken) -> None:
        self.running.remove(token.node_id)
        self._end(token)


@pytest.fixture
def short(frozen: WorkerHarness, monkeypatch: pytest.MonkeyPatch) -> ShortFunctions:
    return ShortFunctions(frozen, monkeypatch)


class Gate:
    """A function that blocks its thread until the test opens the gate."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.may_end = threading.Event()

    def __call__(self, _ctx: Context) -> str:
        self.entered.set()
        self.may_end.wait(10)
        return "the gate is open"


def test_a_slow_call_makes_a_function_slow_and_many_short_calls_make_it_short_again() -> None:
    duration = CallDuration()
    states = [duration.is_short]
    for seconds in [0.0] * 16 + [60.0] + [0.0] * 17 + [SHORT_S / 2] * 100:
        duration.add(seconds)
        states.append(duration.is_short)

    assert states == [False] * 16 + [True] + [False] * 17 + [True] * 101


async def test_short_functions_share_a_thread(frozen: WorkerHarness, short: ShortFunctions) -> None:
    nodes = ["a", "b", "c", "d"]
    async with short.working(concurrency=4, wait_s=10.0):
        await frozen.issue(*map(short.task, nodes))
        results = await frozen.results(4)

    assert [result.output.decode() for result in results] == nodes  # type: ignore[union-attr]
    assert len({short.threads[node] for node in nodes}) == 1
    assert short.threads["a"] != threading.get_ident()


async def test_an_unknown_function_gets_a_thread_at_once(frozen: WorkerHarness) -> None:
    together = threading.Barrier(4)

    @frozen.handlers.handler("unknown")
    def unknown(_config: Any, _ctx: Context) -> int:
        together.wait(10)
        return threading.get_ident()

    async with frozen.working(concurrency=4):
        await frozen.issue(*[frozen.task("unknown", node=f"n{n}") for n in range(4)])
        results = await frozen.results(4)

    assert len({result.output.decode() for result in results}) == 4  # type: ignore[union-attr]


async def test_a_short_function_that_blocks_does_not_hold_up_the_others(
    frozen: WorkerHarness, short: ShortFunctions, clock: FakeClock
) -> None:
    gate = short.code["blocks"] = Gate()
    async with short.working(concurrency=4):
        await frozen.issue(short.task("blocks"), *map(short.task, ["b", "c", "d"]))
        await wait_until(gate.entered.is_set)
        await clock.advance(2 * CHECK_AFTER_S)
        others = await frozen.results(3)
        gate.may_end.set()
        results = await frozen.results(4)

    assert {other.token.node_id for other in others} == {"b", "c", "d"}
    assert results[-1].token.node_id == "blocks"
    assert all(isinstance(result, TaskCompleted) for result in results)


async def test_a_worker_claims_no_more_than_its_slots_for_a_batch(
    frozen: WorkerHarness, short: ShortFunctions, clock: FakeClock
) -> None:
    gate = short.code["blocks"] = Gate()
    async with short.working(concurrency=2) as worker:
        tasks = [short.task("blocks"), *map(short.task, ["b", "c", "d"])]
        await frozen.issue(*tasks)
        await wait_until(gate.entered.is_set)
        held = worker.holds
        await clock.advance(2 * CHECK_AFTER_S)
        await frozen.results(3)
        gate.may_end.set()
        await frozen.results(4)

    assert held == 2


async def test_only_the_call_that_runs_is_recorded_as_begun(
    frozen: WorkerHarness, short: ShortFunctions, clock: FakeClock
) -> None:
    gate = short.code["blocks"] = Gate()
    async with short.working(concurrency=4):
        await frozen.issue(*map(short.task, ["a", "blocks", "c"]))
        await wait_until(gate.entered.is_set)
        running = list(short.running)
        gate.may_end.set()
        await frozen.results(3)

    assert running == ["blocks"]
    assert [token.node_id for token, _thread in short.begun] == ["a", "blocks", "c"]


async def test_a_call_of_a_batch_has_the_timeout_of_its_task(
    frozen: WorkerHarness, short: ShortFunctions, clock: FakeClock
) -> None:
    gate = short.code["blocks"] = Gate()
    async with short.working(concurrency=1) as worker:
        await frozen.issue(short.task("blocks", timeout_s=3.0), short.task("after"))
        await wait_until(gate.entered.is_set)
        await clock.advance(2.9)
        early = [result.token.node_id for result in frozen.ended()]
        await clock.advance(0.2)
        failed, completed = await frozen.results(2)
        abandoned = worker.abandoned_threads
        gate.may_end.set()
        await wait_until(lambda: worker.abandoned_threads == 0)

    assert early == []
    assert isinstance(failed, TaskFailed)
    assert failed.error.type == "TaskTimeoutError"
    assert isinstance(completed, TaskCompleted)
    assert abandoned == 1
    assert len(await frozen.read_reports()) - len(frozen.notes()) == 2


async def test_a_call_of_a_batch_can_check_its_soft_timeout(
    frozen: WorkerHarness, short: ShortFunctions, clock: FakeClock
) -> None:
    entered = threading.Event()

    def polite(ctx: Context) -> str:
        entered.set()
        while not ctx.soft_timeout:
            threading.Event().wait(0.001)
        return "stopped early"

    short.code["polite"] = polite
    async with short.working():
        await frozen.issue(short.task("polite", soft_timeout_s=2.0, timeout_s=10.0))
        await wait_until(entered.is_set)
        await clock.advance(CHECK_AFTER_S)
        await clock.advance(2.1)
        [completed] = await frozen.results()

    assert completed.output.decode() == "stopped early"  # type: ignore[union-attr]


async def test_a_dropped_call_that_waits_in_a_batch_never_runs(
    frozen: WorkerHarness, short: ShortFunctions
) -> None:
    gate, queued = Gate(), short.task("queued")
    short.code["blocks"] = gate
    async with short.working(concurrency=2) as worker:
        await frozen.issue(short.task("blocks"), queued)
        await wait_until(gate.entered.is_set)
        await frozen.drop(queued.token)
        await wait_until(lambda: worker.holds == 1)
        gate.may_end.set()
        await frozen.results(1)

    assert "queued" not in short.threads
    assert not short.has_begun("queued")


async def test_the_end_of_a_stopped_call_is_reported_when_its_function_returns(
    frozen: WorkerHarness, short: ShortFunctions
) -> None:
    gate, task = Gate(), short.task("blocks")
    short.code["blocks"] = gate
    async with short.working() as worker:
        await frozen.issue(task)
        await wait_until(gate.entered.is_set)
        await frozen.stop_tasks(task.token)
        await wait_until(lambda: worker.abandoned_threads == 1)
        before = list(await frozen.read_reports())
        gate.may_end.set()
        await wait_until(lambda: worker.holds == 0)
        after = list(await frozen.read_reports())

    assert before == []
    assert after == [TaskStopped(token=task.token)]


async def test_skips_and_errors_of_a_batch_belong_to_their_calls(
    frozen: WorkerHarness, short: ShortFunctions
) -> None:
    def skip(_ctx: Context) -> None:
        raise Skip("not today")

    def leave(_ctx: Context) -> None:
        raise SystemExit(3)

    short.code |= {"skips": skip, "leaves": leave}
    async with short.working(concurrency=3):
        await frozen.issue(*map(short.task, ["skips", "leaves", "works"]))
        skipped, failed, completed = await frozen.results(3)

    assert isinstance(skipped, TaskSkipped)
    assert skipped.reason == "not today"
    assert isinstance(failed, TaskFailed)
    assert failed.error.type == "SystemExit"
    assert isinstance(completed, TaskCompleted)


async def test_context_variables_of_a_call_do_not_reach_the_next_call(
    frozen: WorkerHarness, short: ShortFunctions
) -> None:
    variable: ContextVar[str] = ContextVar("variable", default="unset")

    def set_and_get(ctx: Context) -> str:
        before = variable.get()
        variable.set(ctx.node_id)
        return before

    short.code |= {"a": set_and_get, "b": set_and_get}
    async with short.working(concurrency=2):
        await frozen.issue(*map(short.task, ["a", "b"]))
        results = await frozen.results(2)

    assert [result.output.decode() for result in results] == ["unset"] * 2  # type: ignore[union-attr]


async def test_a_call_of_a_batch_may_return_a_coroutine_or_a_large_result(
    frozen: WorkerHarness, short: ShortFunctions
) -> None:
    async def answer() -> int:
        await asyncio.sleep(0)
        return 42

    short.code |= {"coroutine": lambda _ctx: answer(), "large": lambda _ctx: "x" * INLINE_BYTES_MAX}
    async with short.working(concurrency=3):
        await frozen.issue(*map(short.task, ["coroutine", "large", "plain"]))
        results = await frozen.results(3)

    outputs = {str(result.token.node_id): result.output for result in results}  # type: ignore[union-attr]
    assert outputs["coroutine"].decode() == 42
    assert outputs["large"].blob is not None
    assert outputs["plain"].decode() == "plain"


async def test_a_call_of_a_batch_may_report_an_earlier_result(
    frozen: WorkerHarness, short: ShortFunctions
) -> None:
    def reuse(ctx: Context) -> str:
        ctx.is_cached = True
        return "from the cache"

    short.code["reuses"] = reuse
    async with short.working():
        await frozen.issue(short.task("reuses"))
        [completed] = await frozen.results()

    assert completed.is_cached  # type: ignore[union-attr]  # it completed


async def test_a_suspect_does_not_share_a_thread(
    frozen: WorkerHarness, short: ShortFunctions, clock: FakeClock
) -> None:
    async with short.working(concurrency=4):
        await frozen.issue(short.task("suspect", losses=SUSPECT_LOSSES), short.task("other"))
        await clock.advance(1)
        await frozen.results(2)

    here = threading.get_ident()
    threads = {token.node_id: thread == here for token, thread in short.begun}
    assert threads == {"suspect": True, "other": False}


async def test_a_call_of_a_batch_that_waits_for_an_execution_lends_its_slot(
    frozen: WorkerHarness, short: ShortFunctions, clock: FakeClock
) -> None:
    may_end = threading.Event()

    async def wait() -> str:
        slot = current_slot.get()
        assert slot is not None
        async with slot.lend():
            await asyncio.to_thread(may_end.wait, 10)
        return "waited"

    short.code["waits"] = lambda _ctx: asyncio.run(wait())
    async with short.working(concurrency=1):
        await frozen.issue(short.task("waits"), short.task("other"))
        [other] = await frozen.results(1)
        may_end.set()
        _, waited = await frozen.results(2)
        await frozen.issue(short.task("last"))
        await frozen.results(3)

    assert other.token.node_id == "other"
    assert waited.output.decode() == "waited"  # type: ignore[union-attr]


async def test_a_worker_that_drains_hands_back_the_calls_after_a_blocked_one(
    frozen: WorkerHarness, short: ShortFunctions, clock: FakeClock
) -> None:
    gate = short.code["blocks"] = Gate()
    async with short.working(concurrency=3):
        await frozen.issue(*map(short.task, ["blocks", "b", "c"]))
        await wait_until(gate.entered.is_set)
        frozen.stop.set()
        await clock.advance(2 * CHECK_AFTER_S)
        gate.may_end.set()

    reports = {
        report.token.node_id: type(report)  # type: ignore[union-attr]  # a worker's report
        for report in await frozen.read_reports()
    }
    assert reports == {"blocks": TaskCompleted, "b": TaskDeferred, "c": TaskDeferred}


async def test_a_cancelled_worker_does_not_wait_for_a_batch(
    frozen: WorkerHarness, short: ShortFunctions
) -> None:
    gate = short.code["blocks"] = Gate()
    async with short.working(shutdown_s=0.0, concurrency=2) as worker:
        await frozen.issue(short.task("blocks"), short.task("queued"))
        await wait_until(gate.entered.is_set)
        frozen.stop_now.set()
        frozen.stop.set()
        await wait_until(lambda: worker.abandoned_threads == 1)

    gate.may_end.set()
    await wait_until(lambda: worker.abandoned_threads == 0)
    assert "queued" not in short.threads
