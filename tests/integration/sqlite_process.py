"""A process that shares a data directory: `own` owns a partition, `send` sends one message.

`fork` owns one too, then forks a child that does nothing and waits to be killed.

The clock of the process stands still, so a waiting call returns only after a notification. Only
sleeps take real time, because the other process may hold the write lock of the database.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from runnel.backends.sqlite.backend import SqliteBackend
from runnel.engine.clock import RealClock
from runnel.testing.clock import FakeClock, FakeIds
from runnel.testing.conformance.suite import LeaseOwner, make_message


class StillClock(FakeClock):
    async def sleep(self, seconds: float) -> None:
        await RealClock().sleep(seconds)


async def main(role: str, data_dir: str, name: str) -> None:
    backend = await SqliteBackend.open(Path(data_dir), clock=StillClock(), ids=FakeIds(name))
    if role == "send":
        await backend.mailbox.send([make_message(name)])
        await backend.close()
        return
    home = await backend.claim_home_partition(name)
    owner = LeaseOwner(backend.store, await backend.store.acquire(home, name))
    say(f"owns {home}")
    if role == "fork" and os.fork() == 0:
        say(f"forked {os.getpid()}")
        os.close(sys.stdout.fileno())
        signal.pause()
    while True:
        for entry in await owner.read(wait_s=60):
            say(f"got {getattr(entry.command, 'reason', '')}")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


asyncio.run(main(*sys.argv[1:]))
