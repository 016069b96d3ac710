"""One process of a deployment on Redis: `orchestrator` or `worker`, the server's URL, a name.

Further arguments name the queues that a worker serves. The process prints the name of each
telemetry event, and SIGTERM stops it cleanly. Leases last three seconds, so that tests are quick.
"""

import asyncio
import os
import signal
import sys

from runnel.authoring.context import Context
from runnel.authoring.registry import HandlerRegistry
from runnel.backends.redis.backend import RedisBackend
from runnel.backends.redis.options import RedisOptions
from runnel.core.values import Json
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.engine.orchestrator import OrchestratorDependencies
from runnel.engine.orchestrator.partition_share import make_sharing_orchestrator
from runnel.engine.services.dead_workers import Reaper
from runnel.engine.services.unserved_queues import UnservedQueueService
from runnel.engine.services.watchdog import Watchdog
from runnel.engine.worker.worker import Worker, WorkerOptions
from runnel.ports.telemetry import NullTelemetry
from runnel.ports.workers import WorkerInfo

LEASE_S = 3.0
DEAD_AFTER_S = 3.0
BEAT_S = 0.4
UNSERVED_S = 3.0
SWEEP_S = 0.3
REPAIR_AFTER_S = 1.0
PARTITIONS = 8


class PrintingTelemetry(NullTelemetry):
    """Prints each event with its partition, worker or orchestrator."""

    def event(self, name: str, **fields: object) -> None:
        about = [fields[key] for key in ("partition", "worker", "orchestrator") if key in fields]
        say(" ".join([name, *map(str, about)]))


async def main(role: str, url: str, name: str, *queues: str) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    backend = await RedisBackend.open(
        url, RedisOptions(partitions=PARTITIONS), clock=RealClock(), ids=RandomIdGenerator()
    )
    if role == "orchestrator":
        await orchestrate(backend, name, stop)
    else:
        await work(backend, name, queues, stop)
    await backend.close()
    say("ended")


async def orchestrate(backend: RedisBackend, name: str, stop: asyncio.Event) -> None:
    clock, telemetry = RealClock(), PrintingTelemetry()
    parts = OrchestratorDependencies(
        store=backend.store,
        archive=backend.archive,
        blobs=backend.blobs,
        clock=clock,
        ids=RandomIdGenerator(),
        telemetry=telemetry,
    )
    orchestrator = make_sharing_orchestrator(parts, name=name, lease_s=LEASE_S)
    reaper = Reaper(backend.store, backend.tasks, clock, telemetry, dead_after_s=DEAD_AFTER_S)
    unserved = UnservedQueueService(
        backend.store, backend.tasks, clock, telemetry, unserved_s=UNSERVED_S
    )
    watchdog = Watchdog(parts, orchestrator, sweep_s=SWEEP_S, repair_after_s=REPAIR_AFTER_S)
    async with asyncio.TaskGroup() as group:
        for service in (orchestrator, reaper, unserved, watchdog):
            group.create_task(service.run(stop))


async def work(
    backend: RedisBackend, name: str, queues: tuple[str, ...], stop: asyncio.Event
) -> None:
    worker = Worker(
        backend.tasks,
        backend.blobs,
        handlers(name),
        RealClock(),
        PrintingTelemetry(),
        name=name,
        options=WorkerOptions(
            queues=queues or None,
            about=WorkerInfo(host="here", pid=os.getpid(), handlers=("work",)),
            beat_s=BEAT_S,
            shutdown_s=0.2,
        ),
    )
    await worker.run(stop)


def handlers(worker: str) -> HandlerRegistry:
    registry = HandlerRegistry()

    async def call(config: Json, ctx: Context) -> Json:
        say(f"begun {ctx.node_id}")
        await RealClock().sleep(float(config["seconds"]))
        return worker

    registry.register("work", call)
    return registry


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
