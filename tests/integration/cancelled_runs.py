"""A program that cancels `runnel.run` at many points; `-X dev -W error` reports what it leaves.

Arguments: `timeouts`, or `ends` with a seed.
"""

import asyncio
import gc
import logging
import random
import sys

import runnel
from tests.integration import decorated_flows as flows

# From before the engine has opened to after the execution waits for its signal.
TIMEOUTS_S = (0.0, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.15)


async def time_out(timeout_s: float) -> None:
    asyncio.get_running_loop().slow_callback_duration = 60.0
    try:
        await asyncio.wait_for(runnel.run(flows.held), timeout_s)
    except TimeoutError:
        return
    raise AssertionError("the execution ended without its signal")


async def end_early(choice: random.Random) -> None:
    """Returns while calls open, use or close their engine; `asyncio.run` cancels all tasks."""
    asyncio.get_running_loop().slow_callback_duration = 60.0
    runs = [
        runnel.run(flows.held) if choice.randint(0, 1) else runnel.run(flows.fetched_often, "a/b")
        for _ in range(choice.randint(1, 4))
    ]
    calls = [asyncio.create_task(run) for run in runs]
    for _ in range(choice.randint(1, 2)):
        await asyncio.wait(calls, timeout=choice.uniform(0.0, 0.04))
        for call in calls[choice.randint(0, 1) :]:
            call.cancel()
    await asyncio.wait(calls, timeout=choice.choice((0.0, 0.001)))


def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    if sys.argv[1] == "timeouts":
        for timeout_s in TIMEOUTS_S:
            asyncio.run(time_out(timeout_s), debug=True)
            gc.collect()
    else:
        choice = random.Random(int(sys.argv[2]))
        for _ in range(25):
            asyncio.run(end_early(choice), debug=True)
            gc.collect()


if __name__ == "__main__":
    main()
