"""What happens to a deployment while it works, by name: each ends with everybody back at work."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.engine.clock import RealClock
from tests.chaos.fleet import Fleet

CLOCK = RealClock()


class ChaosDeployment(msgspec.Struct):
    """`lease_s` is after how long somebody who is silent has lost his partitions and tasks."""

    fleet: Fleet
    orchestrators: tuple[str, ...]
    workers: tuple[str, ...]
    redis: RedisServer
    postgres: PostgresServer | None
    lease_s: float
    chance: random.Random
    past: int = 0
    """How many troubles are over."""


async def kill_orchestrator(scene: ChaosDeployment) -> None:
    await asyncio.to_thread(scene.fleet.replace, scene.chance.choice(scene.orchestrators))


async def kill_worker(scene: ChaosDeployment) -> None:
    await asyncio.to_thread(scene.fleet.replace, scene.chance.choice(scene.workers))


async def kill_all_workers(scene: ChaosDeployment) -> None:
    for place in scene.workers:
        await asyncio.to_thread(scene.fleet.replace, place)


async def pause_orchestrator(scene: ChaosDeployment) -> None:
    await _pause(scene, scene.chance.choice(scene.orchestrators))


async def pause_worker(scene: ChaosDeployment) -> None:
    await _pause(scene, scene.chance.choice(scene.workers))


async def restart_redis(scene: ChaosDeployment) -> None:
    await asyncio.to_thread(scene.redis.restart)


async def kill_redis(scene: ChaosDeployment) -> None:
    """Killed and started again: all that was written within the last second may be gone."""
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
    """To what it was a moment ago, under live orchestrators and workers."""
    older = await asyncio.to_thread(scene.redis.save_aof)
    await CLOCK.sleep(scene.lease_s / 2)
    await asyncio.to_thread(scene.redis.restore_aof, older)


async def _pause(scene: ChaosDeployment, place: str) -> None:
    """For longer than its lease: it comes back as a stranger."""
    scene.fleet.pause(place)
    await CLOCK.sleep(1.5 * scene.lease_s)
    scene.fleet.resume(place)


Trouble = Callable[[ChaosDeployment], Awaitable[None]]

TROUBLES: Mapping[str, Trouble] = {
    "kill-orchestrator": kill_orchestrator,
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
