"""Faults of a running deployment, by name. After each fault, all processes run again."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import msgspec

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.engine.clock import RealClock
from tests.chaos.fleet import Fleet

CLOCK = RealClock()


class ChaosDeployment(msgspec.Struct):
    """The processes and servers of a chaos run.

    A process that is silent for `lease_s` loses its partitions and tasks. Functions of workflows
    write files into the folder `notes`.
    """

    fleet: Fleet
    orchestrators: tuple[str, ...]
    workers: tuple[str, ...]
    redis: RedisServer
    postgres: PostgresServer | None
    lease_s: float
    notes: Path
    rng: random.Random
    finished_faults: int = 0


async def kill_orchestrator(scene: ChaosDeployment) -> None:
    await asyncio.to_thread(scene.fleet.replace, scene.rng.choice(scene.orchestrators))


async def crash_loop_orchestrator(scene: ChaosDeployment) -> None:
    """Lets one orchestrator die again and again, each time before it has lived for a lease."""
    name = scene.rng.choice(scene.orchestrators)
    for _ in range(4):
        await asyncio.to_thread(scene.fleet.replace, name)
        await CLOCK.sleep(scene.lease_s * 0.6)


async def kill_worker(scene: ChaosDeployment) -> None:
    await asyncio.to_thread(scene.fleet.replace, scene.rng.choice(scene.workers))


async def kill_all_workers(scene: ChaosDeployment) -> None:
    for name in scene.workers:
        await asyncio.to_thread(scene.fleet.replace, name)


async def pause_orchestrator(scene: ChaosDeployment) -> None:
    await _pause(scene, scene.rng.choice(scene.orchestrators))


async def pause_worker(scene: ChaosDeployment) -> None:
    await _pause(scene, scene.rng.choice(scene.workers))


async def restart_redis(scene: ChaosDeployment) -> None:
    await asyncio.to_thread(scene.redis.restart)


async def kill_redis(scene: ChaosDeployment) -> None:
    """Kills and starts Redis. Writes of the last second may be lost."""
    await asyncio.to_thread(scene.redis.kill)
    await asyncio.to_thread(scene.redis.start)


async def restart_postgres(scene: ChaosDeployment) -> None:
    if scene.postgres is not None:
        await asyncio.to_thread(scene.postgres.stop)
        await CLOCK.sleep(scene.lease_s)
        await asyncio.to_thread(scene.postgres.start)


async def wipe_redis(scene: ChaosDeployment) -> None:
    await asyncio.to_thread(scene.redis.wipe)


async def roll_redis_back(scene: ChaosDeployment) -> None:
    """Rolls Redis back by half a lease, under live orchestrators and workers."""
    older = await asyncio.to_thread(scene.redis.save_aof)
    await CLOCK.sleep(scene.lease_s / 2)
    await asyncio.to_thread(scene.redis.restore_aof, older)


async def _pause(scene: ChaosDeployment, name: str) -> None:
    """Pauses a process for longer than its lease."""
    scene.fleet.pause(name)
    await CLOCK.sleep(1.5 * scene.lease_s)
    scene.fleet.resume(name)


Trouble = Callable[[ChaosDeployment], Awaitable[None]]

TROUBLES: Mapping[str, Trouble] = {
    "kill-orchestrator": kill_orchestrator,
    "crash-loop-orchestrator": crash_loop_orchestrator,
    "kill-worker": kill_worker,
    "kill-all-workers": kill_all_workers,
    "pause-orchestrator": pause_orchestrator,
    "pause-worker": pause_worker,
    "restart-redis": restart_redis,
    "kill-redis": kill_redis,
    "restart-postgres": restart_postgres,
    "wipe-redis": wipe_redis,
    "roll-redis-back": roll_redis_back,
}
