"""A worker that runs one `shell` task until the test kills it: `shell_worker.py COMMAND`."""

import asyncio
import sys

from runnel.engine.clock import RealClock
from tests.unit.engine.worker.worker_harness import WorkerHarness


async def main(command: str) -> None:
    stage = WorkerHarness(RealClock())
    async with stage.working():
        await stage.issue(stage.task("shell", {"command": command, "shell": True}))
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
