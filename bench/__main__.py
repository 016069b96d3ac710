"""Runs everything three times and writes results.json and a table: `python -m bench [--quick]`."""

import argparse
import asyncio
import json
import platform
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

from bench import api, servers, workloads
from bench.floor import Floor
from bench.workloads import Figures

FOLDER = Path(__file__).parent
DIAMONDS = 2_000
# Twenty kills, each with the time to share partitions again, are a sample by themselves.
# A minute of requests is one, too.
ONCE = {"servers takeover", "api embedded", "api servers"}

Job = tuple[str, Callable[[], Awaitable[Figures]]]


async def floor(durability: str) -> Figures:
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
        seconds = await Floor(Path(folder) / "floor.db", durability).run(DIAMONDS)
    return {"diamonds_per_s": DIAMONDS / seconds}


def jobs(*, is_quick: bool) -> list[Job]:
    listed: list[Job] = [
        ("floor process", lambda: floor("process")),
        ("floor power", lambda: floor("power")),
    ]
    for backend in ("memory", "sqlite", "sqlite-power"):
        for slots in (4, 64):
            name = f"{backend} x{slots}"
            listed.append((name, lambda b=backend, s=slots: workloads.diamonds(b, s)))  # type: ignore[misc]
        listed.append((f"{backend} x4", lambda b=backend: workloads.chain(b, 4)))  # type: ignore[misc]
        listed.append((f"{backend} x4", lambda b=backend: workloads.fan(b, 4)))  # type: ignore[misc]
    listed.append(("servers x4", lambda: servers.diamonds(4)))
    listed.append(("servers x64", lambda: servers.diamonds(64)))
    listed.append(("servers x4", lambda: servers.chain(4)))
    if not is_quick:
        listed.append(("servers x4", servers.killed_workers))
        listed.append(("servers takeover", servers.takeovers))
        listed.append(("sqlite x4", lambda: workloads.maps("sqlite", 4)))
        listed.append(("sqlite x4", lambda: workloads.waiting("sqlite", 4)))
        listed.append(("cli", workloads.cold_start))
        listed.append(("api embedded", lambda: api.load("embedded")))
        listed.append(("api servers", lambda: api.load("servers")))
    return listed


def measure(repetitions: int, *, is_quick: bool) -> dict[str, dict[str, list[float]]]:
    """Each job in a process of its own: none pays for the memory that another left behind."""
    results: dict[str, dict[str, list[float]]] = {}
    for repetition in range(repetitions):
        for number, (name, _job) in enumerate(jobs(is_quick=is_quick)):
            if name in ONCE and repetition:
                continue
            command = [sys.executable, "-m", "bench", "--job", str(number)]
            command += ["--quick"] if is_quick else []
            done = subprocess.run(command, check=True, capture_output=True, cwd=FOLDER.parent)
            for figure, value in json.loads(done.stdout).items():
                results.setdefault(name, {}).setdefault(figure, []).append(value)
                print(f"{name:18} {figure:24} {value:12.3f}", file=sys.stderr)
    return results


async def _run(job: Callable[[], Awaitable[Figures]]) -> Figures:
    return await job()


def table(results: dict[str, dict[str, list[float]]]) -> str:
    lines = [
        "| configuration | figure | median | least | most | of the floor |",
        "|---|---|---|---|---|---|",
    ]
    for name, figures in results.items():
        for figure, values in figures.items():
            median = statistics.median(values)
            ratio = _of_floor(results, name, figure, median)
            row = f"{median:.3g} | {min(values):.3g} | {max(values):.3g} | {ratio}"
            lines.append(f"| {name} | {figure} | {row} |")
    return "\n".join(lines) + "\n"


def _of_floor(
    results: dict[str, dict[str, list[float]]], name: str, figure: str, median: float
) -> str:
    if figure != "diamonds_per_s" or name.startswith("floor"):
        return ""
    kind = "floor power" if "power" in name else "floor process"
    return f"{median / statistics.median(results[kind][figure]):.2f}"


def machine() -> dict[str, object]:
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": platform.platform(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="leave out maps, memory, cold start")
    parser.add_argument("--job", type=int, help="run one job and print its figures as JSON")
    chosen = parser.parse_args()
    if chosen.job is not None:
        _, job = jobs(is_quick=chosen.quick)[chosen.job]
        print(json.dumps(asyncio.run(_run(job))))
        return
    results = measure(chosen.repetitions, is_quick=chosen.quick)
    text = table(results)
    described = {"machine": machine(), "results": results}
    (FOLDER / "results.json").write_text(json.dumps(described, indent=1) + "\n")
    (FOLDER / "results.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
