"""A worker of the floor: `python -m bench.floors.redis_worker`.

Claims as many tasks as it has slots, runs them, and reports them with its next claim. When there
are none, the next commit that issues some hands them over.
"""

import asyncio

import msgspec

from bench.floors.redis_connection import FloorLine, Plan, open_line, read_plan
from runnel.backends.redis.connection import Arg
from runnel.backends.redis.keys import decode_task, decode_tasks
from runnel.bench.setup import noop
from runnel.core.codec import encode_message
from runnel.core.commands import TaskCompleted
from runnel.core.values import NULL
from runnel.engine.clock import RealClock, RealIds

_encode = msgspec.json.Encoder().encode


async def work(plan: Plan) -> None:
    async with open_line(plan.redis_url) as line, open_line(plan.redis_url) as ear:
        await _work(plan, line, ear)


async def _work(plan: Plan, line: FloorLine, ear: FloorLine) -> None:
    names, clock = plan.names, RealClock()
    worker = f"floor-12345-{RealIds().nonce()}"
    handed: asyncio.Queue[bytes] = asyncio.Queue()
    await ear.listen(names.hand + worker, lambda _channel, words: handed.put_nowait(words))
    claim_sha, report_sha = await line.load("claim"), await line.load("report")
    held = names.held + worker
    keys = (names.tasks, names.out, held, names.waiting)
    claim = ("EVALSHA", claim_sha, len(keys), *keys, worker, plan.slots)
    reports: list[tuple[Arg, ...]] = []
    while True:
        *_, bodies = await line.calls([*reports, claim])
        tasks = [*map(decode_task, bodies)] or decode_tasks(await handed.get())
        args: list[Arg] = ["EVALSHA", report_sha, 3, held, names.out, names.inbox]
        for task in tasks:
            started_at = clock.now()
            await noop(None, None)  # type: ignore[arg-type]  # it looks at neither
            report = TaskCompleted(
                token=task.token, output=NULL, worker=worker, started_at=started_at
            )
            args += (_encode(task.token), encode_message(report))
        reports = [tuple(args)]


if __name__ == "__main__":
    asyncio.run(work(read_plan()))
