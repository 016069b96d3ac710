"""Steps for the kill test: each leaves a line in a file, so that running twice can be seen."""

import os
import time
from pathlib import Path


def step(file: str, name: str, seconds: float) -> dict[str, str]:
    with Path(file).open("a") as log:
        log.write(f"{name}\n")
        log.flush()
        os.fsync(log.fileno())
    wait_until = time.monotonic() + seconds
    while time.monotonic() < wait_until:
        os.sched_yield()
    return {"from": name}
