"""A worker of the floor: `python -m runnel.benchmarks.floors.redis_worker`.

Claims as many tasks as it has slots, runs them, and reports them with its next claim.
"""

import asyncio

import msgspec

from runnel.backends.redis.line import Arg
from runnel.backends.redis.values import decode_task
from runnel.benchmarks.floors.redis_line import FloorLine, open_line
from runnel.benchmarks.floors.redis_names import Plan, read_plan
from runnel.benchmarks.handlers import noop
from runnel.core.codec import encode_message
from runnel.core.commands import TaskCompleted
from runnel.core.values import NULL
from runnel.runtime.clock import RealClock, RealIds

BLOCK_MS = 1_000

_encode = msgspec.json.Encoder().encode


async def work(plan: Plan) -> None:
    async with open_line(plan.redis_url) as line, open_line(plan.redis_url) as waiter:
        await _work(plan, line, waiter)


async def _work(plan: Plan, line: FloorLine, waiter: FloorLine) -> None:
    names, clock = plan.names, RealClock()
    worker = f"floor-12345-{RealIds().nonce()}"
    claim_sha, report_sha = await line.load("claim"), await line.load("report")
    held = names.held + worker
    claim = ("EVALSHA", claim_sha, 3, names.tasks, names.out, held, worker, plan.slots)
    reports: list[tuple[Arg, ...]] = []
    while True:
        *_, bodies = await line.calls([*reports, claim])
        reports = []
        if not bodies:
            await waiter.call("XREAD", "COUNT", 1, "BLOCK", BLOCK_MS, "STREAMS", names.tasks, "0-0")
            continue
        args: list[Arg] = ["EVALSHA", report_sha, 3, held, names.out, names.inbox]
        for body in bodies:
            task = decode_task(body)
            started_at = clock.now()
            await noop(None, None)  # type: ignore[arg-type]  # it looks at neither
            report = TaskCompleted(
                token=task.token, output=NULL, worker=worker, started_at=started_at
            )
            args += (_encode(task.token), encode_message(report))
        reports = [tuple(args)]


if __name__ == "__main__":
    asyncio.run(work(read_plan()))
