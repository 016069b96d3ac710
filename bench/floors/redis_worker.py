"""A worker of the floor: `python -m bench.floors.redis_worker`.

It claims as many tasks as it has slots, runs them, and reports them with its next claim. If there
are no tasks, the next commit with tasks pushes some to it.
"""

import asyncio

import msgspec

from bench.floors.redis_connection import (
    FloorConfig,
    FloorConnection,
    open_connection,
    read_config,
)
from runnel.backends.redis.connection import Arg
from runnel.backends.redis.keys import decode_task, decode_tasks
from runnel.bench.workflows import noop
from runnel.core.codec import encode_message
from runnel.core.commands import TaskCompleted
from runnel.core.values import NULL
from runnel.engine.clock import RandomIdGenerator, RealClock

_encode = msgspec.json.Encoder().encode


async def run_worker(config: FloorConfig) -> None:
    async with (
        open_connection(config.redis_url) as connection,
        open_connection(config.redis_url) as subscriber,
    ):
        await _run_claims(config, connection, subscriber)


async def _run_claims(
    config: FloorConfig, connection: FloorConnection, subscriber: FloorConnection
) -> None:
    names, clock = config.keys, RealClock()
    worker = f"floor-12345-{RandomIdGenerator().nonce()}"
    pushed: asyncio.Queue[bytes] = asyncio.Queue()
    await subscriber.listen(names.hand + worker, lambda _channel, data: pushed.put_nowait(data))
    claim_sha, report_sha = (
        await connection.load_script("claim"),
        await connection.load_script("report"),
    )
    held = names.held + worker
    keys = (names.tasks, names.out, held, names.waiting)
    claim = ("EVALSHA", claim_sha, len(keys), *keys, worker, config.slots)
    reports: list[tuple[Arg, ...]] = []
    while True:
        *_, bodies = await connection.call_pipelined([*reports, claim])
        tasks = [*map(decode_task, bodies)] or decode_tasks(await pushed.get())
        args: list[Arg] = ["EVALSHA", report_sha, 3, held, names.out, names.inbox]
        for task in tasks:
            started_at = clock.now()
            await noop(None, None)  # type: ignore[arg-type]  # noop uses neither
            report = TaskCompleted(
                token=task.token, output=NULL, worker=worker, started_at=started_at
            )
            args += (_encode(task.token), encode_message(report))
        reports = [tuple(args)]


if __name__ == "__main__":
    asyncio.run(run_worker(read_config()))
