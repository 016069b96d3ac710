"""The function of the kill test. Each call appends a line to a file, so a repetition is visible."""

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
