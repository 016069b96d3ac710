"""How long `runnel run` of three nodes takes, from the shell to its exit."""

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from statistics import median

from runnel.benchmarks.figures import Figures
from runnel.benchmarks.fleet import clean_environment
from runnel.errors import ServerFailedError
from runnel.ports.clock import Clock

THREE = {
    "name": "three",
    "nodes": [
        {"id": "a", "handler": "input"},
        {"id": "b", "handler": "output", "config": {"x": "{{ a }}"}},
        {"id": "c", "handler": "output", "config": {"x": "{{ b.x }}"}},
    ],
}


async def cold_starts(clock: Clock, count: int) -> Figures:
    """In a new data directory each; nothing else is to run meanwhile."""
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
        file = Path(folder) / "three.json"
        file.write_text(json.dumps(THREE), encoding="utf-8")
        seconds = [await _start(clock, file, Path(folder) / str(n)) for n in range(count)]
    return {"cold_start_s": median(seconds), "cold_start_s_best": min(seconds)}


async def _start(clock: Clock, file: Path, data_dir: Path) -> float:
    started = clock.monotonic()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "runnel", "run", str(file), "--json"),
        *("--data-dir", str(data_dir)),
        env=clean_environment({}),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    if process.returncode:
        raise ServerFailedError("run", f"ended with {process.returncode}", log=said.decode())
    return clock.monotonic() - started
