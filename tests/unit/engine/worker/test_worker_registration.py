"""The registry entry of a worker, from its first heartbeat to its end."""

import asyncio
from typing import Any

from runnel.authoring.context import Context
from runnel.ports.workers import WorkerInfo, WorkerRecord
from runnel.testing.clock import settle
from tests.unit.engine.worker.worker_harness import WorkerHarness


async def records(stage: WorkerHarness) -> list[WorkerRecord]:
    return list(await stage.backend.tasks.workers(with_dead=True))


async def test_a_worker_describes_itself_from_its_first_heartbeat_on(frozen: WorkerHarness) -> None:
    about = WorkerInfo(host="h1", pid=7, handlers=("output",), version="0.1.0")

    async with frozen.working(about=about, concurrency=3, queues=("tasks:output",)):
        await settle()
        [record] = await records(frozen)

    assert record.about == WorkerInfo(
        host="h1",
        pid=7,
        handlers=("output",),
        version="0.1.0",
        concurrency=3,
        queues=("tasks:output",),
        started_at=frozen.clock.now(),
        beat_s=2.0,
    )


async def test_a_draining_worker_is_shown_as_such_at_once_and_removed_at_its_end(
    frozen: WorkerHarness,
) -> None:
    go, entered = asyncio.Event(), asyncio.Event()

    @frozen.handlers.handler("slow")
    async def slow(config: Any, ctx: Context) -> None:
        entered.set()
        await go.wait()

    async with frozen.working():
        await frozen.issue(frozen.task("slow"))
        await entered.wait()
        frozen.stop.set()
        await settle()
        [draining] = await records(frozen)
        go.set()

    assert (str(draining.state), draining.holds) == ("draining", 1)
    assert await records(frozen) == []
