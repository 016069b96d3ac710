"""One process at a time begins an execution by its key, among those that share a data dir."""

import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from runnel.ports.clock import Clock

FILE_NAME = "keys.lock"
LOOK_AGAIN_S = 0.01


@asynccontextmanager
async def key_lock(folder: Path, clock: Clock) -> AsyncIterator[None]:
    """Held for milliseconds; the kernel frees it when its process ends."""
    handle = os.open(folder / FILE_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while not _is_taken(handle):
            await clock.sleep(LOOK_AGAIN_S)
        yield
    finally:
        os.close(handle)


def _is_taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
